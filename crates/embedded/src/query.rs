//! Questions, answered from the index. Pages are bounded by what is looked at, not only by what is found.

use crate::engine::{Engine, READ_BYTES_MAX};
use crate::outcome::{Found, Query};
use crate::record::group_label;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use towline_domain::{CountKind, FieldSet, digest, limits};
use towline_store::{Cursor, Filter, QueueView};

/// Slots looked at for one page: a millisecond of the writer's time at most.
const SCAN_MAX: usize = 32_768;

impl Engine {
    pub fn query(&self, query: Query) -> Found {
        match query {
            Query::Queue(name) => {
                let queue = self.index.queue_named(&name);
                Found::Queue(
                    queue.map(|queue| {
                        Box::new(QueueView { queue: queue.queue.clone(), counts: queue.counts })
                    }),
                )
            }
            Query::Queues { after, limit } => {
                let from = after.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
                let ids = self.index.names.range((from, Bound::Unbounded)).take(limit.min(limits::PAGE_MAX));
                let queues = ids.filter_map(|(_, id)| self.index.queues.get(id));
                Found::Queues(
                    queues
                        .map(|queue| QueueView { queue: queue.queue.clone(), counts: queue.counts })
                        .collect(),
                )
            }
            Query::Get { ids, fields } => {
                let mut sequences = Vec::new();
                let mut nth: BTreeMap<u64, usize> = BTreeMap::new();
                let mut found = Vec::with_capacity(ids.len());
                let mut bytes = 0;
                for id in ids {
                    found.push(self.index.find(id).map(|sequence| {
                        // Asked for twice, read once.
                        *nth.entry(sequence).or_insert_with(|| {
                            bytes += self.bytes_to_read(sequence, fields);
                            sequences.push(sequence);
                            sequences.len() - 1
                        })
                    }));
                }
                if bytes > READ_BYTES_MAX && sequences.len() > 1 {
                    return Found::TooLarge { bytes };
                }
                Found::Items { items: self.unread(&sequences, true), found, fields }
            }
            Query::List { filter, after, limit, fields } => {
                let (mut sequences, mut next) = self.page(&filter, after, limit.clamp(1, limits::PAGE_MAX));
                let mut bytes = 0;
                let fits = sequences.iter().take_while(|&&sequence| {
                    bytes += self.bytes_to_read(sequence, fields);
                    bytes <= READ_BYTES_MAX
                });
                let fits = fits.count().max(1);
                if fits < sequences.len() {
                    sequences.truncate(fits);
                    next = sequences.last().map(|&last| Cursor(last));
                }
                Found::Page {
                    items: self.unread(&sequences, true),
                    next,
                    filter,
                    now: self.index.now,
                    fields,
                }
            }
            Query::NextWake => Found::NextWake(self.index.next_wake()),
            Query::KvList(page) => {
                Found::KvPage(page.take(&self.index.kv, |slot| &slot.record, self.index.now))
            }
            Query::KvGet(keys) => {
                let now = self.index.now;
                let live = |key: &String| {
                    self.index
                        .kv
                        .get(key)
                        .map(|slot| slot.record.clone())
                        .filter(|record| record.is_live(now))
                };
                Found::Kv(keys.iter().map(live).collect())
            }
            Query::Tally { queue, asked } => {
                let queue = self.index.queue_named(&queue).map(|queue| queue.queue.id);
                Found::Tally(queue.map(|queue| self.index.tally_rows(queue, &asked)))
            }
            Query::Status => Found::Status(self.status()),
        }
    }

    fn bytes_to_read(&self, sequence: u64, fields: FieldSet) -> u64 {
        if fields == FieldSet::NONE { 0 } else { self.index.bytes_of(sequence) }
    }

    /// Candidates for a page: what the index can tell matches; the reader checks the rest.
    fn page(&self, filter: &Filter, after: Option<Cursor>, limit: usize) -> (Vec<u64>, Option<Cursor>) {
        let first = after.map_or(0, |cursor| cursor.0.saturating_add(1));
        let queue = match &filter.queue {
            None => None,
            Some(name) => match self.index.names.get(name) {
                Some(&id) => Some(id),
                None => return (Vec::new(), None),
            },
        };
        let matches = |sequence: u64, kind: CountKind| {
            let Some(slot) = self.index.table.slot(sequence) else {
                return false;
            };
            let created_at = match self.index.table.extra(sequence) {
                Some(extra) => extra.head.created_at,
                None => slot.ready_at,
            };
            queue.is_none_or(|queue| queue == slot.queue)
                && self.index.queues.contains_key(&slot.queue)
                && filter.state.is_none_or(|state| state.matches(kind))
                && filter.created_from.is_none_or(|from| created_at >= from)
                && filter.created_before.is_none_or(|before| created_at < before)
        };
        if let Some(key) = &filter.idempotency_key {
            let mut found: Vec<u64> =
                self.index.keyed(digest::key(key)).filter(|&owner| owner >= first).collect();
            found.retain(|&sequence| self.index.kind(sequence).is_some_and(|kind| matches(sequence, kind)));
            found.sort_unstable();
            let next = (found.len() > limit).then(|| Cursor(found[limit - 1]));
            found.truncate(limit);
            return (found, next);
        }
        let labels = filter.tags.iter().map(|(name, value)| digest::tag(name, value));
        let labels: Vec<u64> = labels.chain(filter.group.as_deref().map(group_label)).collect();
        let mut found = Vec::new();
        if !labels.is_empty() {
            // The rarest label decides what is looked at.
            let none = BTreeSet::new();
            let sets = labels.iter().map(|&label| self.index.labelled(label).unwrap_or(&none));
            let smallest = sets.min_by_key(|set| set.len()).unwrap_or(&none);
            for (looked, &sequence) in smallest.range(first..).enumerate() {
                let all = labels
                    .iter()
                    .all(|&label| self.index.labelled(label).is_some_and(|set| set.contains(&sequence)));
                if all && self.index.kind(sequence).is_some_and(|kind| matches(sequence, kind)) {
                    found.push(sequence);
                }
                if found.len() == limit || looked == SCAN_MAX {
                    return (found, Some(Cursor(sequence)));
                }
            }
            return (found, None);
        }
        let next = self.index.table.scan(first, SCAN_MAX, |sequence, _| {
            if self.index.kind(sequence).is_some_and(|kind| matches(sequence, kind)) {
                found.push(sequence);
            }
            found.len() < limit
        });
        (found, next.map(|next| Cursor(next - 1)))
    }
}
