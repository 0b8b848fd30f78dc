//! Applying decided changes to items of the batch.

use super::{Entry, KeyOwner, Overlay, ReplaceOwner, payload_bytes};
use crate::pages::snapshot::{PARTS, PayloadLocation, PayloadRef};
use crate::pages::split::UNTOUCHED;
use towline_domain::change::QueueChange;
use towline_domain::{Body, Change, CountKind, Field, FieldEdits, FieldSet, Fields};

impl Overlay {
    /// Takes the item out of the counts and the order, before it changes or is removed.
    fn withdraw(&mut self, seq: u64) -> Option<Box<Entry>> {
        let entry = self.entries.remove(&seq)?;
        if let Some(place) = self.place_of(seq, &entry)
            && let Some(ready) = self.ready.get_mut(&entry.head.queue)
        {
            ready.remove(&place);
        }
        self.count(&entry, -1);
        Some(entry)
    }

    /// Puts the item back under its present count and position.
    fn put(&mut self, seq: u64, mut entry: Box<Entry>) {
        entry.counted = entry.head.count_kind(self.now);
        entry.changed = true;
        entry.touch = self.touch;
        self.count(&entry, 1);
        if let Some(place) = self.place_of(seq, &entry) {
            self.ready.entry(entry.head.queue).or_default().insert(place);
        }
        self.entries.insert(seq, entry);
    }

    fn count(&mut self, entry: &Entry, by: i64) {
        let queue = entry.head.queue;
        self.counted.entry(queue).or_default()[entry.counted as usize] += by;
        if entry.counted == CountKind::Processing && self.limits_keys(queue) {
            *self.leases.entry((queue, entry.head.fairness_key)).or_default() += by;
        }
    }

    /// Makes a scheduled item ready, because its time has come. The item itself does not change.
    pub(super) fn promote(&mut self, seq: u64) {
        if let Some(entry) = self.withdraw(seq) {
            self.effects.promoted(entry.head.queue, entry.head.fairness_key);
            self.put(seq, entry);
        }
    }

    pub(super) fn apply(&mut self, seq: u64, change: &Change) {
        let Some(mut entry) = self.withdraw(seq) else {
            return;
        };
        self.record_events(change, None);
        self.metrics.add(change, self.now);
        if let Some(finish) = change.finish() {
            let values_max = self.tally_values_max(finish.queue);
            self.tallies.add(&finish, values_max);
        }
        match change.head() {
            None => {
                self.by_id.remove(&entry.head.id);
                if entry.stored {
                    self.removed.insert(seq, entry.kept.side);
                }
            }
            Some(head) => {
                entry.head = head.clone();
                if let Some((body, fields)) = change.submitted() {
                    entry.replace(body, fields);
                }
                if let Some(edits) = change.edits() {
                    let added = Field::ALL.iter().filter_map(|&field| edits.get(field)?.as_ref());
                    let added = added.map(|value| value.len() as u64).sum::<u64>();
                    match &mut entry.submitted {
                        Some(submitted) => edits.apply(&mut submitted.1),
                        None => {
                            entry.kept.edited = Some(entry.kept.bytes(FieldSet::ALL) + added);
                            entry.edits.push(edits.clone());
                        }
                    }
                }
                if let Some(error) = change.error() {
                    entry.errors.push((head.revision, error.clone()));
                }
                if let Some(outcome) = change.outcome() {
                    entry.outcome = Some(outcome.clone());
                }
                self.put(seq, entry);
            }
        }
        self.put_queue(change);
    }

    pub(super) fn put_queue(&mut self, change: &Change) {
        if let Some(QueueChange::Put(queue)) = change.queue() {
            self.queues.insert(queue.id, Some((**queue).clone()));
        }
    }

    /// Adds a new item.
    pub(super) fn add(&mut self, seq: u64, chosen_id: bool, change: &Change) {
        let (Some(head), Some((body, fields))) = (change.head(), change.submitted()) else {
            return;
        };
        self.record_events(change, None);
        if let (Some(key), Some(claim)) = (&body.idempotency_key, body.claim) {
            let owner = KeyOwner { seq, id: head.id, content: claim.content, stored: false };
            if head.has_freed_key() {
                self.earlier_owners.push((claim.queue, key.clone(), owner));
            } else if let Some(earlier) = self.keys.insert((claim.queue, key.clone()), owner) {
                self.earlier_owners.push((claim.queue, key.clone(), earlier));
            }
        }
        if let (Some(key), Some(claim)) = (&body.replace_key, body.claim) {
            let key = (claim.queue, key.clone());
            let stored = self.replace_keys.get(&key).and_then(|owner| owner.stored);
            self.replace_keys.insert(key, ReplaceOwner { seq, id: head.id, stored });
        }
        self.by_id.insert(head.id, seq);
        let entry = Entry {
            head: head.clone(),
            counted: CountKind::Pending,
            kept: PayloadRef::default(),
            stored: false,
            changed: true,
            touch: UNTOUCHED,
            submitted: Some(Box::new((body.clone(), fields.clone()))),
            chosen_id,
            replaced: None,
            edits: Vec::new(),
            errors: change.error().map(|error| (head.revision, error.clone())).into_iter().collect(),
            outcome: change.outcome().cloned(),
        };
        self.put(seq, Box::new(entry));
    }
}

impl Entry {
    /// Replaces the content of the item.
    fn replace(&mut self, body: &Body, fields: &Fields) {
        if self.submitted.is_some() {
            self.submitted = Some(Box::new((body.clone(), fields.clone())));
            return;
        }
        let edit = |edits: FieldEdits, field| match fields.get(field) {
            Some(value) => edits.set(field, value.clone()),
            None => edits.unset(field),
        };
        self.edits = vec![Field::ALL.into_iter().fold(FieldEdits::default(), edit)];
        self.replaced = Some(Box::new(body.clone()));
        // The content before is not read again.
        let at = PayloadLocation { has: 0, lengths: [0; PARTS], ..self.kept.at };
        self.kept = PayloadRef { at, edited: Some(payload_bytes(body, fields)), side: true };
    }
}
