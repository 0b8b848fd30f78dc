//! Finds the items that match a filter in the index: for pages, and for counts that read no records.

use crate::engine::Engine;
use crate::index::QueueIndex;
use crate::index::table::Slot;
use crate::log::record::group_label;
use towline_domain::{QueueId, Traits, digest};
use towline_store::{CountPage, Cursor, Filter};

/// Maximum number of slots examined by one query: one or two milliseconds of the writer thread.
const SLOTS_MAX: usize = 65_536;
/// Maximum number of heads examined by one query. Fewer than slots, because heads are scattered in memory.
const HEADS_MAX: usize = 16_384;

/// Whether the index alone can evaluate the filter. Otherwise the item reader evaluates it on the records.
pub fn is_indexed(filter: &Filter) -> bool {
    let not = &filter.not;
    let tags_by_hash =
        filter.tag_prefixes.is_empty() && not.tag_prefixes.is_empty() && not.tag_names.is_empty();
    tags_by_hash && filter.error.is_none()
}

impl Engine {
    /// Candidates for a page: items that match as far as the index knows. The item reader checks the rest of the filter.
    pub fn page(&self, filter: &Filter, after: Option<Cursor>, limit: usize) -> (Vec<u64>, Option<Cursor>) {
        let mut found = Vec::new();
        let next = self.select(filter, after, |sequence| {
            found.push(sequence);
            found.len() < limit
        });
        (found, next)
    }

    /// How many of the items that one query examines match. The filter must be indexed; tags, group and key are compared by
    /// their hashes.
    pub fn count_matching(&self, filter: &Filter, after: Option<Cursor>) -> CountPage {
        if filter.is_state_alone() {
            return CountPage { count: self.counted(filter), next: None };
        }
        let mut count = 0;
        let next = self.select(filter, after, |_| {
            count += 1;
            true
        });
        CountPage { count, next }
    }

    fn counted(&self, filter: &Filter) -> u64 {
        let of = |queue: &QueueIndex| queue.counts.in_state(filter.head.state);
        match &filter.queue {
            Some(name) => self.index.queue_named(name).map_or(0, of),
            None => self.index.queues.values().map(of).sum(),
        }
    }

    /// Visits matching items in order until `visit` returns false or the limit of examined items is reached. Returns where to
    /// continue.
    fn select(
        &self,
        filter: &Filter,
        after: Option<Cursor>,
        mut visit: impl FnMut(u64) -> bool,
    ) -> Option<Cursor> {
        let first = after.map_or(0, |cursor| cursor.0.saturating_add(1));
        let queue = match &filter.queue {
            None => None,
            Some(name) => Some(*self.index.names.get(name)?),
        };
        if let Some(key) = &filter.idempotency_key {
            let keyed = self.index.keyed(key, first, HEADS_MAX);
            let last = keyed.last().filter(|_| keyed.len() >= HEADS_MAX).copied();
            return self.visit_some(filter, queue, &keyed, visit).or(last.map(Cursor));
        }
        let examined_max = if filter.head.is_state_and_priority() { SLOTS_MAX } else { HEADS_MAX };
        let labels = filter.tags.iter().map(|(name, value)| digest::tag(name, value));
        let labels: Vec<u64> = labels.chain(filter.group.as_deref().map(group_label)).collect();
        if labels.is_empty() {
            let next = self.index.table.scan(first, examined_max, |sequence, slot| {
                !self.matches(filter, queue, sequence, slot) || visit(sequence)
            });
            return next.map(|next| Cursor(next - 1));
        }
        // With several labels, each item needs a search in every set, at scattered places in memory.
        let examined_max = if labels.len() == 1 { examined_max } else { HEADS_MAX / labels.len() };
        let mut all = self.index.labelled_all(&labels, first);
        let mut examined = 0;
        while let Some((sequence, has_all)) = all.step() {
            examined += 1;
            let slot = self.index.table.slot(sequence).filter(|_| has_all);
            let more =
                slot.is_none_or(|slot| !self.matches(filter, queue, sequence, slot) || visit(sequence));
            if !more || examined == examined_max {
                return Some(Cursor(sequence));
            }
        }
        None
    }

    fn visit_some(
        &self,
        filter: &Filter,
        queue: Option<QueueId>,
        sequences: &[u64],
        mut visit: impl FnMut(u64) -> bool,
    ) -> Option<Cursor> {
        for (at, &sequence) in sequences.iter().enumerate() {
            let Some(slot) = self.index.table.slot(sequence) else { continue };
            if self.matches(filter, queue, sequence, slot) && !visit(sequence) {
                return (at + 1 < sequences.len()).then_some(Cursor(sequence));
            }
        }
        None
    }

    /// Whether the item has a tag or a group that the filter excludes. The item reader checks prefixes and names of tags.
    fn is_excluded(&self, filter: &Filter, sequence: u64) -> bool {
        let not = &filter.not;
        if not.tags.is_empty() && not.groups.is_empty() {
            return false;
        }
        let indexed = self.index.table.extra(sequence).and_then(|extra| extra.indexed.as_ref());
        let has = |label: u64| indexed.is_some_and(|indexed| indexed.labels.contains(&label));
        not.tags.iter().any(|(name, value)| has(digest::tag(name, value)))
            || not.groups.iter().any(|group| has(group_label(group)))
    }

    fn matches(&self, filter: &Filter, queue: Option<QueueId>, sequence: u64, slot: &Slot) -> bool {
        let here = match queue {
            Some(queue) => queue == slot.queue,
            // An item of a deleted queue does not exist, though it may not have been reaped yet.
            None => self.index.queues.contains_key(&slot.queue),
        };
        let plain = || Traits {
            kind: slot.kind(),
            priority: slot.priority,
            attempt: 1,
            created_at: slot.ready_at,
            finished_at: None,
            failure: None,
            ready_at: slot.ready_at,
            deliveries: 0,
        };
        here && !self.is_excluded(filter, sequence)
            && match filter.head.is_state_and_priority() && filter.error.is_none() {
                true => filter.head.matches(&plain()),
                false => match self.index.table.extra(sequence) {
                    None => filter.error.is_none() && filter.head.matches(&plain()),
                    Some(extra) => {
                        (filter.error.is_none() || !extra.errors.is_empty())
                            && filter.head.matches(&Traits::of(&extra.head, slot.kind()))
                    }
                },
            }
    }
}
