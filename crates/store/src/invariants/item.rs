//! What is known of each item: what was submitted, its latest deliveries, whether it ended, when it may be gone.

use super::Checker;
use super::history::{Cause, Key, Open, Span, Tick};
use super::queue::Bounds;
use crate::Operation;
use bytes::Bytes;
use towline_domain::command::Verb;
use towline_domain::{
    Body, Field, FieldEdits, FieldSet, Fields, Head, Item, ItemId, LeaseCall, LeaseToken, Millis, Outcome,
    Overrides, QueueName, SettleVerb, State, Submission, Timestamp, limits,
};

/// Deliveries remembered of each item; older ones are over.
const DELIVERIES_KEPT: usize = 4;

#[derive(Debug)]
pub(super) struct Record {
    pub(super) id: ItemId,
    /// The submit it came from, and whether that was answered.
    pub(super) origin: Key,
    pub(super) acknowledged: bool,
    pub(super) born: Span,
    /// As shown, once it was.
    pub(super) created_at: Option<Timestamp>,
    /// Where it is, or was when last seen whole.
    pub(super) queue: QueueName,
    pub(super) submitted_to: QueueName,
    pub(super) id_chosen: bool,
    pub(super) body: Body,
    pub(super) submitted: Fields,
    pub(super) overrides: Overrides,
    /// A holder may have given it to another queue.
    pub(super) moved: bool,

    pub(super) fields: Payload,
    /// As the latest snapshot showed it.
    pub(super) base: Option<Box<Base>>,
    /// In order of `deliveries`, the latest few.
    pub(super) deliveries: Vec<Delivery>,
    /// Receives answered since the base.
    pub(super) received: u32,
    /// Changes that certainly happened since the base: each adds one to the revision.
    pub(super) changes: u32,
    /// The latest few, the last one last: the one whose repetition gets the same answer.
    pub(super) settles: Vec<LastSettle>,
    pub(super) ended: Option<Ended>,
    pub(super) committed: Option<Box<(Span, LeaseToken, Outcome)>>,
    pub(super) redriven: Option<Span>,
    pub(super) cancelled: Option<Span>,
    /// After this many deliveries, not given out before then.
    pub(super) not_before: (u32, Timestamp),
    /// Not terminal then.
    pub(super) alive_at: Timestamp,
    /// Whether a delete that overlapped its submit may have removed it.
    pub(super) maybe_deleted: bool,
}

#[derive(Debug)]
pub(super) struct Base {
    pub(super) head: Head,
    pub(super) tick: Tick,
}

#[derive(Debug, Clone)]
pub(super) struct Delivery {
    /// The value of `deliveries` with it.
    pub(super) number: u32,
    pub(super) token: LeaseToken,
    /// `None`: known from a snapshot only.
    pub(super) received: Option<Span>,
    pub(super) retries: u32,
    pub(super) expires_at: Option<Timestamp>,
    pub(super) deadline_least: Timestamp,
    pub(super) deadline_most: Timestamp,
    pub(super) extended: Span,
    pub(super) visibility: Millis,
    pub(super) settled: Option<(Span, SettleVerb)>,
    /// Cancelled under its holder, for certain.
    pub(super) dead: Option<Span>,
}

#[derive(Debug)]
pub(super) struct LastSettle {
    pub(super) token: LeaseToken,
    pub(super) left: &'static str,
    /// Of which delivery.
    pub(super) number: u32,
    pub(super) span: Span,
    /// `None`: known from a snapshot only.
    pub(super) call: Option<LeaseCall>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Ended {
    pub(super) span: Span,
    pub(super) completed: bool,
    pub(super) remove: Remove,
    /// How often it had been given out then, if known: once more means that it was redriven.
    pub(super) deliveries: Option<u32>,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Remove {
    At(Option<Timestamp>),
    /// Its TTL after this at the earliest.
    TtlAfter(Timestamp),
}

/// The payload fields: each with its value, and with other values it may have instead.
#[derive(Debug, Default)]
pub(super) struct Payload {
    now: Fields,
    /// By which delivery's holder, for each field.
    since: [Option<(u32, Span)>; 4],
    or: Vec<(Field, Option<Bytes>)>,
}

impl Payload {
    pub(super) fn new(fields: &Fields) -> Payload {
        Payload {
            now: fields.clone(),
            since: [None; 4],
            or: Vec::new(),
        }
    }

    /// An edit by the holder of the given delivery was answered.
    pub(super) fn edited(&mut self, edits: &FieldEdits, delivery: u32, span: &Span) {
        for field in Field::ALL {
            let Some(value) = edits.get(field) else {
                continue;
            };
            match self.since[field as usize] {
                Some((number, _)) if number > delivery => continue,
                // Two edits that overlapped: either may have been the last.
                Some((number, then)) if number == delivery && !then.before(span) => {
                    self.or.push((field, self.now.get(field).cloned()));
                }
                _ => self.or.retain(|(other, _)| *other != field),
            }
            self.now.set(field, value.clone());
            self.since[field as usize] = Some((delivery, *span));
        }
    }

    /// The first field that has none of the values it may have.
    fn stranger(&self, seen: &Fields, wanted: FieldSet, open: &[Open]) -> Option<Field> {
        Field::ALL
            .into_iter()
            .filter(|&field| wanted.contains(field))
            .find(|&field| {
                let value = seen.get(field);
                let given = |edits: &FieldEdits| edits.get(field).is_some_and(|edit| edit.as_ref() == value);
                self.now.get(field) != value
                    && !self
                        .or
                        .iter()
                        .any(|(other, or)| *other == field && or.as_ref() == value)
                    && !open.iter().any(|open| match open.operation() {
                        Operation::Lease { call, .. } => given(&call.adjust.edits),
                        _ => false,
                    })
            })
    }

    fn observed(&mut self, seen: &Fields) {
        self.now = seen.clone();
        self.or.clear();
    }
}

enum Incarnation {
    Same,
    Earlier,
    Later,
}

/// Whether two settles are the same call: the jitter seed is not part of what was asked.
pub(super) fn same_settle(a: &LeaseCall, b: &LeaseCall) -> bool {
    let same_verb = match (&a.verb, &b.verb) {
        (
            Verb::Retry { error, delay, .. },
            Verb::Retry {
                error: other,
                delay: after,
                ..
            },
        ) => error == other && delay == after,
        (a, b) => a == b,
    };
    a.token == b.token && a.adjust == b.adjust && same_verb
}

pub(super) fn settle_verb(verb: &Verb) -> Option<SettleVerb> {
    match verb {
        Verb::Heartbeat { .. } | Verb::Edit => None,
        Verb::Commit(_) => Some(SettleVerb::Commit),
        Verb::Fail { .. } => Some(SettleVerb::Fail),
        Verb::Retry { .. } => Some(SettleVerb::Retry),
        Verb::Release { .. } => Some(SettleVerb::Release),
        Verb::Defer { .. } => Some(SettleVerb::Defer),
    }
}

pub(super) fn lease_call(open: &Open) -> Option<&LeaseCall> {
    match open.operation() {
        Operation::Lease { call, .. } => Some(call),
        _ => None,
    }
}

fn same_body(a: &Body, b: &Body) -> bool {
    // The claim is the store's own note on the key.
    a.idempotency_key == b.idempotency_key
        && a.tags == b.tags
        && a.fairness_key == b.fairness_key
        && a.group == b.group
        && a.parent == b.parent
        && a.source == b.source
        && a.inputs == b.inputs
        && a.params == b.params
        && a.fee == b.fee
        && a.size_bytes == b.size_bytes
        && a.tier == b.tier
}

impl Record {
    pub(super) fn new(id: ItemId, queue: &QueueName, submission: &Submission, born: Span) -> Record {
        Record {
            id,
            created_at: None,
            origin: born.key,
            acknowledged: false,
            born,
            queue: queue.clone(),
            submitted_to: queue.clone(),
            id_chosen: submission.id.is_some(),
            body: submission.body.clone(),
            submitted: submission.fields.clone(),
            overrides: submission.overrides.clone(),
            moved: false,
            fields: Payload::new(&submission.fields),
            base: None,
            deliveries: Vec::new(),
            received: 0,
            changes: 0,
            settles: Vec::new(),
            ended: None,
            committed: None,
            redriven: None,
            cancelled: None,
            not_before: (
                0,
                match submission.ready {
                    towline_domain::command::When::After(delay) => born.from.after(delay),
                    towline_domain::command::When::At(time) => time,
                },
            ),
            alive_at: born.from,
            maybe_deleted: false,
        }
    }

    /// Submitters may choose an id that was used before: whether this is still the same item.
    fn incarnation(&self, item: &Item) -> Incarnation {
        let at = item.head.created_at;
        let (first, last) = match self.created_at {
            Some(known) => (known, known),
            None => (self.born.from, self.born.to),
        };
        if !self.id_chosen || (first <= at && at <= last && same_body(&self.body, &item.body)) {
            Incarnation::Same
        } else if at < first {
            Incarnation::Earlier
        } else {
            Incarnation::Later
        }
    }

    /// Operators name an item by its id: what they were told of the earlier one may be about this one.
    pub(super) fn succeed(&mut self, earlier: &Record) {
        self.cancelled = earlier.cancelled;
        self.redriven = earlier.redriven;
        self.maybe_deleted |= earlier.maybe_deleted;
    }

    pub(super) fn is_submission(&self, queue: &QueueName, body: &Body, fields: &Fields) -> bool {
        self.submitted_to == *queue && same_body(&self.body, body) && self.submitted == *fields
    }

    /// Whether the key stands for the same content, by the rule that inputs, parameters and payload are content.
    pub(super) fn same_content(&self, body: &Body, fields: &Fields) -> bool {
        self.body.inputs == body.inputs && self.body.params == body.params && self.submitted == *fields
    }

    pub(super) fn delivery(&self, token: LeaseToken) -> Option<usize> {
        self.deliveries
            .iter()
            .position(|delivery| delivery.token == token)
    }

    pub(super) fn keep(&mut self, delivery: Delivery) -> usize {
        let place = self
            .deliveries
            .partition_point(|other| other.number < delivery.number);
        self.deliveries.insert(place, delivery);
        if self.deliveries.len() > DELIVERIES_KEPT {
            self.deliveries.remove(0);
            return place.saturating_sub(1);
        }
        place
    }

    pub(super) fn settle(&mut self, settle: LastSettle) {
        let place = self
            .settles
            .partition_point(|other| other.number <= settle.number);
        self.settles.insert(place, settle);
        if self.settles.len() > DELIVERIES_KEPT {
            self.settles.remove(0);
        }
    }

    /// A certain change, unless the base may show it already.
    pub(super) fn changed(&mut self, span: &Span) {
        if self.base.as_ref().is_none_or(|base| base.tick < span.invoked) {
            self.changes += 1;
        }
    }

    /// Whether a redrive may have come after `since`.
    pub(super) fn redrive(&self, since: Tick, open: &[Open]) -> Cause {
        let redrive = |open: &&Open| matches!(open.operation(), Operation::Redrive { .. });
        Cause::when(self.redriven.is_some_and(|span| span.answered > since))
            .or(|| Cause::among(open.iter().filter(redrive)))
    }

    /// It ended in this call at the latest; `from` at the earliest.
    pub(super) fn end(&mut self, completed: bool, from: Timestamp, deliveries: Option<u32>, span: &Span) {
        // A repeated cancel or settle ends nothing: the first one counts.
        if self.ended.is_none_or(|ended| completed && !ended.completed) {
            self.ended = Some(Ended {
                span: *span,
                completed,
                remove: Remove::TtlAfter(from),
                deliveries,
            });
        }
    }

    pub(super) fn alive(&mut self, at: Timestamp) {
        self.alive_at = self.alive_at.max(at);
    }
}

impl Checker {
    pub(super) fn open_on(&self, id: ItemId) -> &[Open] {
        self.open.get(&id).map_or(&[], Vec::as_slice)
    }

    /// What the policies of the queues it may have been in allow.
    pub(super) fn bounds(&self, record: &Record) -> Bounds {
        let mut bounds = self
            .queues
            .get(&record.queue)
            .map(|queue| queue.bounds)
            .unwrap_or_default();
        if self.wanders(record) {
            self.queues.values().for_each(|queue| bounds.join(&queue.bounds));
        }
        if let Some(max) = record.overrides.max_retries {
            (bounds.max_retries_least, bounds.max_retries_most) = (max, max);
        }
        // Another queue's policy may have allowed it more, before it came here.
        let had = record.base.as_ref().map_or(0, |base| base.head.retries);
        bounds.max_retries_most = bounds.max_retries_most.max(had);
        bounds.completed_ttl = record.overrides.completed_ttl.or(bounds.completed_ttl);
        bounds.failed_ttl = record.overrides.failed_ttl.or(bounds.failed_ttl);
        bounds.expire_after = record.overrides.expire_after.or(bounds.expire_after);
        bounds.give_up_after = record.overrides.give_up_after.or(bounds.give_up_after);
        bounds
    }

    /// Whether the item may be in another queue than where it was last seen.
    fn wanders(&self, record: &Record) -> bool {
        let open = self.open_on(record.id);
        let letter = record
            .base
            .as_ref()
            .is_some_and(|base| base.head.extras.as_ref().is_some_and(|e| e.origin.is_some()));
        record.moved
            || self
                .queues
                .get(&record.queue)
                .is_some_and(|queue| queue.bounds.dead_letters)
            || letter && record.redrive(0, open) != Cause::None
            || open
                .iter()
                .filter_map(lease_call)
                .any(|call| call.adjust.queue.is_some())
    }

    /// Receives in flight or lost that may have given the item out.
    pub(super) fn possible_receives<'a>(
        &'a self,
        record: &Record,
    ) -> impl Iterator<Item = &'a Open> + use<'a> {
        let (own, all) = (record.queue.clone(), self.wanders(record));
        let one = self.queues.get(&own).filter(|_| !all);
        let every = self.queues.values().filter(move |_| all);
        one.into_iter().chain(every).flat_map(|queue| &queue.receives)
    }

    /// Whether something that is known, or may have happened, explains that the item is not there.
    pub(super) fn absence(&self, id: ItemId, record: &Record, now: Timestamp) -> Cause {
        let delete = |open: &&Open| matches!(open.operation(), Operation::Delete { .. });
        let since = record.born.invoked;
        Cause::when(record.maybe_deleted || self.removable_at(id, record).is_some_and(|at| at <= now))
            .or(|| Cause::among(self.open_on(id).iter().filter(delete)))
            .or(|| {
                if self.wanders(record) {
                    let queues = self.queues.values();
                    return queues.fold(Cause::None, |cause, queue| cause.or(|| queue.deletion(since)));
                }
                self.queues
                    .get(&record.queue)
                    .map_or(Cause::None, |queue| queue.deletion(since))
            })
    }

    /// The earliest time at which its TTL may remove it, by what is known of its end.
    pub(super) fn removable_at(&self, id: ItemId, record: &Record) -> Option<Timestamp> {
        let open = self.open_on(id);
        let bounds = self.bounds(record);
        let after = |from: Timestamp, ttl: Option<Millis>| ttl.map(|ttl| from.after(ttl));
        let by_end = record
            .ended
            .as_ref()
            .and_then(|ended| match (ended.remove, ended.completed) {
                (Remove::At(at), _) => at,
                (Remove::TtlAfter(from), true) => after(from, bounds.completed_ttl),
                (Remove::TtlAfter(from), false) => after(from, bounds.failed_ttl),
            });
        if record
            .ended
            .is_some_and(|ended| record.redrive(ended.span.invoked, open) == Cause::None)
        {
            return by_end;
        }
        let by_calls = open.iter().filter_map(|open| match open.operation() {
            Operation::Cancel { .. } => after(open.at, bounds.failed_ttl),
            Operation::Lease { call, .. } => match settle_verb(&call.verb)? {
                SettleVerb::Commit => after(open.at, bounds.completed_ttl),
                SettleVerb::Defer => None,
                _ => after(open.at, bounds.failed_ttl),
            },
            _ => None,
        });
        let by_time = self
            .fails_by_time_at(record, &bounds, open)
            .and_then(|at| after(at, bounds.failed_ttl));
        by_calls.chain(by_time).chain(by_end).min()
    }

    /// The earliest time at which expiry or vanishing holders may fail it.
    fn fails_by_time_at(&self, record: &Record, bounds: &Bounds, open: &[Open]) -> Option<Timestamp> {
        let latest = record.deliveries.last();
        let shown = record.base.as_ref().map(|base| &base.head);
        let born = record.born.from;
        let expiry = match latest
            .map(|delivery| delivery.expires_at)
            .or(shown.map(|head| head.expires_at))
        {
            Some(known) if record.redrive(0, open) == Cause::None => known,
            known => [known.flatten(), bounds.expire_after.map(|span| born.after(span))]
                .into_iter()
                .flatten()
                .min(),
        };
        let give_up = bounds.give_up_after.map(|span| born.after(span));
        let mut receives = self.possible_receives(record).peekable();
        let retries = latest.map_or(shown.map_or(0, |head| head.retries), |delivery| delivery.retries);
        // Each delivery that nobody saw may have lapsed.
        let unseen = u32::try_from(self.possible_receives(record).count()).unwrap_or(u32::MAX);
        let may_exhaust =
            bounds.poison || retries.saturating_add(unseen).saturating_add(1) > bounds.max_retries_least;
        let lapse = latest
            .filter(|d| d.settled.is_none() && d.dead.is_none())
            .map(|d| d.deadline_least);
        let unseen_lapse = receives.peek().is_some().then(|| {
            let first = receives.map(|open| open.at).min().unwrap_or_default();
            first.max(record.born.from).after(limits::VISIBILITY_MIN)
        });
        let lapse = [lapse, unseen_lapse]
            .into_iter()
            .flatten()
            .min()
            .filter(|_| may_exhaust);
        [expiry, give_up, lapse].into_iter().flatten().min()
    }

    /// The item as somebody saw it: from somewhere, and with what was submitted.
    ///
    /// `false`: it is not to be looked at any further.
    pub(super) fn recognise(
        &mut self,
        item: &Item,
        queue: &QueueName,
        wanted: FieldSet,
        span: &Span,
    ) -> bool {
        let id = item.head.id;
        let mut earlier = None;
        if let Some(record) = self.items.get(&id) {
            match record.incarnation(item) {
                Incarnation::Same => {}
                // An answer that was long on its way tells of an item that had this id before.
                Incarnation::Earlier => return false,
                Incarnation::Later => {
                    let message = format!(
                        "item {id}, submitted at {}, is another item at {}",
                        record.origin, span.key
                    );
                    let cause = self.absence(id, record, span.to);
                    self.unless(cause, 1, message);
                    earlier = self.forget(id);
                    self.gone.remove(&id);
                }
            }
        }
        if !self.items.contains_key(&id) {
            let removed = self.gone.get(&id).copied();
            if removed.is_some_and(|removed| removed >= span.invoked)
                || !self.claim(item, queue, wanted, span)
            {
                match removed {
                    Some(removed) if removed >= span.invoked => {}
                    Some(_) => self.report(2, format!("item {id} was removed and is back at {}", span.key)),
                    None => self.never_submitted(item, queue, wanted, span),
                }
                return false;
            }
        }
        if let Some(record) = self.items.get_mut(&id) {
            record.created_at = Some(item.head.created_at);
            if let Some(earlier) = earlier {
                record.succeed(&earlier);
            }
        }
        let Some(record) = self.items.get(&id) else {
            return false;
        };
        if !same_body(&record.body, &item.body) {
            let message = format!(
                "item {id} at {}: it was submitted with {:?} and has {:?}",
                span.key, record.body, item.body
            );
            self.report(2, message);
            return true;
        }
        // An answer that was long on its way tells of an older payload.
        let stale = record
            .deliveries
            .last()
            .is_some_and(|latest| latest.number > item.head.deliveries);
        if let Some(field) = record
            .fields
            .stranger(&item.fields, wanted, self.open_on(id))
            .filter(|_| !stale)
        {
            let message = format!(
                "item {id} at {}: its {} is {:?}, which nobody put there",
                span.key,
                field.name(),
                item.fields.get(field)
            );
            self.report(2, message);
        }
        true
    }

    fn never_submitted(&mut self, item: &Item, queue: &QueueName, wanted: FieldSet, span: &Span) {
        let id = item.head.id;
        let same = |record: &&Record| {
            wanted == FieldSet::ALL
                && record.submitted_to == *queue
                && same_body(&record.body, &item.body)
                && record.submitted == item.fields
        };
        match self.items.values().find(same).map(|record| record.id) {
            Some(first) => {
                let message = format!(
                    "item {id}, seen at {}, is a submit that appeared before as {first}",
                    span.key
                );
                self.report(1, message);
            }
            None => self.report(
                2,
                format!(
                    "item {id} of queue {queue}, seen at {}, was never submitted",
                    span.key
                ),
            ),
        }
    }

    /// Recognises an item that nobody was told of as one of the submits in flight or lost.
    fn claim(&mut self, item: &Item, queue: &QueueName, wanted: FieldSet, span: &Span) -> bool {
        let fits = |open: &Open| match open.operation() {
            Operation::Submit {
                queue: to,
                submission,
            } => {
                (to == queue || item.head.revision > 1)
                    && submission.id.is_none_or(|id| id == item.head.id)
                    && same_body(&submission.body, &item.body)
                    && open.at <= item.head.created_at
                    && Payload::new(&submission.fields)
                        .stranger(&item.fields, wanted, self.open_on(item.head.id))
                        .is_none()
            }
            _ => false,
        };
        let identity = (queue.clone(), item.fields.blob.clone());
        let found = self
            .submits
            .get(&identity)
            .and_then(|list| list.iter().find(|open| fits(open)))
            // Its payload was not asked for, or it was moved or edited already: look at them all.
            .or_else(|| self.submits.values().flatten().find(|open| fits(open)))
            .cloned();
        let Some(open) = found else {
            return false;
        };
        self.resolve(open.operation(), open.key);
        self.claimed(item.head.id, &open, span);
        true
    }

    /// The item is this submit, which has not been answered.
    pub(super) fn claimed(&mut self, id: ItemId, open: &Open, span: &Span) {
        let Operation::Submit { queue, submission } = open.operation() else {
            return;
        };
        // If there are several of this content, another one may have made it.
        let identity = (queue.clone(), submission.fields.blob.clone());
        let twins = || self.submits.get(&identity).into_iter().flatten().chain([open]);
        let born = Span {
            key: open.key,
            invoked: twins().map(|open| open.invoked).fold(open.invoked, Tick::min),
            from: twins().map(|open| open.at).fold(open.at, Timestamp::min),
            ..*span
        };
        self.born(Record::new(id, queue, submission, born));
    }

    pub(super) fn born(&mut self, record: Record) {
        let id = record.id;
        if let Some(key) = &record.body.idempotency_key {
            let owner = self
                .keys
                .entry((record.submitted_to.clone(), key.clone()))
                .or_insert(id);
            // The answer to the earlier of two submits may come last.
            if self
                .items
                .get(owner)
                .is_none_or(|other| other.born.invoked <= record.born.invoked)
            {
                *owner = id;
            }
        }
        self.gone.remove(&id);
        self.items.insert(id, record);
    }

    pub(super) fn forget(&mut self, id: ItemId) -> Option<Record> {
        self.gone.insert(id, self.tick);
        let record = self.items.remove(&id)?;
        if let Some(key) = &record.body.idempotency_key {
            let key = (record.submitted_to.clone(), key.clone());
            if self.keys.get(&key) == Some(&id) {
                self.keys.remove(&key);
            }
        }
        Some(record)
    }

    /// The item is as a snapshot shows it: all that came before is settled.
    pub(super) fn rebase(&mut self, stored: &crate::StoredItem, span: &Span) {
        let (head, fields) = (&stored.item.head, &stored.item.fields);
        let quiet = self.calls.is_empty();
        let Some(record) = self.items.get_mut(&head.id) else {
            return;
        };
        record.queue = stored.queue.clone();
        record.fields.observed(fields);
        if quiet {
            record.moved = false;
            record.redriven = None;
            record.cancelled = None;
        }
        record.received = 0;
        record.changes = 0;
        let token = head.lease().map(|lease| lease.token);
        if quiet {
            record.deliveries.retain(|delivery| Some(delivery.token) == token);
        }
        if let Some(lease) = head.lease() {
            let at = match record.delivery(lease.token) {
                Some(at) => at,
                None => record.keep(Delivery {
                    number: head.deliveries,
                    token: lease.token,
                    received: None,
                    retries: head.retries,
                    expires_at: head.expires_at,
                    deadline_least: lease.deadline,
                    deadline_most: lease.deadline,
                    extended: *span,
                    visibility: lease.visibility,
                    settled: None,
                    dead: None,
                }),
            };
            let delivery = &mut record.deliveries[at];
            (delivery.deadline_least, delivery.deadline_most) = (lease.deadline, lease.deadline);
            (delivery.extended, delivery.expires_at) = (*span, head.expires_at);
            delivery.visibility = delivery.visibility.max(lease.visibility);
        }
        if let Some(settle) = &head.last_settle
            && record
                .settles
                .last()
                .is_none_or(|last| last.token != settle.token)
        {
            record.settle(LastSettle {
                token: settle.token,
                left: match settle.left {
                    towline_domain::item::Settled::Pending => "pending",
                    towline_domain::item::Settled::Completed => "completed",
                    towline_domain::item::Settled::Failed => "failed",
                },
                number: head.deliveries,
                span: *span,
                call: None,
            });
        }
        record.ended = match head.state {
            State::Completed { remove_at, .. } | State::Failed { remove_at, .. } => Some(Ended {
                span: *span,
                completed: matches!(head.state, State::Completed { .. }),
                remove: Remove::At(remove_at),
                deliveries: Some(head.deliveries),
            }),
            _ => None,
        };
        // A delivery counts what came before it: what a snapshot says of its time is exact.
        record.not_before = (
            head.deliveries,
            if head.state == State::Pending {
                head.ready_at
            } else {
                Timestamp(0)
            },
        );
        if let Some(base) = &mut record.base {
            base.head.clone_from(head);
            base.tick = span.answered;
        } else {
            record.base = Some(Box::new(Base {
                head: head.clone(),
                tick: span.answered,
            }));
        }
    }
}
