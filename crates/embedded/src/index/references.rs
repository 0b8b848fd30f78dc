//! Whether a segment still has a record with current parts. In steps, because the index can be large.

use super::Index;
use std::ops::Bound;

/// Items, and key-value records, that one step checks.
const ITEMS: usize = 8192;
const KV_RECORDS: usize = 2048;

/// What is still to be checked. No record can be added to the segment meanwhile: the log has gone on behind it.
#[derive(Debug)]
pub enum ReferenceCheck {
    QueuesAndTallies,
    /// Key-value records behind this key.
    KvAfter(Option<String>),
    /// Items from this sequence number on.
    ItemsFrom(u64),
}

/// A record that is still referenced: what it belongs to.
#[derive(Debug, PartialEq, Eq)]
pub struct Referenced(pub String);

impl Index {
    /// Does one step of a check. `None`: nothing refers to the segment.
    pub fn check_references(
        &self,
        segment: u32,
        check: ReferenceCheck,
    ) -> Result<Option<ReferenceCheck>, Referenced> {
        match check {
            ReferenceCheck::QueuesAndTallies => {
                if let Some(queue) = self.queues.values().find(|queue| queue.place.segment == segment) {
                    return Err(Referenced(format!("queue {}", queue.queue.name)));
                }
                if self.has_tally_in(segment) {
                    return Err(Referenced("a tally".to_owned()));
                }
                Ok(Some(ReferenceCheck::KvAfter(None)))
            }
            ReferenceCheck::KvAfter(after) => {
                let first = after.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
                let mut last = None;
                for (key, slot) in self.kv.range::<str, _>((first, Bound::Unbounded)).take(KV_RECORDS) {
                    if slot.place.segment == segment {
                        return Err(Referenced(format!("key-value record {key:?}")));
                    }
                    last = Some(key);
                }
                Ok(Some(match last {
                    Some(key) => ReferenceCheck::KvAfter(Some(key.clone())),
                    None => ReferenceCheck::ItemsFrom(0),
                }))
            }
            ReferenceCheck::ItemsFrom(first) => {
                let mut found = None;
                let next = self.table.scan(first, ITEMS, |sequence, slot| {
                    let is_here = match self.table.extra(sequence) {
                        None => slot.place.segment == segment,
                        Some(extra) => {
                            (extra.base_parts != 0 && slot.place.segment == segment)
                                || extra.other_places.iter().any(|at| at.place.segment == segment)
                                || extra.errors.iter().any(|error| error.1.segment == segment)
                        }
                    };
                    found = is_here.then_some(sequence);
                    !is_here
                });
                match found.and_then(|sequence| self.head(sequence)) {
                    Some(head) => Err(Referenced(format!("item {}", head.id))),
                    None => Ok(next.map(ReferenceCheck::ItemsFrom)),
                }
            }
        }
    }
}
