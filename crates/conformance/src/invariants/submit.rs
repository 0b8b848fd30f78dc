//! Checks replies to submits: invariants 1, 2, 8 and 10.

use super::Checker;
use super::history::{Cause, Fate, Open, Span};
use super::item::Record;
use towline_domain::change::Answer;
use towline_domain::{ItemId, QueueName, Refusal, Submission, Unique};
use towline_store::{Answered, Operation, Reply};

impl Checker {
    /// `claimed`: an item was recognised as this submit before the reply came.
    pub(super) fn submit_answered(
        &mut self,
        queue: &QueueName,
        submission: &Submission,
        answer: &Answered,
        span: &Span,
        claimed: bool,
    ) {
        match answer {
            Ok(Reply::Answer(Answer::Submitted { id, created: true })) => {
                self.accepted_into(queue, span);
                self.created(*id, queue, submission, span, claimed);
            }
            Ok(Reply::Answer(Answer::Submitted { id, created: false })) => {
                if claimed {
                    self.unclaim(span);
                }
                self.repeated(*id, queue, submission, span);
            }
            Err(refusal) => {
                if claimed {
                    self.unclaim(span);
                }
                if let Some(Refusal::KeyConflict { key, id }) = refusal.refusal()
                    && let Some(record) = self.items.get(id)
                    && record.born.before(span)
                    && record.same_content(&submission.body, &submission.fields)
                    && self.absence(*id, record, span.to) == Cause::None
                {
                    let message = format!(
                        "{}: key {key:?} of item {id} was refused although the content is the same",
                        span.key
                    );
                    self.report(10, message);
                }
            }
            Ok(reply) => self.report(2, format!("{} submitted and got {reply:?}", span.key)),
        }
    }

    fn created(
        &mut self,
        id: ItemId,
        queue: &QueueName,
        submission: &Submission,
        span: &Span,
        claimed: bool,
    ) {
        if submission.id.is_some_and(|chosen| chosen != id) {
            self.report(2, format!("{} chose id {:?} and got {id}", span.key, submission.id));
        }
        if let Some(key) = &submission.body.idempotency_key
            && let Some(&owner) = self.keys.get(&(queue.clone(), key.clone()))
            && owner != id
            && let Some(record) = self.items.get(&owner)
            && record.born.before(span)
        {
            let cause = self.key_freed(record, span);
            let message = format!(
                "{}: key {key:?} of queue {queue} created item {id}, but the key belongs to item {owner}",
                span.key
            );
            self.unless(cause, 10, message);
        }
        let mut earlier = None;
        if let Some(record) = self.items.get_mut(&id) {
            if record.origin == span.key {
                record.acknowledged = true;
                record.claim = None;
                record.born.answered = record.born.answered.min(span.answered);
                return;
            }
            let same_time = record.created_at.is_none_or(|at| span.from <= at && at <= span.to);
            let same = record.is_submission(queue, &submission.body, &submission.fields);
            if !record.acknowledged && same && same_time {
                // Two submits have the same content. The item is from this one, and the other one is still open.
                record.origin = span.key;
                record.acknowledged = true;
                let other = record.claim.take();
                self.unclaimed(other);
                return;
            }
            let first = record.origin;
            let record = &self.items[&id];
            let cause = self.absence(id, record, span.to);
            self.unless(cause, 1, format!("{} created item {id}, which {first} had created", span.key));
            earlier = self.forget(id);
        } else if (claimed || submission.id.is_none())
            && self.gone.get(&id).is_some_and(|&removed| removed >= span.invoked)
        {
            // The item was seen and removed before the reply to its submit.
            return;
        } else if claimed {
            self.unclaim(span);
        }
        let mut record = Record::new(id, queue, submission, *span);
        record.acknowledged = true;
        if let Some(earlier) = earlier {
            record.succeed(&earlier);
        }
        self.born(record);
    }

    fn repeated(&mut self, id: ItemId, queue: &QueueName, submission: &Submission, span: &Span) {
        let key = submission.body.idempotency_key.clone().unwrap_or_default();
        if let Some(&owner) = self.keys.get(&(queue.clone(), key.clone()))
            && owner != id
            && let Some(record) = self.items.get(&owner)
            && record.born.before(span)
        {
            let cause = self.key_freed(record, span);
            let message = format!(
                "{}: the reply says that key {key:?} belongs to item {id}, but it belongs to item {owner}",
                span.key
            );
            self.unless(cause, 10, message);
        }
        let Some(record) = self.items.get(&id) else {
            if self.gone.get(&id).is_some_and(|&removed| removed >= span.invoked) {
                return;
            }
            let content = |open: &Open| match open.operation() {
                Operation::Submit { queue: to, submission: other } => {
                    to == queue
                        && other.body.idempotency_key == submission.body.idempotency_key
                        && other.id.is_none_or(|chosen| chosen == id)
                }
                _ => false,
            };
            let identity = (queue.clone(), submission.fields.blob.clone());
            let found =
                self.submits.get(&identity).and_then(|list| list.iter().find(|open| content(open))).cloned();
            match found {
                Some(open) => {
                    self.resolve(open.operation(), open.key);
                    self.claimed(id, &open, span);
                }
                None => {
                    let message = format!(
                        "{}: the reply says that key {key:?} belongs to item {id}, which was never submitted",
                        span.key
                    );
                    self.report(2, message);
                }
            }
            return;
        };
        let cause = if record.id_chosen { self.rebirth(id) } else { Cause::None };
        if submission.body.idempotency_key.is_none()
            || record.body.idempotency_key != submission.body.idempotency_key
            || record.submitted_to != *queue
        {
            let own = &record.body.idempotency_key;
            let message = format!(
                "{}: the reply says that key {key:?} belongs to item {id}, whose key is {own:?}",
                span.key
            );
            self.unless(cause, 10, message);
        } else if !record.same_content(&submission.body, &submission.fields) {
            let message =
                format!("{}: key {key:?} of item {id} was accepted again with different content", span.key);
            self.unless(cause, 10, message);
        }
    }

    /// Whether another submit with this chosen id may have created the item again.
    pub(super) fn rebirth(&self, id: ItemId) -> Cause {
        Cause::among(self.submits.values().flatten().filter(|open| match open.operation() {
            Operation::Submit { submission, .. } => submission.id == Some(id),
            _ => false,
        }))
    }

    /// Whether the key may be free again: its item or its queue may have been removed, or its item may have ended.
    fn key_freed(&self, record: &Record, span: &Span) -> Cause {
        let queue = self.queues.get(&record.submitted_to);
        self.absence(record.id, record, span.to)
            .or(|| queue.map_or(Cause::None, |queue| queue.deletion(record.born.invoked)))
            .or(|| self.freed_by_its_end(record, span))
    }

    fn freed_by_its_end(&self, record: &Record, span: &Span) -> Cause {
        let bounds = self.bounds(record);
        let frees = match record.overrides.unique {
            Some(unique) => unique == Unique::WhileUnfinished,
            None => bounds.frees_keys,
        };
        let open = self.open_on(record.id);
        let ended = record.ended.is_some() || record.redriven.is_some() || record.cancelled.is_some();
        let by_time = || self.fails_by_time_at(record, &bounds, open).is_some_and(|at| at <= span.to);
        match frees {
            false => Cause::None,
            true => Cause::when(ended || by_time()).or(|| Cause::among(open.iter())),
        }
    }

    /// An item was recognised as this submit, but the submit created none. The item must come from another submit.
    fn unclaim(&mut self, span: &Span) {
        let mine = self.items.iter().find(|(_, record)| record.origin == span.key && !record.acknowledged);
        let Some((&id, record)) = mine else {
            return;
        };
        let other = self.submits.values().flatten().find(|open| match open.operation() {
            Operation::Submit { queue, submission } => {
                record.is_submission(queue, &submission.body, &submission.fields)
                    && submission.id.is_none_or(|chosen| chosen == id)
            }
            _ => false,
        });
        let Some(other) = other.cloned() else {
            let message = format!("item {id} has the content of {}, which did not create it", span.key);
            return self.report(2, message);
        };
        self.resolve(other.operation(), other.key);
        if let Some(record) = self.items.get_mut(&id) {
            record.origin = other.key;
            record.claim = Some(other);
        }
    }

    /// The item that was recognised as this submit comes from another one.
    fn unclaimed(&mut self, open: Option<Open>) {
        let Some(mut open) = open else {
            return;
        };
        if !self.calls.contains_key(&open.key.call()) {
            open.fate = Fate::Lost(self.restarts);
        }
        if let Operation::Submit { queue, submission } = open.operation() {
            let identity = (queue.clone(), submission.fields.blob.clone());
            self.submits.entry(identity).or_default().push(open);
        }
    }
}
