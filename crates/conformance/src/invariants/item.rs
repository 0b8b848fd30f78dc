//! What is known of each item: what was submitted, its latest deliveries, whether it ended.

use super::history::{Cause, Key, Open, Span, Tick};
use super::payload::Payload;
use towline_domain::command::Verb;
use towline_domain::{
    Body, Fields, Head, Item, ItemId, LeaseCall, LeaseToken, Millis, Outcome, Overrides, QueueName,
    SettleVerb, Submission, Timestamp,
};
use towline_store::Operation;

/// Deliveries remembered of each item; older ones are over.
const DELIVERIES_KEPT: usize = 4;

#[derive(Debug)]
pub(super) struct Record {
    pub(super) id: ItemId,
    /// The submit it came from, and whether that was answered.
    pub(super) origin: Key,
    pub(super) acknowledged: bool,
    /// That submit, while it is not answered: if another made the item, it is still to be accounted for.
    pub(super) claim: Option<Open>,
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
    /// Settles that may have been carried out, where snapshots do not tell.
    pub(super) unseen: Vec<LeaseCall>,
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

pub(super) enum Incarnation {
    Same,
    Earlier,
    Later,
}

/// Whether two settles are the same call: the jitter seed is not part of what was asked.
pub(super) fn same_settle(a: &LeaseCall, b: &LeaseCall) -> bool {
    let same_verb = match (&a.verb, &b.verb) {
        (Verb::Retry { error, delay, .. }, Verb::Retry { error: other, delay: after, .. }) => {
            error == other && delay == after
        }
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

pub(super) fn same_body(a: &Body, b: &Body) -> bool {
    // The claim is the store's own note on the key.
    a.idempotency_key == b.idempotency_key
        && a.replace_key == b.replace_key
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
            claim: None,
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
            unseen: Vec::new(),
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
    pub(super) fn incarnation(&self, item: &Item) -> Incarnation {
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
        self.deliveries.iter().position(|delivery| delivery.token == token)
    }

    pub(super) fn keep(&mut self, delivery: Delivery) -> usize {
        let place = self.deliveries.partition_point(|other| other.number < delivery.number);
        self.deliveries.insert(place, delivery);
        if self.deliveries.len() > DELIVERIES_KEPT {
            self.deliveries.remove(0);
            return place.saturating_sub(1);
        }
        place
    }

    pub(super) fn settle(&mut self, settle: LastSettle) {
        let place = self.settles.partition_point(|other| other.number <= settle.number);
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
            self.ended = Some(Ended { span: *span, completed, remove: Remove::TtlAfter(from), deliveries });
        }
    }

    /// It was redriven, or given out, in this call: what ended it before is past.
    pub(super) fn reopened(&mut self, delivery: Option<u32>, span: &Span) {
        let past = |ended: &Ended| {
            let again = delivery.zip(ended.deliveries).is_some_and(|(now, then)| now > then);
            ended.span.before(span) || again
        };
        self.ended = self.ended.filter(|ended| !past(ended));
        // Of two that overlap, the cancel may have been the later one.
        if let Some(cancel) = self.cancelled.filter(|cancel| !cancel.before(span)) {
            self.end(false, cancel.from, None, &cancel);
        }
    }

    pub(super) fn alive(&mut self, at: Timestamp) {
        self.alive_at = self.alive_at.max(at);
    }
}
