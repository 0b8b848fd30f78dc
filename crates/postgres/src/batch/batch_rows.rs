//! The rows that a batch writes: one array a column, for statements that write many rows at once.

use crate::batch::overlay::{Entry, Overlay};
use crate::batch::plan::replace_key;
use crate::batch::tally::TallyColumns;
use crate::connection::session::Parameters;
use crate::encoding::code;
use crate::encoding::sql::{millis, queue_number};
use crate::pages::layout::Layout;
use std::borrow::Cow;
use towline_domain::{Field, limits};
use uuid::Uuid;

#[derive(Default)]
pub(super) struct BatchRows<'a> {
    pub(super) layout: Layout,
    /// Removed items with side rows.
    pub(super) removed: Vec<i64>,
    /// First and last numbers of removed terminal pages with side rows.
    pub(super) removed_ranges: (Vec<i64>, Vec<i64>),
    pub(super) edits: EditColumns<'a>,
    pub(super) keys: KeyColumns<'a>,
    /// Stored items that have freed their idempotency keys.
    pub(super) freed_keys: Vec<i64>,
    /// Replace keys that other items take over: queue, key, and the item that loses the key.
    pub(super) released: (Vec<i32>, Vec<Vec<u8>>, Vec<i64>),
    pub(super) chosen: (Vec<Uuid>, Vec<i64>),
    pub(super) tags: (Vec<i64>, Vec<&'a [u8]>, Vec<&'a [u8]>),
    /// Items whose tags were replaced.
    pub(super) retagged: Vec<i64>,
    pub(super) errors: (Vec<i64>, Vec<i64>, Vec<String>),
    /// Items that may have more errors than are kept.
    pub(super) many_errors: Vec<i64>,
    pub(super) outcomes: (Vec<i64>, Vec<String>),
    pub(super) kv: RecordColumns<'a>,
    pub(super) counts: CountColumns,
    pub(super) tallies: TallyColumns,
    pub(super) tag_tallies: TallyColumns,
    pub(super) queues: Vec<(i32, String, String)>,
    pub(super) deleted_queues: Vec<i32>,
    pub(super) rates: (Vec<i32>, Vec<i64>),
    pub(super) round_robins: (Vec<i32>, Vec<i64>, Vec<i32>, Vec<bool>),
}

#[derive(Default)]
pub(super) struct EditColumns<'a> {
    pub(super) seq: Vec<i64>,
    sets: [Vec<bool>; 4],
    values: [Vec<Option<&'a [u8]>>; 4],
    bodies: Vec<Option<String>>,
}

#[derive(Default)]
pub(super) struct KeyColumns<'a> {
    pub(super) queue: Vec<i32>,
    pub(super) key: Vec<Cow<'a, [u8]>>,
    pub(super) seq: Vec<i64>,
    pub(super) id: Vec<Uuid>,
    pub(super) content_digest: Vec<&'a [u8]>,
    pub(super) freed: Vec<bool>,
}

/// Keys, values and times of expiry.
type RecordRows<'a> = (Vec<&'a [u8]>, Vec<&'a [u8]>, Vec<Option<i64>>);

#[derive(Default)]
pub(super) struct RecordColumns<'a> {
    pub(super) new: RecordRows<'a>,
    pub(super) changed: RecordRows<'a>,
    pub(super) removed: Vec<&'a [u8]>,
}

#[derive(Default)]
pub(super) struct CountColumns {
    pub(super) queue: Vec<i32>,
    change: [Vec<i64>; 6],
}

impl<'a> BatchRows<'a> {
    pub(super) fn of(overlay: &'a Overlay) -> BatchRows<'a> {
        let with_side_rows = overlay.removed.iter().filter(|(_, side)| **side);
        let mut rows = BatchRows {
            layout: Layout::of(overlay),
            removed: with_side_rows.map(|(seq, _)| seq.cast_signed()).collect(),
            removed_ranges: overlay.removed_pages.iter().copied().unzip(),
            tallies: TallyColumns::of_all(&overlay.tallies),
            tag_tallies: TallyColumns::of_tags(&overlay.tallies),
            ..BatchRows::default()
        };
        for (&seq, entry) in overlay.entries.iter().filter(|(_, entry)| entry.changed) {
            rows.item(seq, entry);
        }
        let keys = overlay.keys.iter().map(|((queue, key), owner)| (queue, key, owner));
        let earlier = overlay.earlier_owners.iter().map(|(queue, key, owner)| (queue, key, owner));
        for (queue, key, owner) in keys.chain(earlier) {
            let Some(entry) = overlay.entries.get(&owner.seq).filter(|_| !owner.stored) else { continue };
            rows.keys.queue.push(queue_number(*queue));
            rows.keys.key.push(Cow::Borrowed(key.as_bytes()));
            rows.keys.seq.push(owner.seq.cast_signed());
            rows.keys.id.push(owner.id.0);
            rows.keys.content_digest.push(&owner.content);
            rows.keys.freed.push(entry.head.has_freed_key());
        }
        rows.replace_keys(overlay);
        rows.kv(overlay);
        for (&queue, change) in &overlay.counted {
            if change.iter().any(|&change| change != 0) {
                rows.counts.queue.push(queue_number(queue));
                for (column, &change) in rows.counts.change.iter_mut().zip(change) {
                    column.push(change);
                }
            }
        }
        for (&id, (rate, _)) in overlay.rates.iter().filter(|(_, (_, changed))| *changed) {
            rows.rates.0.push(queue_number(id));
            // A time beyond the year 2262 does not fit into the column. 0 stands for an unused rate.
            rows.rates.1.push(i64::try_from(rate.0).unwrap_or(0));
        }
        for (&id, slot) in overlay.round_robins.iter().filter(|(_, slot)| slot.changed) {
            rows.round_robins.0.push(queue_number(id));
            rows.round_robins.1.push(slot.round_robin.key.number());
            rows.round_robins.2.push(slot.round_robin.given.cast_signed());
            rows.round_robins.3.push(slot.begins);
        }
        for (&id, queue) in &overlay.queues {
            match queue {
                Some(queue) => {
                    rows.queues.push((queue_number(id), queue.name.to_string(), code::to_json(queue)));
                }
                None => rows.deleted_queues.push(queue_number(id)),
            }
        }
        rows
    }

    /// Replace keys of new items, and the items that lose them.
    fn replace_keys(&mut self, overlay: &'a Overlay) {
        for ((queue, key), owner) in &overlay.replace_keys {
            if owner.stored == Some(owner.seq) || !overlay.entries.contains_key(&owner.seq) {
                continue;
            }
            let (queue, key) = (queue_number(*queue), replace_key(key));
            if let Some(stored) = owner.stored {
                self.released.0.push(queue);
                self.released.1.push(key.clone());
                self.released.2.push(stored.cast_signed());
            }
            self.keys.queue.push(queue);
            self.keys.key.push(Cow::Owned(key));
            self.keys.seq.push(owner.seq.cast_signed());
            self.keys.id.push(owner.id.0);
            self.keys.content_digest.push(&[]);
            self.keys.freed.push(false);
        }
    }

    fn item(&mut self, number: u64, entry: &'a Entry) {
        let seq = number.cast_signed();
        if entry.chosen_id {
            self.chosen.0.push(entry.head.id.0);
            self.chosen.1.push(seq);
        }
        if entry.stored && entry.head.has_freed_key() {
            self.freed_keys.push(seq);
        }
        if entry.replaced.is_some() {
            self.retagged.push(seq);
        }
        let submitted = entry.submitted.as_ref().map(|submitted| &submitted.0);
        if let Some(body) = submitted.or(entry.replaced.as_deref()) {
            let group = body.group.as_ref().map(|group| ("", group.as_str()));
            let tags = body.tags.iter().map(|(name, value)| (name.as_str(), value.as_str()));
            for (name, value) in tags.chain(group) {
                self.tags.0.push(seq);
                self.tags.1.push(name.as_bytes());
                self.tags.2.push(value.as_bytes());
            }
        }
        if !entry.edits.is_empty() {
            self.edits.seq.push(seq);
            self.edits.bodies.push(entry.replaced.as_deref().map(code::to_json));
            for field in Field::ALL {
                let last = entry.edits.iter().rev().find_map(|edits| edits.get(field));
                self.edits.sets[field as usize].push(last.is_some());
                let value = last.and_then(Option::as_ref).map(|value| &value[..]);
                self.edits.values[field as usize].push(value);
            }
        }
        for (revision, error) in &entry.errors {
            self.errors.0.push(seq);
            self.errors.1.push((*revision).into());
            self.errors.2.push(code::to_json(error));
        }
        // Each error belongs to a transition, so an item has no more errors than transitions.
        if !entry.errors.is_empty() && entry.head.transitions as usize >= limits::ERRORS_KEPT_MAX {
            self.many_errors.push(seq);
        }
        if let Some(outcome) = &entry.outcome {
            self.outcomes.0.push(seq);
            self.outcomes.1.push(code::to_json(outcome));
        }
    }

    fn kv(&mut self, overlay: &'a Overlay) {
        for (key, slot) in overlay.kv.iter().filter(|(_, slot)| slot.changed) {
            match (&slot.record, slot.stored) {
                (Some(record), stored) => {
                    let records = if stored { &mut self.kv.changed } else { &mut self.kv.new };
                    records.0.push(key.as_bytes());
                    records.1.push(&record.value);
                    records.2.push(record.expires_at.map(millis));
                }
                (None, true) => self.kv.removed.push(key.as_bytes()),
                (None, false) => {}
            }
        }
    }
}

impl EditColumns<'_> {
    pub(super) fn parameters(&self) -> Parameters<'_> {
        let mut parameters: Parameters<'_> = vec![&self.seq];
        for (sets, values) in self.sets.iter().zip(&self.values) {
            parameters.push(sets);
            parameters.push(values);
        }
        parameters.push(&self.bodies);
        parameters
    }
}

impl CountColumns {
    pub(super) fn parameters<'a>(&'a self, shard: &'a i32) -> Parameters<'a> {
        let mut parameters: Parameters<'a> = vec![shard, &self.queue];
        for column in &self.change {
            parameters.push(column);
        }
        parameters
    }
}
