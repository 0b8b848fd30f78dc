//! What the checker knows about each item: its submit, its latest deliveries, and whether it is terminal.

use super::history::{Cause, Key, Open, Span, Tick};
use super::payload::Payload;
use towline_domain::command::Verb;
use towline_domain::{
    Body, Fields, Head, Item, ItemId, ItemState, Lease, LeaseCall, LeaseToken, Millis, Outcome, Overrides,
    QueueName, SettleVerb, Submission, Timestamp,
};
use towline_store::Operation;

/// The number of latest deliveries that the checker keeps for each item.
const DELIVERIES_KEPT: usize = 4;

#[derive(Debug)]
pub(super) struct Record {
    pub(super) id: ItemId,
    /// The submit of the item, and whether its reply came.
    pub(super) origin: Key,
    pub(super) acknowledged: bool,
    /// That submit while its reply is unknown. If another submit created the item, this one is still open.
    pub(super) claim: Option<Open>,
    pub(super) born: Span,
    /// As shown by a reply or snapshot.
    pub(super) created_at: Option<Timestamp>,
    /// The queue of the item when it was last seen.
    pub(super) queue: QueueName,
    pub(super) submitted_to: QueueName,
    pub(super) id_chosen: bool,
    pub(super) body: Body,
    pub(super) submitted: Fields,
    pub(super) overrides: Overrides,
    /// A lease holder may have moved it to another queue.
    pub(super) moved: bool,

    pub(super) fields: Payload,
    /// The state in the latest snapshot.
    pub(super) base: Option<Box<Base>>,
    /// The latest deliveries, in order.
    pub(super) deliveries: Vec<Delivery>,
    /// Answered receives since the base.
    pub(super) received: u32,
    /// The certain changes since the base. Each adds one to the revision.
    pub(super) changes: u32,
    /// The latest settles, in order. A repeat of the last one gets the same reply.
    pub(super) settles: Vec<LastSettle>,
    /// Settles that may have been carried out and that snapshots do not show.
    pub(super) unseen: Vec<LeaseCall>,
    pub(super) ended: Option<Ended>,
    pub(super) committed: Option<Box<(Span, LeaseToken, Outcome)>>,
    pub(super) redriven: Option<Span>,
    pub(super) cancelled: Option<Span>,
    /// After this number of deliveries, the item is not ready before this time.
    pub(super) not_before: (u32, Timestamp),
    /// The latest time at which the item was certainly not terminal.
    pub(super) alive_at: Timestamp,
    /// Whether a delete that overlapped the submit may have removed the item.
    pub(super) maybe_deleted: bool,
}

#[derive(Debug)]
pub(super) struct Base {
    pub(super) head: Head,
    pub(super) tick: Tick,
}

#[derive(Debug, Clone)]
pub(super) struct Delivery {
    /// The value of `deliveries` after this delivery.
    pub(super) number: u32,
    pub(super) token: LeaseToken,
    /// `None` if only a snapshot showed it.
    pub(super) received: Option<Span>,
    pub(super) retries: u32,
    pub(super) ready_at: Timestamp,
    pub(super) expires_at: Option<Timestamp>,
    pub(super) deadline_least: Timestamp,
    pub(super) deadline_most: Timestamp,
    pub(super) extended: Span,
    pub(super) visibility: Millis,
    pub(super) settled: Option<(Span, SettleVerb)>,
    /// A cancel that certainly came during this delivery.
    pub(super) dead: Option<Span>,
}

#[derive(Debug)]
pub(super) struct LastSettle {
    pub(super) token: LeaseToken,
    pub(super) left: ItemState,
    /// The number of the delivery.
    pub(super) number: u32,
    pub(super) span: Span,
    /// `None` if only a snapshot showed it.
    pub(super) call: Option<LeaseCall>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Ended {
    pub(super) span: Span,
    pub(super) completed: bool,
    pub(super) remove: Remove,
    /// The number of deliveries at the end, if known. A later delivery means that the item was redriven.
    pub(super) deliveries: Option<u32>,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Remove {
    At(Option<Timestamp>),
    /// The TTL counts from this time or later.
    TtlAfter(Timestamp),
}

pub(super) enum Incarnation {
    Same,
    Earlier,
    Later,
}

/// Whether two settles are the same call. The jitter seed does not matter.
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
        Verb::Pause => Some(SettleVerb::Pause),
        Verb::Cancel { .. } => Some(SettleVerb::Cancel),
    }
}

/// Whether a call that ends an attempt without a result uses it up.
pub(super) fn counts(verb: &Verb) -> bool {
    !matches!(verb, Verb::Release { counted: false, .. } | Verb::Defer { .. } | Verb::Pause)
}

pub(super) fn lease_call(open: &Open) -> Option<&LeaseCall> {
    match open.operation() {
        Operation::Lease { call, .. } => Some(call),
        _ => None,
    }
}

pub(super) fn same_body(a: &Body, b: &Body) -> bool {
    // The store adds the claim itself.
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

impl Delivery {
    /// A delivery with this lease. `received` is `None` if only a snapshot showed it.
    pub(super) fn new(head: &Head, lease: &Lease, received: Option<Span>, span: &Span) -> Delivery {
        Delivery {
            number: head.deliveries,
            token: lease.token,
            received,
            retries: head.retries,
            ready_at: head.ready_at,
            expires_at: head.expires_at,
            deadline_least: lease.deadline,
            deadline_most: lease.deadline,
            extended: *span,
            visibility: lease.visibility,
            settled: None,
            dead: None,
        }
    }
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

    /// Whether this is still the same item. A submitter may choose an id that was used before.
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

    /// Copies facts from an earlier item with the same id: replies to operators may be about either item.
    pub(super) fn succeed(&mut self, earlier: &Record) {
        self.cancelled = earlier.cancelled;
        self.redriven = earlier.redriven;
        self.maybe_deleted |= earlier.maybe_deleted;
    }

    pub(super) fn is_submission(&self, queue: &QueueName, body: &Body, fields: &Fields) -> bool {
        self.submitted_to == *queue && same_body(&self.body, body) && self.submitted == *fields
    }

    /// Whether the content is the same. Inputs, parameters and payload are content.
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

    /// Counts a certain change, unless the base may already include it.
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

    /// The item became terminal between `from` and the end of this call.
    pub(super) fn end(&mut self, completed: bool, from: Timestamp, deliveries: Option<u32>, span: &Span) {
        // The first cancel or settle counts, not a repeat.
        if self.ended.is_none_or(|ended| completed && !ended.completed) {
            self.ended = Some(Ended { span: *span, completed, remove: Remove::TtlAfter(from), deliveries });
        }
    }

    /// The item was redriven or received in this call, so it is not terminal any more.
    pub(super) fn reopened(&mut self, delivery: Option<u32>, span: &Span) {
        let past = |ended: &Ended| {
            let again = delivery.zip(ended.deliveries).is_some_and(|(now, then)| now > then);
            ended.span.before(span) || again
        };
        self.ended = self.ended.filter(|ended| !past(ended));
        // If a cancel overlaps this call, the cancel may have come later.
        if let Some(cancel) = self.cancelled.filter(|cancel| !cancel.before(span)) {
            self.end(false, cancel.from, None, &cancel);
        }
    }

    pub(super) fn alive(&mut self, at: Timestamp) {
        self.alive_at = self.alive_at.max(at);
    }
}
