//! Whether a missing item may have been removed.

use super::Checker;
use super::history::{Cause, Open};
use super::item::{Delivery, Record, Remove, counts, lease_call, settle_verb};
use super::queue::Bounds;
use towline_domain::command::Verb;
use towline_domain::{ItemId, LeaseCall, Millis, SettleVerb, Timestamp, limits};
use towline_store::Operation;

impl Checker {
    pub(super) fn open_on(&self, id: ItemId) -> &[Open] {
        self.open.get(&id).map_or(&[], Vec::as_slice)
    }

    /// The combined bounds of all queues in which the item may have been.
    pub(super) fn bounds(&self, record: &Record) -> Bounds {
        let mut bounds = self.queues.get(&record.queue).map(|queue| queue.bounds).unwrap_or_default();
        if self.may_have_moved(record) {
            self.queues.values().for_each(|queue| bounds.join(&queue.bounds));
        }
        if let Some(max) = record.overrides.max_retries {
            (bounds.max_retries_least, bounds.max_retries_most) = (max, max);
        }
        // The policy of an earlier queue may have allowed more.
        let had = record.base.as_ref().map_or(0, |base| base.head.retries);
        bounds.max_retries_most = bounds.max_retries_most.max(had);
        bounds.completed_ttl = record.overrides.completed_ttl.or(bounds.completed_ttl);
        bounds.failed_ttl = record.overrides.failed_ttl.or(bounds.failed_ttl);
        bounds.expire_after = record.overrides.expire_after.or(bounds.expire_after);
        bounds.give_up_after = record.overrides.give_up_after.or(bounds.give_up_after);
        bounds
    }

    /// Whether the item may have moved to another queue since it was last seen.
    fn may_have_moved(&self, record: &Record) -> bool {
        let open = self.open_on(record.id);
        let letter = record
            .base
            .as_ref()
            .is_some_and(|base| base.head.extras.as_ref().is_some_and(|e| e.origin.is_some()));
        record.moved
            || self.queues.get(&record.queue).is_some_and(|queue| queue.bounds.dead_letters)
            || letter && record.redrive(0, open) != Cause::None
            || open.iter().filter_map(lease_call).any(|call| call.adjust.queue.is_some())
    }

    /// Receives in flight or lost that may have returned the item.
    pub(super) fn possible_receives<'a>(
        &'a self,
        record: &Record,
    ) -> impl Iterator<Item = &'a Open> + use<'a> {
        let (own, all) = (record.queue.clone(), self.may_have_moved(record));
        let one = self.queues.get(&own).filter(|_| !all);
        let every = self.queues.values().filter(move |_| all);
        one.into_iter().chain(every).flat_map(|queue| &queue.receives)
    }

    /// The operation, known or possible, that explains that the item is missing.
    pub(super) fn absence(&self, id: ItemId, record: &Record, now: Timestamp) -> Cause {
        let delete = |open: &&Open| matches!(open.operation(), Operation::Delete { .. });
        let since = record.born.invoked;
        Cause::when(record.maybe_deleted || self.removable_at(id, record).is_some_and(|at| at <= now))
            .or(|| Cause::among(self.open_on(id).iter().filter(delete)))
            .or(|| {
                if self.may_have_moved(record) {
                    let queues = self.queues.values();
                    return queues.fold(Cause::None, |cause, queue| cause.or(|| queue.deletion(since)));
                }
                self.queues.get(&record.queue).map_or(Cause::None, |queue| queue.deletion(since))
            })
    }

    /// The earliest time at which the TTL may remove the item.
    pub(super) fn removable_at(&self, id: ItemId, record: &Record) -> Option<Timestamp> {
        let open = self.open_on(id);
        let bounds = self.bounds(record);
        let after = |from: Timestamp, ttl: Option<Millis>| ttl.map(|ttl| from.after(ttl));
        let by_end = record.ended.as_ref().and_then(|ended| match (ended.remove, ended.completed) {
            (Remove::At(at), _) => at,
            (Remove::TtlAfter(from), true) => after(from, bounds.completed_ttl),
            (Remove::TtlAfter(from), false) => after(from, bounds.failed_ttl),
        });
        if record.ended.is_some_and(|ended| record.redrive(ended.span.invoked, open) == Cause::None) {
            return by_end;
        }
        let by_calls = open.iter().filter_map(|open| match open.operation() {
            Operation::Cancel { .. } => after(open.at, bounds.failed_ttl),
            Operation::Lease { call, .. } => match settle_verb(&call.verb)? {
                SettleVerb::Commit => after(open.at, bounds.completed_ttl),
                _ if !counts(&call.verb) => None,
                _ => after(open.at, bounds.failed_ttl),
            },
            _ => None,
        });
        let by_time =
            self.fails_by_time_at(record, &bounds, open).and_then(|at| after(at, bounds.failed_ttl));
        by_calls.chain(by_time).chain(by_end).min()
    }

    /// The earliest time at which expiry or lapses may fail the item.
    pub(super) fn fails_by_time_at(
        &self,
        record: &Record,
        bounds: &Bounds,
        open: &[Open],
    ) -> Option<Timestamp> {
        let latest = record.deliveries.last();
        let shown = record.base.as_ref().map(|base| &base.head);
        let born = record.born.from;
        let expiry = match latest.map(|delivery| delivery.expires_at).or(shown.map(|head| head.expires_at)) {
            Some(known) if record.redrive(0, open) == Cause::None => known,
            known => [known.flatten(), bounds.expire_after.map(|span| born.after(span))]
                .into_iter()
                .flatten()
                .min(),
        };
        let give_up = bounds.give_up_after.map(|span| born.after(span));
        let mut receives = self.possible_receives(record).peekable();
        let retries = latest.map_or(shown.map_or(0, |head| head.retries), |delivery| delivery.retries);
        // Each delivery without a known reply may have lapsed.
        let unseen = u32::try_from(self.possible_receives(record).count()).unwrap_or(u32::MAX);
        let may_exhaust =
            bounds.poison || retries.saturating_add(unseen).saturating_add(1) > bounds.max_retries_least;
        // A heartbeat without a known reply may have shortened the lease.
        let beats = |delivery: &Delivery| {
            let own = delivery.visibility;
            let least = open.iter().filter_map(|open| match lease_call(open)? {
                LeaseCall { token, verb: Verb::Heartbeat { visibility }, .. } if *token == delivery.token => {
                    Some(open.at.after(visibility.unwrap_or(own).min(own)))
                }
                _ => None,
            });
            least.fold(delivery.deadline_least, Timestamp::min)
        };
        let lapse = latest.filter(|d| d.settled.is_none() && d.dead.is_none()).map(beats);
        let unseen_lapse = receives.peek().is_some().then(|| {
            let first = receives.map(|open| open.at).min().unwrap_or_default();
            first.max(record.born.from).after(limits::VISIBILITY_MIN)
        });
        let lapse = [lapse, unseen_lapse].into_iter().flatten().min().filter(|_| may_exhaust);
        [expiry, give_up, lapse].into_iter().flatten().min()
    }
}
