//! Queries: answered from the index. A page is limited by the items examined, not only by the items found.

use crate::engine::{Engine, READ_BYTES_MAX};
use crate::log::record::parts_of;
use crate::outcome::{Found, Query};
use std::collections::BTreeMap;
use std::ops::Bound;
use towline_domain::{FieldSet, QueueId, limits};
use towline_store::{Cursor, StoreMetrics};

impl Engine {
    pub fn query(&mut self, query: Query) -> Found {
        match query {
            Query::Queue(name) => {
                let id = self.index.names.get(&name).copied();
                Found::Queue(id.and_then(|id| self.index.view(id)).map(Box::new))
            }
            Query::Queues { after, limit } => {
                let from = after.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
                let names = self.index.names.range((from, Bound::Unbounded));
                let ids: Vec<QueueId> = names.map(|(_, id)| *id).take(limit.min(limits::PAGE_MAX)).collect();
                Found::Queues(ids.into_iter().filter_map(|id| self.index.view(id)).collect())
            }
            Query::Get { ids, fields } => {
                let mut sequences = Vec::new();
                let mut nth: BTreeMap<u64, usize> = BTreeMap::new();
                let mut found = Vec::with_capacity(ids.len());
                let mut bytes = 0;
                for id in ids {
                    found.push(self.index.find(id).map(|sequence| {
                        // An item that is requested twice is read once.
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
            Query::Count { filter, after } => Found::Counted(self.count_matching(&filter, after)),
            Query::NextWake => Found::NextWake(self.next_wake()),
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
            Query::Tally { queue, range } => {
                let queue = self.index.queue_named(&queue).map(|queue| queue.queue.id);
                Found::Tally(queue.map(|queue| self.index.tally_rows(queue, &range)))
            }
            Query::Events(start) => Found::Events(self.event_range(start)),
            Query::Status => Found::Status(self.status()),
            Query::StoreMetrics => Found::StoreMetrics(Box::new(self.store_metrics())),
        }
    }

    fn store_metrics(&self) -> StoreMetrics {
        let mut metrics = self.metrics;
        metrics.damages = u64::from(self.status.damage.is_some());
        metrics
    }

    /// Without payload fields, only the item reader knows how much it reads: it stops at the limit.
    fn bytes_to_read(&self, sequence: u64, fields: FieldSet) -> u64 {
        if fields.has_any() { self.index.bytes_of(sequence, parts_of(fields)) } else { 0 }
    }
}
