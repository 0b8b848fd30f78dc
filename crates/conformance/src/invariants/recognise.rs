//! Recognises the submit of an item: invariants 1 and 2.

use super::Checker;
use super::history::{Open, Span, Tick};
use super::item::{Incarnation, Record, same_body};
use super::payload::Payload;
use towline_domain::{FieldSet, Item, ItemId, QueueName, Timestamp};
use towline_store::Operation;

impl Checker {
    /// Checks that a submit explains the item and its content.
    ///
    /// Returns `false` if the item needs no further checks.
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
                // A late reply may show an earlier item with the same id.
                Incarnation::Earlier => return false,
                Incarnation::Later => {
                    let message =
                        format!("item {id}, submitted at {}, is another item at {}", record.origin, span.key);
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
                    Some(_) => {
                        self.report(2, format!("item {id} was removed and reappeared at {}", span.key))
                    }
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
                "item {id} at {}: submitted with {:?}, but it has {:?}",
                span.key, record.body, item.body
            );
            self.report(2, message);
            return true;
        }
        // A late reply may show an older payload.
        let stale = record.deliveries.last().is_some_and(|latest| latest.number > item.head.deliveries);
        if let Some(field) =
            record.fields.impossible_field(&item.fields, wanted, self.open_on(id)).filter(|_| !stale)
        {
            let message = format!(
                "item {id} at {}: its {} is {:?}, which no call wrote",
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
                    "item {id}, seen at {}, has the content of a submit that already became item {first}",
                    span.key
                );
                self.report(1, message);
            }
            None => self
                .report(2, format!("item {id} of queue {queue}, seen at {}, was never submitted", span.key)),
        }
    }

    /// Recognises an unknown item as one of the submits in flight or lost.
    fn claim(&mut self, item: &Item, queue: &QueueName, wanted: FieldSet, span: &Span) -> bool {
        let fits = |open: &Open| match open.operation() {
            Operation::Submit { queue: to, submission } => {
                (to == queue || item.head.revision > 1)
                    && submission.id.is_none_or(|id| id == item.head.id)
                    && same_body(&submission.body, &item.body)
                    && open.at <= item.head.created_at
                    && Payload::new(&submission.fields)
                        .impossible_field(&item.fields, wanted, self.open_on(item.head.id))
                        .is_none()
            }
            _ => false,
        };
        let identity = (queue.clone(), item.fields.blob.clone());
        let found = self
            .submits
            .get(&identity)
            .and_then(|list| list.iter().find(|open| fits(open)))
            // The reply lacks the payload, or the item was moved or edited: search all open submits.
            .or_else(|| self.submits.values().flatten().find(|open| fits(open)))
            .cloned();
        let Some(open) = found else {
            return false;
        };
        self.resolve(open.operation(), open.key);
        self.claimed(item.head.id, &open, span);
        true
    }

    /// Records that this item came from a submit without a known reply.
    pub(super) fn claimed(&mut self, id: ItemId, open: &Open, span: &Span) {
        let Operation::Submit { queue, submission } = open.operation() else {
            return;
        };
        // Another submit with the same content may have created the item.
        let identity = (queue.clone(), submission.fields.blob.clone());
        let twins = || self.submits.get(&identity).into_iter().flatten().chain([open]);
        let born = Span {
            key: open.key,
            invoked: twins().map(|open| open.invoked).fold(open.invoked, Tick::min),
            from: twins().map(|open| open.at).fold(open.at, Timestamp::min),
            ..*span
        };
        let mut record = Record::new(id, queue, submission, born);
        record.claim = Some(open.clone());
        self.born(record);
    }

    pub(super) fn born(&mut self, record: Record) {
        let id = record.id;
        if let Some(key) = &record.body.idempotency_key {
            let owner = self.keys.entry((record.submitted_to.clone(), key.clone())).or_insert(id);
            // The reply to the earlier of two submits may come last.
            if self.items.get(owner).is_none_or(|other| other.born.invoked <= record.born.invoked) {
                *owner = id;
            }
        }
        self.gone.remove(&id);
        self.items.insert(id, record);
    }

    pub(super) fn forget(&mut self, id: ItemId) -> Option<Record> {
        self.gone.insert(id, self.tick);
        let record = self.items.remove(&id)?;
        self.carried.remove(&record.origin);
        if let Some(key) = &record.body.idempotency_key {
            let key = (record.submitted_to.clone(), key.clone());
            if self.keys.get(&key) == Some(&id) {
                self.keys.remove(&key);
            }
        }
        Some(record)
    }
}
