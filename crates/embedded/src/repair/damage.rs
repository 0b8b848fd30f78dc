//! What damage costs: which items and queues are gone, or may lack a change.

use super::integrity_scan::{IntegrityScan, ScanStep};
use crate::error::OpenError;
use crate::index::Index;
use crate::index::update::{IndexUpdate, ItemUpdate};
use crate::log::record::{self, Record, RecordPlace};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeSet;
use std::ops::Range;
use towline_domain::{EventKind, ItemId, Policy, Queue, QueueId, QueueState, Schema, Timestamp};

/// What damage costs, as far as the intact records show it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Affected {
    /// Items that are known, but whose payload is gone.
    pub lost: Vec<ItemId>,
    /// How many items were submitted in a damaged part of the log and are otherwise unknown. Some of them may have been removed
    /// later.
    pub lost_unknown: u64,
    /// Items of which a change may be missing: an edit, an error, a settle.
    pub incomplete: Vec<ItemId>,
    /// Ids of queues whose definition is gone, but which still have items.
    pub queues: Vec<u32>,
    /// Part of the log is gone. Items and queues that were removed, finished or deleted there may reappear in an earlier state.
    pub may_reappear: bool,
}

/// The state that the intact records of a store add up to.
pub(super) struct Survivors {
    pub(super) index: Index,
    histories: FxHashMap<u64, History>,
    /// Sequence numbers of items that were submitted where the log does not read.
    gaps: Vec<Range<u64>>,
    /// Items of the gaps that were removed later.
    removed: FxHashSet<u64>,
    /// Items of which a record does not read.
    lost_records: BTreeSet<u64>,
    queues_deleted: FxHashSet<QueueId>,
    damaged: bool,
}

/// Which revisions of an item were seen.
#[derive(Clone, Copy)]
struct History {
    /// The first record was seen.
    from_the_start: bool,
    /// No revision is missing since the first that was seen.
    unbroken: bool,
    revision: u32,
}

impl Survivors {
    pub(super) fn of(scan: &mut IntegrityScan<'_>) -> Result<Survivors, OpenError> {
        let salt = scan.meta.salt;
        let mut survivors = Survivors {
            index: Index::new(salt),
            histories: FxHashMap::default(),
            gaps: Vec::new(),
            removed: FxHashSet::default(),
            lost_records: BTreeSet::new(),
            queues_deleted: FxHashSet::default(),
            damaged: !scan.is_whole(),
        };
        survivors.index.begin_replay();
        scan.visit_again(&mut |step| match step {
            ScanStep::Record(record, place) => survivors.take(&record, place, salt),
            ScanStep::Gap(items) => survivors.gaps.push(items),
            ScanStep::LostRecord(sequence) => drop(survivors.lost_records.insert(sequence)),
        })?;
        Ok(survivors)
    }

    fn take(&mut self, record: &Record<'_>, place: RecordPlace, salt: u64) {
        // The scan has decoded the record, so this does not fail.
        let Ok(update) = IndexUpdate::from_record(record, place, salt) else {
            return;
        };
        let carried = record.event == EventKind::Carried as u8;
        if let IndexUpdate::Item(ItemUpdate { sequence, head: Some(head), .. }) = &update
            && self.damaged
            && !self.follow(*sequence, head.revision, carried)
        {
            return;
        }
        match &update {
            IndexUpdate::ItemRemoved { sequence } => {
                self.histories.remove(sequence);
                if self.gaps.iter().any(|gap| gap.contains(sequence)) {
                    self.removed.insert(*sequence);
                }
            }
            IndexUpdate::QueueDeleted { id, .. } => drop(self.queues_deleted.insert(*id)),
            _ => {}
        }
        // The index refuses an item without a head. Such an item cannot be saved.
        let _ = self.index.apply(update);
    }

    /// Every change adds one to an item's revision, so a missing change shows. Returns whether the record is new.
    fn follow(&mut self, sequence: u64, revision: u32, carried: bool) -> bool {
        let Some(history) = self.histories.get_mut(&sequence) else {
            let history = History { from_the_start: revision == 1, unbroken: true, revision };
            self.histories.insert(sequence, history);
            return true;
        };
        let expected = if carried { history.revision } else { history.revision + 1 };
        history.unbroken &= revision <= expected;
        let is_new = revision >= expected;
        history.revision = history.revision.max(revision);
        is_new
    }

    pub(super) fn affected(&self) -> Affected {
        let mut affected = Affected::default();
        if !self.damaged {
            return affected;
        }
        affected.may_reappear = !self.gaps.is_empty() || !self.lost_records.is_empty();
        let mut queues = BTreeSet::new();
        self.index.table.scan(0, usize::MAX, |sequence, slot| {
            if self.queues_deleted.contains(&slot.queue) {
                return true;
            }
            if let Some(head) = self.index.head(sequence) {
                match self.condition(sequence) {
                    Condition::Whole => {}
                    Condition::Incomplete => affected.incomplete.push(head.id),
                    Condition::Lost => {
                        affected.lost.push(head.id);
                        return true;
                    }
                }
            }
            if !self.index.queues.contains_key(&slot.queue) {
                queues.insert(slot.queue.0);
            }
            true
        });
        affected.queues = queues.into_iter().collect();
        let unknown =
            |sequence: &u64| self.index.table.slot(*sequence).is_none() && !self.removed.contains(sequence);
        let numbers: BTreeSet<u64> = self.gaps.iter().cloned().flatten().filter(unknown).collect();
        affected.lost_unknown = numbers.len() as u64;
        affected
    }

    pub(super) fn condition(&self, sequence: u64) -> Condition {
        let Some(history) = self.histories.get(&sequence).filter(|_| self.damaged) else {
            return Condition::Whole;
        };
        if history.from_the_start && history.unbroken && !self.lost_records.contains(&sequence) {
            return Condition::Whole;
        }
        let places = self.index.places(sequence).unwrap_or_default();
        let parts = places.iter().fold(0, |parts, at| parts | at.parts);
        let has_payload = parts & (record::BODY | record::FIELDS) != 0;
        let submitted_in_gap = self.gaps.iter().any(|gap| gap.contains(&sequence));
        // The item may have been submitted without a payload. Rather lose it than serve an item whose payload is gone.
        if !history.from_the_start && (submitted_in_gap || !has_payload) {
            return Condition::Lost;
        }
        Condition::Incomplete
    }

    /// Creates paused queues for items whose queue is gone. Returns the names.
    pub(super) fn remake_queues(&mut self, missing: &[u32], now: Timestamp) -> Vec<String> {
        let mut names = Vec::new();
        for &number in missing {
            let Ok(name) = format!("salvaged-{number}").parse() else {
                continue;
            };
            names.push(format!("salvaged-{number}"));
            let queue = Queue {
                id: QueueId(number),
                name,
                schema: Schema::default(),
                policy: Policy::default(),
                state: QueueState::Open,
                paused: true,
                created_at: now,
                revision: 1,
            };
            let place = RecordPlace { segment: 0, offset: 0, length: 0 };
            let _ = self.index.apply(IndexUpdate::Queue { queue: Box::new(queue), place });
        }
        names
    }
}

/// How much of an item is left.
pub(super) enum Condition {
    Whole,
    /// A change may be missing.
    Incomplete,
    /// The payload is gone.
    Lost,
}
