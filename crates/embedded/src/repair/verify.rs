//! Examines a store that is not in use: says what is damaged and what that costs, and saves what is whole.
//!
//! **Invariant:** the store examined is never written to.

use crate::engine::Engine;
use crate::error::OpenError;
use crate::index::Index;
use crate::index::table::PartsAt;
use crate::index::update::{IndexUpdate, ItemUpdate};
use crate::log::disk::{Disk, RealDisk, read_full};
use crate::log::meta::META_FILE;
use crate::log::record::{self, Parts, Record, RecordEncoder, RecordKind, RecordPlace};
use crate::log::segment::Segment;
use crate::options::Options;
use crate::recovery::Recovered;
use crate::repair::backup::{BackupError, lock, open_source};
use crate::repair::integrity_scan::{Finding, IntegrityScan, Seen, read_record};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use towline_domain::{EventKind, Head, ItemId, Policy, Queue, QueueId, QueueState, Schema, Timestamp};
use towline_store::StoreError;

/// What an examination found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Verdict {
    pub segments: u64,
    pub frames: u64,
    pub records: u64,
    pub bytes: u64,
    pub findings: Vec<Finding>,
    /// Of damage only.
    pub affected: Affected,
}

impl Verdict {
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.findings.iter().all(|finding| finding.harmless)
    }
}

/// What damage costs, as far as it can be told.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Affected {
    /// Items that are known of, but whose payload is gone.
    pub lost: Vec<ItemId>,
    /// Items that were submitted in a damaged part of the log, and of which nothing else is known. Some may have been
    /// removed since.
    pub lost_unnamed: u64,
    /// Items that are there, but one or more of their changes may be missing: an edit, an error, a settle.
    pub doubtful: Vec<ItemId>,
    /// Queues whose definition is gone while items of theirs are left, by their number.
    pub queues: Vec<u32>,
    /// Part of the log is gone. What was removed, finished or deleted there may be back as it was before.
    pub may_be_back: bool,
}

/// What was saved, and what was not.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SalvageReport {
    pub items: u64,
    pub queues: u64,
    pub kv: u64,
    /// QueueNames given to queues whose definition is gone: paused, with the default policy.
    pub queues_remade: Vec<String>,
    pub findings: Vec<Finding>,
    pub affected: Affected,
}

/// Reads and checks everything in the directory of a store that is not in use.
pub fn verify(path: &Path) -> Result<Verdict, OpenError> {
    let disk = open_source(path)?;
    let _lock = lock(&disk)?;
    let mut survey = IntegrityScan::of(&disk)?;
    let mut verdict = Verdict {
        segments: survey.log.len() as u64,
        frames: survey.totals.frames,
        records: survey.totals.records,
        bytes: survey.totals.bytes,
        ..Verdict::default()
    };
    if !survey.is_whole() {
        verdict.affected = Ledger::of(&mut survey)?.affected();
    }
    verdict.findings = survey.findings;
    Ok(verdict)
}

/// Writes a new store with everything that is whole into a directory that is empty or does not exist.
///
/// Items keep their ids, states, leases and errors.
pub fn salvage(path: &Path, target: &Path) -> Result<SalvageReport, BackupError> {
    let source = open_source(path)?;
    let _lock = lock(&source)?;
    let mut survey = IntegrityScan::of(&source)?;
    let mut ledger = Ledger::of(&mut survey)?;
    let mut report = SalvageReport { affected: ledger.affected(), ..SalvageReport::default() };
    report.queues_remade = ledger.remake_queues(&report.affected.queues, Timestamp(survey.totals.time));
    let place = target.display().to_string();
    let disk = RealDisk::empty(target).map_err(|source| OpenError::Io {
        place: place.clone(),
        file: String::new(),
        source,
        remedy: "choose a directory that can be made and written",
    })?;
    let disk = Arc::new(disk.ok_or(BackupError::NotEmpty { target: place })?);
    let written = Rewriting::begin(&survey, disk.clone())?.write(&survey, &ledger, &mut report);
    if written.is_err() {
        // Without its meta it is no store; the next try wants an empty directory.
        for name in disk.list().unwrap_or_default() {
            let _ = disk.remove(&name);
        }
    }
    written?;
    report.findings = survey.findings;
    Ok(report)
}

/// What the whole records tell together.
struct Ledger {
    index: Index,
    histories: FxHashMap<u64, History>,
    /// Numbers of items submitted where the log does not read.
    gaps: Vec<Range<u64>>,
    gone: FxHashSet<u64>,
    hurt: BTreeSet<u64>,
    queues_deleted: FxHashSet<QueueId>,
    damaged: bool,
}

/// Whether nothing of an item can be missing: its first record was seen, and every one since.
#[derive(Clone, Copy)]
struct History {
    from_the_start: bool,
    unbroken: bool,
    revision: u32,
}

impl Ledger {
    fn of(survey: &mut IntegrityScan<'_>) -> Result<Ledger, OpenError> {
        let salt = survey.meta.salt;
        let mut ledger = Ledger {
            index: Index::new(salt),
            histories: FxHashMap::default(),
            gaps: Vec::new(),
            gone: FxHashSet::default(),
            hurt: BTreeSet::new(),
            queues_deleted: FxHashSet::default(),
            damaged: !survey.is_whole(),
        };
        ledger.index.begin_replay();
        survey.walk_again(&mut |seen| match seen {
            Seen::Record(record, place) => ledger.take(&record, place, salt),
            Seen::Gap(items) => ledger.gaps.push(items),
            Seen::Lost(sequence) => drop(ledger.hurt.insert(sequence)),
        })?;
        Ok(ledger)
    }

    fn take(&mut self, record: &Record<'_>, place: RecordPlace, salt: u64) {
        // Decoded once already, so this cannot fail; if it did, the record would not be whole.
        let Ok(entry) = IndexUpdate::from_record(record, place, salt) else {
            return;
        };
        let carried = record.event == EventKind::Carried as u8;
        if let IndexUpdate::Item(ItemUpdate { sequence, head: Some(head), .. }) = &entry
            && self.damaged
            && !self.follow(*sequence, head.revision, carried)
        {
            return;
        }
        match &entry {
            IndexUpdate::ItemRemoved { sequence } => {
                self.histories.remove(sequence);
                if self.gaps.iter().any(|gap| gap.contains(sequence)) {
                    self.gone.insert(*sequence);
                }
            }
            IndexUpdate::QueueDeleted { id, .. } => drop(self.queues_deleted.insert(*id)),
            _ => {}
        }
        // The index refuses only what no whole log can hold; without its head an item is not whole either.
        let _ = self.index.apply(entry);
    }

    /// Every change adds one to an item's revision, so a missing one shows. Whether the record is news.
    fn follow(&mut self, sequence: u64, revision: u32, carried: bool) -> bool {
        let Some(history) = self.histories.get_mut(&sequence) else {
            let history = History { from_the_start: revision == 1, unbroken: true, revision };
            self.histories.insert(sequence, history);
            return true;
        };
        let expected = if carried { history.revision } else { history.revision + 1 };
        history.unbroken &= revision <= expected;
        let news = revision >= expected;
        history.revision = history.revision.max(revision);
        news
    }

    fn affected(&self) -> Affected {
        let mut affected = Affected::default();
        if !self.damaged {
            return affected;
        }
        affected.may_be_back = !self.gaps.is_empty() || !self.hurt.is_empty();
        let mut queues = BTreeSet::new();
        self.index.table.scan(0, usize::MAX, |sequence, slot| {
            if self.queues_deleted.contains(&slot.queue) {
                return true;
            }
            if let Some(head) = self.index.head(sequence) {
                match self.standing(sequence) {
                    Standing::Whole => {}
                    Standing::Doubtful => affected.doubtful.push(head.id),
                    Standing::Lost => {
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
            |sequence: &u64| self.index.table.slot(*sequence).is_none() && !self.gone.contains(sequence);
        let numbers: BTreeSet<u64> = self.gaps.iter().cloned().flatten().filter(unknown).collect();
        affected.lost_unnamed = numbers.len() as u64;
        affected
    }

    fn standing(&self, sequence: u64) -> Standing {
        let Some(history) = self.histories.get(&sequence).filter(|_| self.damaged) else {
            return Standing::Whole;
        };
        if history.from_the_start && history.unbroken && !self.hurt.contains(&sequence) {
            return Standing::Whole;
        }
        let places = self.index.places(sequence).unwrap_or_default();
        let parts = places.iter().fold(0, |parts, at| parts | at.parts);
        let has_payload = parts & (record::BODY | record::FIELDS) != 0;
        let submitted_there = self.gaps.iter().any(|gap| gap.contains(&sequence));
        // An item without any payload may have been submitted so; better to miss that one than to serve an empty one.
        if !history.from_the_start && (submitted_there || !has_payload) {
            return Standing::Lost;
        }
        Standing::Doubtful
    }

    /// Items are worth more than the name of their queue.
    fn remake_queues(&mut self, missing: &[u32], now: Timestamp) -> Vec<String> {
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

enum Standing {
    Whole,
    Doubtful,
    Lost,
}

/// A new store being filled.
struct Rewriting {
    engine: Engine,
    disk: Arc<RealDisk>,
}

impl Rewriting {
    fn begin(survey: &IntegrityScan<'_>, disk: Arc<RealDisk>) -> Result<Rewriting, OpenError> {
        let meta = survey.meta;
        let options = Options { segment_bytes: meta.segment_bytes, salt: meta.salt, ..Options::default() };
        let mut recovered = Recovered::empty(meta);
        recovered.next_item = survey.totals.next_item.max(1);
        recovered.next_queue = survey.totals.next_queue.max(1);
        let time = Timestamp(survey.totals.time);
        recovered.time = time;
        let mut engine = Engine::start(disk.clone(), options, recovered, time)?;
        engine.begin(time).map_err(|error| OpenError::corrupt(&*disk, "the new store", error.to_string()))?;
        Ok(Rewriting { engine, disk })
    }

    fn write(
        mut self,
        survey: &IntegrityScan<'_>,
        ledger: &Ledger,
        report: &mut SalvageReport,
    ) -> Result<(), BackupError> {
        let salt = survey.meta.salt;
        let mut queues: Vec<&Queue> = ledger.index.queues.values().map(|queue| &queue.queue).collect();
        queues.sort_by_key(|queue| queue.id);
        for queue in queues {
            let start = self.engine.frame.len();
            let length = record::encode_queue(&mut self.engine.frame, queue, Some(EventKind::Carried), salt);
            self.append(start, length, |place| IndexUpdate::Queue { queue: Box::new(queue.clone()), place })?;
            report.queues += 1;
        }
        let mut keys: Vec<&String> = ledger.index.kv.keys().collect();
        keys.sort();
        for key in keys {
            let record = &ledger.index.kv[key].record;
            let start = self.engine.frame.len();
            let length = record::encode_kv(&mut self.engine.frame, key, record, salt);
            let entry = |place| IndexUpdate::Kv { key: key.clone(), record: record.clone(), place };
            self.append(start, length, entry)?;
            report.kv += 1;
        }
        for (queue, key, tally) in ledger.index.all_tallies() {
            let start = self.engine.frame.len();
            let length = record::encode_tally(&mut self.engine.frame, queue, &key, &tally, salt);
            self.append(start, length, |place| IndexUpdate::Tally { queue, key, tally, place })?;
        }
        let mut items = Vec::new();
        ledger.index.table.scan(0, usize::MAX, |sequence, slot| {
            let kept = ledger.index.queues.contains_key(&slot.queue);
            if kept && !matches!(ledger.standing(sequence), Standing::Lost) {
                items.push(sequence);
            }
            true
        });
        let segments: FxHashMap<u32, &Segment> =
            survey.log.iter().map(|file| (file.segment.number, &*file.segment)).collect();
        for sequence in items {
            let (Some(head), Some(places)) = (ledger.index.head(sequence), ledger.index.places(sequence))
            else {
                continue;
            };
            let records: Option<Vec<(Vec<u8>, Parts)>> = places
                .iter()
                .map(|at| Some((read_place(&segments, at, sequence, salt)?, at.parts)))
                .collect();
            let Some(records) = records else {
                report.affected.lost.push(head.id);
                continue;
            };
            self.append_item(sequence, &head, &records, salt)?;
            report.items += 1;
        }
        self.finish(survey)
    }

    fn append(
        &mut self,
        start: usize,
        length: u32,
        entry: impl FnOnce(RecordPlace) -> IndexUpdate,
    ) -> Result<(), StoreError> {
        let start = self.engine.fit(start)?;
        let place = self.engine.place(start, length);
        self.engine.apply(entry(place))?;
        if self.engine.group_is_full() {
            self.engine.seal()?;
        }
        // Caches; opening does without.
        self.engine.take_chores();
        Ok(())
    }

    fn append_item(
        &mut self,
        sequence: u64,
        head: &Head,
        records: &[(Vec<u8>, Parts)],
        salt: u64,
    ) -> Result<(), StoreError> {
        for (bytes, parts) in records {
            let unread = |_| StoreError::Unavailable { cause: "a whole record does not decode".to_owned() };
            let record = Record::peek(bytes).map_err(unread)?;
            let start = self.engine.frame.len();
            let event = Some(EventKind::Carried);
            let mut encoder = RecordEncoder::new(&mut self.engine.frame, RecordKind::Item, event, sequence);
            record::encode_head(&mut encoder, head);
            for part in record.parts() {
                let (part, bytes) = part.map_err(unread)?;
                if parts & part != 0 && part != record::HEAD {
                    encoder.part(part, bytes);
                }
            }
            let length = encoder.finish(salt);
            let copy = self.engine.frame[start..].to_vec();
            let nowhere = RecordPlace { segment: 0, offset: 0, length };
            let entry =
                Record::peek(&copy).and_then(|record| IndexUpdate::from_record(&record, nowhere, salt));
            let IndexUpdate::Item(entry) = entry.map_err(unread)? else {
                continue;
            };
            self.append(start, length, |place| IndexUpdate::Item(ItemUpdate { place, ..entry }))?;
        }
        Ok(())
    }

    /// Makes it durable, and last of all a store.
    fn finish(mut self, survey: &IntegrityScan<'_>) -> Result<(), BackupError> {
        self.engine.seal()?;
        self.engine.sync()?;
        self.engine.mark()?;
        self.engine.sync()?;
        let disk = &*self.disk;
        disk.sync_directory().map_err(|error| OpenError::io(disk, "", error))?;
        survey.meta.write(disk).map_err(|error| OpenError::io(disk, META_FILE, error))?;
        Ok(())
    }
}

/// The record at a place, if it still reads.
fn read_place(
    segments: &FxHashMap<u32, &Segment>,
    at: &PartsAt,
    sequence: u64,
    salt: u64,
) -> Option<Vec<u8>> {
    let mut bytes = vec![0; at.place.length as usize];
    let segment = segments.get(&at.place.segment)?;
    let length = read_full(&*segment.file, &mut bytes, u64::from(at.place.offset)).ok()?;
    bytes.truncate(length);
    let record = read_record(&bytes, salt).ok()?;
    (record.subject == sequence).then_some(bytes)
}
