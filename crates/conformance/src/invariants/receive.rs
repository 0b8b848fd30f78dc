//! Checks replies to receives: invariants 2, 3, 6, 7, 8, 11 and 13.

use super::Checker;
use super::history::{Cause, Open, Span};
use super::item::{Delivery, Record, counts, lease_call};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use towline_domain::command::{Verb, When};
use towline_domain::{Item, LeaseCall, Millis, Order, SettleVerb};
use towline_store::{ReceiveCall, Received};

impl Checker {
    pub(super) fn received(&mut self, call: &ReceiveCall, received: &Received, span: &Span) {
        self.queue_state_seen(&call.queue, received.queue, received.items.len(), span);
        let record = self.queues.get(&call.queue);
        if let Some((order, turns)) =
            record.and_then(|queue| Some((queue.order()?.clone(), queue.bounds.turns)))
        {
            // With fairness, items are in order within each key.
            let key = |item: &Item| if turns { item.body.fairness_key.clone() } else { None };
            let mut last: BTreeMap<Option<String>, &Item> = BTreeMap::new();
            for item in &received.items {
                let Some(before) = last.insert(key(item), item) else { continue };
                if self.order_of(&order, before, item) == Ordering::Greater {
                    let (first, second) = (before.head.id, item.head.id);
                    let message = format!(
                        "{}: item {first} came before item {second}, which violates {order:?}",
                        span.key
                    );
                    self.report(11, message);
                }
            }
        }
        for item in &received.items {
            if self.recognise(item, &call.queue, call.fields, span) {
                self.delivered(item, span);
            }
        }
    }

    fn order_of(&self, order: &Order, a: &Item, b: &Item) -> Ordering {
        let (x, y) = (&a.head, &b.head);
        let score = |item: &Item| item.head.extras.as_ref().map_or(0, |extras| extras.score);
        let by = match order {
            Order::Fifo => x.ready_at.cmp(&y.ready_at),
            Order::Priority => (x.priority, x.ready_at).cmp(&(y.priority, y.ready_at)),
            Order::Score(_) => score(b).cmp(&score(a)).then(x.created_at.cmp(&y.created_at)),
        };
        // Chosen ids do not show the order of submission.
        let made = |item: &Item| self.items.get(&item.head.id).is_some_and(|record| !record.id_chosen);
        by.then(if made(a) && made(b) { x.id.cmp(&y.id) } else { Ordering::Equal })
    }

    fn delivered(&mut self, item: &Item, span: &Span) {
        let head = &item.head;
        let (id, key) = (head.id, span.key);
        let Some(lease) = head.lease() else {
            return self.report(
                3,
                format!("item {id} was received by {key} as {}, without a lease", head.item_state()),
            );
        };
        let Some(record) = self.items.get(&id) else {
            return;
        };
        let number = head.deliveries;
        let delivery = Delivery::new(head, lease, Some(*span), span);
        let mut found = Vec::new();
        if head.ready_at > span.to {
            found.push((
                13,
                Cause::None,
                format!("item {id} was received by {key} before its ready time {}", head.ready_at),
            ));
        }
        self.check_end(item, record, span, &mut found);
        self.check_counts(item, record, span, &mut found);
        if let Some(known) = record.deliveries.iter().find(|other| other.number == number) {
            if known.received.is_some() || known.token != lease.token {
                let by = known.received.map_or("an earlier receive".to_owned(), |span| span.key.to_string());
                let message = format!("item {id}: {by} and {key} both received delivery {number}");
                found.push((7, Cause::None, message));
            }
        } else {
            let place = record.deliveries.partition_point(|other| other.number < number);
            if let Some(earlier) = place.checked_sub(1).map(|before| &record.deliveries[before]) {
                self.check_lease_over(item, record, (earlier, &delivery), span, &mut found);
            }
            if let Some(later) = record.deliveries.get(place) {
                let seen = later.received.unwrap_or(later.extended);
                if seen.before(span) {
                    let message = format!(
                        "item {id}: {key} received delivery {number}, after delivery {} at {}",
                        later.number, seen.key
                    );
                    found.push((7, Cause::None, message));
                } else {
                    self.check_lease_over(item, record, (&delivery, later), &seen, &mut found);
                }
            }
        }
        for (invariant, cause, message) in found {
            self.unless(cause, invariant, message);
        }
        let Some(record) = self.items.get_mut(&id) else {
            return;
        };
        record.alive(span.from);
        record.reopened(Some(number), span);
        match record.deliveries.iter_mut().find(|other| other.number == number) {
            Some(known) => known.received = Some(*span),
            None => {
                record.received +=
                    u32::from(record.base.as_ref().is_none_or(|base| base.head.deliveries < number));
                record.changed(span);
                record.keep(delivery);
            }
        }
    }

    fn check_end(&self, item: &Item, record: &Record, span: &Span, found: &mut Vec<(u8, Cause, String)>) {
        let (id, open) = (item.head.id, self.open_on(item.head.id));
        if let Some(ended) = record.ended.filter(|ended| ended.span.before(span)) {
            let cause = record.redrive(ended.span.invoked, open);
            let message =
                format!("item {id} became terminal at {} and was received by {}", ended.span.key, span.key);
            found.push((6, cause, message));
        }
        let (deliveries, time) = record.not_before;
        if item.head.deliveries > deliveries && span.to < time {
            let message = format!(
                "item {id} was received by {} at {} or before, but is not ready before {time}",
                span.key, span.to
            );
            found.push((13, record.redrive(0, open), message));
        }
    }

    fn check_counts(&self, item: &Item, record: &Record, span: &Span, found: &mut Vec<(u8, Cause, String)>) {
        let head = &item.head;
        let (id, key) = (head.id, span.key);
        let most = self.bounds(record).max_retries_most;
        if head.retries > most {
            let message = format!(
                "item {id} at {key}: attempt {}, the maximum is {}",
                head.attempt(),
                u64::from(most) + 1
            );
            found.push((7, Cause::None, message));
        }
        if head.retries >= head.deliveries {
            let message =
                format!("item {id} at {key}: {} retries in {} deliveries", head.retries, head.deliveries);
            found.push((7, Cause::None, message));
        }
        let shown = record.base.as_ref().map_or(0, |base| base.head.deliveries);
        if record.base.as_ref().is_some_and(|base| base.tick < span.invoked && head.deliveries <= shown) {
            let message = format!(
                "item {id}: {key} received delivery {}, but a snapshot had shown {shown}",
                head.deliveries
            );
            found.push((7, Cause::None, message));
        }
        // This delivery, the acknowledged ones, and those without a known reply.
        let possible =
            u64::from(shown) + u64::from(record.received) + 1 + self.possible_receives(record).count() as u64;
        if u64::from(head.deliveries) > possible {
            let message = format!(
                "item {id}: {key} received delivery {}, but there were at most {possible}",
                head.deliveries
            );
            found.push((7, Cause::None, message));
        }
    }

    /// Checks that the lease of an earlier delivery was over before a later one.
    fn check_lease_over(
        &self,
        item: &Item,
        record: &Record,
        (earlier, later): (&Delivery, &Delivery),
        span: &Span,
        found: &mut Vec<(u8, Cause, String)>,
    ) {
        let (id, open) = (item.head.id, self.open_on(item.head.id));
        let since = earlier.received.unwrap_or(earlier.extended).invoked;
        let cancelled = record.cancelled.is_some_and(|cancel| cancel.answered > since);
        let settled = earlier.settled.is_some() || earlier.dead.is_some() || cancelled;
        if !settled && span.to < earlier.deadline_least {
            let ends = |open: &&Open| match lease_call(open) {
                None => true,
                Some(call) if call.token != earlier.token => false,
                Some(call) => match &call.verb {
                    // The heartbeat may have shortened the lease.
                    Verb::Heartbeat { visibility } => {
                        open.at.after(visibility.unwrap_or(earlier.visibility).min(earlier.visibility))
                            <= span.to
                    }
                    Verb::Edit => false,
                    _ => true,
                },
            };
            let cause = Cause::among(open.iter().filter(ends));
            let message = format!(
                "item {id}: delivery {} was received by {} at {} or before, while delivery {} had a lease until {}",
                later.number, span.key, span.to, earlier.number, earlier.deadline_least
            );
            found.push((3, cause, message));
        }
        if later.number != earlier.number + 1 {
            return;
        }
        let settle = record.settles.iter().find(|settle| settle.token == earlier.token);
        let keeps_place = settle.and_then(|settle| settle.call.as_ref()).is_some_and(keeps_place);
        if keeps_place && later.ready_at != earlier.ready_at {
            let message = format!(
                "item {id}: given back without a delay, its ready time went from {} to {}",
                earlier.ready_at, later.ready_at
            );
            found.push((11, record.redrive(since, open), message));
        }
        let verb = earlier.settled.map(|(_, verb)| verb);
        let uncounted =
            settle.and_then(|settle| settle.call.as_ref()).is_some_and(|call| !counts(&call.verb));
        let uncounted = uncounted || matches!(verb, Some(SettleVerb::Defer | SettleVerb::Pause));
        let counted = u32::from(!uncounted);
        if later.retries != earlier.retries + counted {
            let deferred = |open: &&Open| {
                lease_call(open).is_some_and(|call| call.token == earlier.token && !counts(&call.verb))
            };
            let mut cause = record.redrive(since, open);
            if verb.is_none() && later.retries == earlier.retries {
                cause = cause.or(|| Cause::among(open.iter().filter(deferred)));
            }
            let message = format!(
                "item {id}: {} retries at delivery {}, {} at delivery {}, settled by {verb:?}",
                earlier.retries, earlier.number, later.retries, later.number
            );
            found.push((7, cause, message));
        }
    }
}

/// Whether the call gives the item back without a delay: it stays where it was in the queue's order.
fn keeps_place(call: &LeaseCall) -> bool {
    let now = matches!(call.verb, Verb::Release { delay: Millis::ZERO, .. });
    now || call.verb == Verb::Defer { until: When::NOW } || call.verb == Verb::Pause
}
