//! Checks snapshots: every item that must exist does, and is in an allowed state.

use super::history::{Cause, Key, Open, Span};
use super::item::{Record, lease_call, settle_verb};
use super::{Checker, Snapshot};
use std::collections::{BTreeMap, HashMap, HashSet};
use towline_domain::command::Verb;
use towline_domain::{
    Counts, FailureKind, FieldSet, Head, ItemId, Millis, QueueId, QueueName, SettleVerb, State, Timestamp,
};
use towline_store::{Operation, StoredItem};

impl Checker {
    /// A snapshot at a quiet moment: no call is in flight, or no call in flight is carried out meanwhile.
    pub fn observed(&mut self, snapshot: &Snapshot) {
        self.tick += 1;
        let span = Span {
            key: Key::SNAPSHOT,
            invoked: self.tick,
            answered: self.tick,
            from: snapshot.now,
            to: snapshot.now,
        };
        let places: HashMap<QueueId, usize> =
            snapshot.queues.iter().enumerate().map(|(place, view)| (view.queue.id, place)).collect();
        let mut counted = vec![Counts::default(); snapshot.queues.len()];
        let mut leased: BTreeMap<(&QueueName, Option<&str>), u64> = BTreeMap::new();
        let mut keys = HashMap::new();
        let mut seen = HashSet::with_capacity(snapshot.items.len());
        for stored in &snapshot.items {
            let head = &stored.item.head;
            let id = head.id;
            match places.get(&head.queue) {
                Some(&place) if snapshot.queues[place].queue.name == stored.queue => {
                    count(&mut counted[place], &head.state, head.ready_at, snapshot.now);
                    if head.lease().is_some() {
                        let key = stored.item.body.fairness_key.as_deref();
                        *leased.entry((&stored.queue, key)).or_default() += 1;
                    }
                }
                _ => self.report(
                    2,
                    format!(
                        "item {id} is in queue {} ({:?}), which does not exist",
                        stored.queue, head.queue
                    ),
                ),
            }
            if let (Some(key), Some(claim)) = (&stored.item.body.idempotency_key, &stored.item.body.claim)
                && !stored.item.head.has_freed_key()
                && let Some(other) = keys.insert((claim.queue, key), id)
            {
                self.report(10, format!("key {key:?} belongs to item {other} and to item {id}"));
            }
            if !seen.insert(id) {
                self.report(2, format!("item {id} appears twice"));
                continue;
            }
            if self.recognise(&stored.item, &stored.queue, FieldSet::ALL, &span) {
                self.item_observed(stored);
                self.rebase(stored, &span);
            }
        }
        self.hand_offs_observed(snapshot);
        self.missing(&seen, snapshot.now);
        self.keys_observed(&leased);
        self.queues_observed(&snapshot.queues, &counted, &span);
        self.prune();
    }

    fn missing(&mut self, seen: &HashSet<ItemId>, now: Timestamp) {
        let missing: Vec<ItemId> = self.items.keys().filter(|id| !seen.contains(id)).copied().collect();
        for id in missing {
            let Some(record) = self.items.get(&id) else {
                continue;
            };
            let cause = self.absence(id, record, now);
            if let Cause::Awaited(_) = cause {
                continue;
            }
            if cause == Cause::None {
                let how = if record.acknowledged { "acknowledged" } else { "seen" };
                let bounds = self.bounds(record);
                let ttl = bounds.completed_ttl.into_iter().chain(bounds.failed_ttl).min();
                let (invariant, what) = match (&record.ended, &record.committed) {
                    (_, Some(committed)) => (12, format!("committed at {}", committed.0.key)),
                    (Some(ended), None) => (1, format!("terminal since {}", ended.span.key)),
                    // Removed at a time when its TTL would have removed a terminal item.
                    (None, None) if ttl.is_some_and(|ttl| record.alive_at.after(ttl) <= now) => {
                        (13, format!("not terminal at {}", record.alive_at))
                    }
                    (None, None) => (1, format!("not terminal at {}", record.alive_at)),
                };
                let earliest = self.removable_at(id, record).map_or("never".to_owned(), |at| at.to_string());
                let message = format!(
                    "item {id}, {how} at {}, is missing at {now}: {what}; removable: {earliest}",
                    record.origin
                );
                self.report(invariant, message);
            }
            self.forget(id);
        }
    }

    fn item_observed(&mut self, stored: &StoredItem) {
        let head = &stored.item.head;
        let id = head.id;
        let Some(record) = self.items.get(&id) else {
            return;
        };
        let open = self.open_on(id);
        let mut found: Vec<(u8, Cause, String)> = Vec::new();
        let mut say = |invariant: u8, cause: Cause, message: String| {
            found.push((invariant, cause, format!("item {id}: {message}")))
        };
        check_revision(head, record, &mut say);
        self.check_deliveries(head, record, open, &mut say);
        self.check_terminal(head, record, open, &mut say);
        check_outcome(stored, record, &mut say);
        self.check_lease(stored, record, open, &mut say);
        if head.created_at < record.born.from || (record.acknowledged && head.created_at > record.born.to) {
            let (from, to) = (record.born.from, record.born.to);
            say(
                2,
                Cause::None,
                format!("submitted between {from} and {to}, but created_at is {}", head.created_at),
            );
        }
        for (invariant, cause, message) in found {
            self.unless(cause, invariant, message);
        }
    }

    fn check_deliveries(
        &self,
        head: &Head,
        record: &Record,
        open: &[Open],
        say: &mut impl FnMut(u8, Cause, String),
    ) {
        let base = record.base.as_deref();
        let shown = base.map_or(0, |base| base.head.deliveries);
        let latest = record.deliveries.last().map_or(shown, |delivery| delivery.number.max(shown));
        let possible =
            u64::from(shown) + u64::from(record.received) + self.possible_receives(record).count() as u64;
        if head.deliveries < latest || u64::from(head.deliveries) > possible {
            say(
                7,
                Cause::None,
                format!("{} deliveries are shown, but there were {latest} to {possible}", head.deliveries),
            );
        }
        let most = self.bounds(record).max_retries_most;
        if head.retries > most {
            say(
                7,
                Cause::None,
                format!("attempt {}, the maximum is {}", head.attempt(), u64::from(most) + 1),
            );
        }
        let retries =
            record.deliveries.last().map(|delivery| delivery.retries).or(base.map(|base| base.head.retries));
        let since = record
            .deliveries
            .last()
            .map_or(0, |delivery| delivery.received.unwrap_or(delivery.extended).invoked);
        if retries.is_some_and(|retries| head.retries < retries) {
            say(7, record.redrive(since, open), format!("retries fell from {retries:?} to {}", head.retries));
        }
    }

    /// A terminal item stays terminal, and an item becomes terminal only for a reason.
    fn check_terminal(
        &self,
        head: &Head,
        record: &Record,
        open: &[Open],
        say: &mut impl FnMut(u8, Cause, String),
    ) {
        let base = record.base.as_deref();
        let terminal = head.is_terminal();
        let completed = matches!(head.state, State::Completed { .. });
        if let Some(ended) = &record.ended {
            if !terminal || ended.completed != completed {
                let cause =
                    if ended.completed { Cause::None } else { record.redrive(ended.span.invoked, open) };
                say(6, cause, format!("became terminal at {} and is {:?}", ended.span.key, head.state));
            }
            if let Some(base) = base.filter(|base| terminal && base.head.is_terminal() && base.head != *head)
            {
                let cause = record.redrive(base.tick, open);
                say(6, cause, format!("became terminal and then changed to {head:?}"));
            }
        } else if terminal {
            self.check_ended_by(head.deliveries, &head.state, record, open, say);
        }
    }

    /// The item is terminal without a known reply: some operation must have caused it.
    fn check_ended_by(
        &self,
        deliveries: u32,
        state: &State,
        record: &Record,
        open: &[Open],
        say: &mut impl FnMut(u8, Cause, String),
    ) {
        let settle = |verb: SettleVerb| {
            move |open: &&Open| lease_call(open).is_some_and(|call| settle_verb(&call.verb) == Some(verb))
        };
        let cancel = |open: &&Open| matches!(open.operation(), Operation::Cancel { .. });
        let (invariant, cause) = match state {
            State::Completed { .. } => (5, Cause::among(open.iter().filter(settle(SettleVerb::Commit)))),
            State::Failed { kind: FailureKind::Explicit, .. } => {
                (6, Cause::among(open.iter().filter(settle(SettleVerb::Fail))))
            }
            State::Failed { kind: FailureKind::Cancelled, .. } => {
                let known = Cause::when(record.cancelled.is_some() || record.id_chosen);
                let by_holder = || Cause::among(open.iter().filter(settle(SettleVerb::Cancel)));
                (6, known.or(|| Cause::among(open.iter().filter(cancel))).or(by_holder))
            }
            State::Failed { kind: FailureKind::RetriesExhausted | FailureKind::Poison, .. } => {
                (6, Cause::when(deliveries > 0))
            }
            _ => (6, Cause::Known),
        };
        let by_redrive = record.redrive(0, open);
        say(invariant, cause.or(|| by_redrive), format!("{state:?} without a cause"));
    }

    fn check_lease(
        &self,
        stored: &StoredItem,
        record: &Record,
        open: &[Open],
        say: &mut impl FnMut(u8, Cause, String),
    ) {
        let head = &stored.item.head;
        let Some(lease) = head.lease() else {
            return;
        };
        let Some(at) = record.delivery(lease.token) else {
            let latest = record.deliveries.last().map_or(0, |delivery| delivery.number);
            if head.deliveries <= latest {
                say(3, Cause::None, format!("the lease shown is not that of delivery {latest}"));
            }
            return;
        };
        let delivery = &record.deliveries[at];
        if let Some((span, verb)) = &delivery.settled {
            say(
                3,
                Cause::None,
                format!("settled by {} at {}, but still shown with that lease", verb.name(), span.key),
            );
        }
        if let Some(dead) = &delivery.dead {
            say(3, Cause::None, format!("cancelled at {}, but still shown with its lease", dead.key));
        }
        if delivery.number != head.deliveries {
            say(7, Cause::None, format!("delivery {} is shown as {}", delivery.number, head.deliveries));
        }
        let beats = open.iter().filter_map(lease_call).filter(|call| call.token == lease.token);
        let beats: Vec<Option<Millis>> = beats
            .filter_map(|call| match call.verb {
                Verb::Heartbeat { visibility } => Some(visibility),
                _ => None,
            })
            .collect();
        let in_bounds = (delivery.deadline_least..=delivery.deadline_most).contains(&lease.deadline);
        if beats.is_empty() && !in_bounds {
            let (least, most) = (delivery.deadline_least, delivery.deadline_most);
            say(
                3,
                Cause::None,
                format!(
                    "the lease shown ends at {}, but its deadline was between {least} and {most}",
                    lease.deadline
                ),
            );
        }
    }

    /// Removes lost calls that can no longer be carried out: those before a restart, and those with a lease that is over.
    fn prune(&mut self) {
        let restarts = self.restarts;
        let items = &self.items;
        self.open.retain(|id, list| {
            let current =
                items.get(id).and_then(|record| record.deliveries.last()).map(|delivery| delivery.token);
            list.retain(|open| {
                let over = match lease_call(open) {
                    Some(call) => open.is_lost() && Some(call.token) != current,
                    None => open.is_lost() && !items.contains_key(id),
                };
                !over && !open.is_closed(restarts)
            });
            !list.is_empty()
        });
        self.submits.retain(|_, list| {
            list.retain(|open| !open.is_closed(restarts));
            !list.is_empty()
        });
        if self.calls.is_empty() {
            self.gone.clear();
        }
    }

    /// Compares two snapshots without a call or timer between them, for example before and after a reopen.
    pub fn unchanged(&mut self, before: &Snapshot, after: &Snapshot) {
        let now: HashMap<ItemId, &StoredItem> =
            after.items.iter().map(|stored| (stored.item.head.id, stored)).collect();
        for stored in &before.items {
            let id = stored.item.head.id;
            match now.get(&id) {
                None => self.report(1, format!("item {id} disappeared")),
                Some(other) if *other != stored => {
                    self.report(1, format!("item {id} changed from {stored:?} to {other:?}"))
                }
                Some(_) => {}
            }
        }
        let then: HashSet<ItemId> = before.items.iter().map(|stored| stored.item.head.id).collect();
        for stored in after.items.iter().filter(|stored| !then.contains(&stored.item.head.id)) {
            self.report(2, format!("item {} appeared", stored.item.head.id));
        }
        let order =
            |snapshot: &Snapshot| snapshot.items.iter().map(|stored| stored.item.head.id).collect::<Vec<_>>();
        if then.len() == now.len() && order(before) != order(after) {
            self.report(11, "the order of the items changed".to_owned());
        }
        // Scheduled items become ready by time alone.
        let comparable = |snapshot: &Snapshot| {
            let mut queues = snapshot.queues.clone();
            if before.now != after.now {
                for view in &mut queues {
                    view.counts.pending += std::mem::take(&mut view.counts.scheduled);
                    view.oldest_ready = None;
                }
            }
            queues
        };
        let (was, is) = (comparable(before), comparable(after));
        for view in was.iter().filter(|view| !is.contains(view)) {
            let other = is.iter().find(|other| other.queue.name == view.queue.name);
            let invariant = if other.is_some_and(|other| other.queue == view.queue) { 9 } else { 1 };
            self.report(invariant, format!("queue {} changed from {view:?} to {other:?}", view.queue.name));
        }
        for view in is.iter().filter(|view| !was.iter().any(|other| other.queue.name == view.queue.name)) {
            self.report(2, format!("queue {} appeared", view.queue.name));
        }
    }
}

/// Certain changes are still visible.
fn check_revision(head: &Head, record: &Record, say: &mut impl FnMut(u8, Cause, String)) {
    let base = record.base.as_deref();
    let revision = base.map_or(1, |base| base.head.revision).saturating_add(record.changes);
    if head.revision < revision {
        say(
            1,
            Cause::None,
            format!("revision {} is shown, but {revision} changes were acknowledged or shown", head.revision),
        );
    }
    if let Some(base) = base.filter(|base| base.head.revision == head.revision && base.head != *head) {
        say(6, Cause::None, format!("changed from {:?} to {head:?} with the same revision", base.head));
    }
}

/// A committed result stays readable.
fn check_outcome(stored: &StoredItem, record: &Record, say: &mut impl FnMut(u8, Cause, String)) {
    let head = &stored.item.head;
    let completed = matches!(head.state, State::Completed { .. });
    if let Some((commit, _, outcome)) = record.committed.as_deref() {
        let shown = &stored.item.outcome;
        let kept = shown.output_params == outcome.output_params
            && outcome.outputs.iter().all(|(slot, buffer)| shown.outputs.get(slot) == Some(buffer));
        if !completed || !kept {
            say(
                12,
                Cause::None,
                format!(
                    "committed at {} with {outcome:?}, is {} with {shown:?}",
                    commit.key,
                    head.item_state()
                ),
            );
        }
    }
}

fn count(counts: &mut Counts, state: &State, ready_at: Timestamp, now: Timestamp) {
    let slot = match state {
        State::Pending if ready_at > now => &mut counts.scheduled,
        State::Pending => &mut counts.pending,
        State::Processing(_) => &mut counts.processing,
        State::Paused => &mut counts.paused,
        State::Completed { .. } => &mut counts.completed,
        State::Failed { .. } => &mut counts.failed,
    };
    *slot += 1;
}
