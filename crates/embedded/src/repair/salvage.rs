//! Salvage: writes a new store with all intact content of a damaged store.
//!
//! **Invariant:** it writes nothing to the damaged store.

use super::backup::BackupError;
use super::damage::{Affected, Condition, Survivors};
use super::directories::{clear, empty_target, lock, open_source};
use super::integrity_scan::{Finding, IntegrityScan};
use crate::engine::Engine;
use crate::error::OpenError;
use crate::index::table::PartsAt;
use crate::index::update::{IndexUpdate, ItemUpdate};
use crate::log::disk::{Disk, RealDisk, read_full};
use crate::log::meta::{COPIED, META_FILE, Meta};
use crate::log::record::{self, Parts, Record, RecordEncoder, RecordKind, RecordPlace};
use crate::log::segment::Segment;
use crate::options::Options;
use crate::recovery::Recovered;
use rustc_hash::FxHashMap;
use std::path::Path;
use std::sync::Arc;
use towline_domain::{EventKind, Head, Queue, Timestamp};
use towline_store::StoreError;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SalvageReport {
    pub items: u64,
    pub queues: u64,
    pub kv: u64,
    /// Names of queues that salvage created for items whose queue is gone. They are paused and have the default policy.
    pub queues_remade: Vec<String>,
    pub findings: Vec<Finding>,
    pub affected: Affected,
}

/// Writes a new store with all intact content into a directory that is empty or does not exist.
///
/// Items keep their ids, states, leases and errors.
pub fn salvage(path: &Path, target: &Path) -> Result<SalvageReport, BackupError> {
    salvage_with_progress(path, target, &mut |_| {})
}

/// The same. Calls `read` with the number of bytes after each segment is read; each one is read twice.
pub fn salvage_with_progress(
    path: &Path,
    target: &Path,
    read: &mut dyn FnMut(u64),
) -> Result<SalvageReport, BackupError> {
    let source = open_source(path)?;
    let _lock = lock(&source)?;
    let mut scan = IntegrityScan::of(&source, read)?;
    let mut survivors = Survivors::of(&mut scan)?;
    let mut report = SalvageReport { affected: survivors.affected(), ..SalvageReport::default() };
    report.queues_remade = survivors.remake_queues(&report.affected.queues, Timestamp(scan.totals.time));
    let disk = Arc::new(empty_target(target)?);
    let written = SalvageWriter::begin(&scan, disk.clone())?.write(&scan, &survivors, &mut report);
    if written.is_err() {
        clear(&*disk);
    }
    written?;
    report.findings = scan.findings;
    Ok(report)
}

/// Writes the new store.
struct SalvageWriter {
    engine: Engine,
    disk: Arc<RealDisk>,
}

impl SalvageWriter {
    fn begin(scan: &IntegrityScan<'_>, disk: Arc<RealDisk>) -> Result<SalvageWriter, OpenError> {
        let meta = scan.meta;
        let options = Options { segment_bytes: meta.segment_bytes, salt: meta.salt, ..Options::default() };
        let mut recovered = Recovered::empty(meta);
        recovered.next_item = scan.totals.next_item.max(1);
        recovered.next_queue = scan.totals.next_queue.max(1);
        let time = Timestamp(scan.totals.time);
        recovered.time = time;
        let mut engine = Engine::start(disk.clone(), options, recovered, time)?;
        engine.begin(time).map_err(|error| OpenError::corrupt(&*disk, "the new store", error.to_string()))?;
        Ok(SalvageWriter { engine, disk })
    }

    fn write(
        mut self,
        scan: &IntegrityScan<'_>,
        survivors: &Survivors,
        report: &mut SalvageReport,
    ) -> Result<(), BackupError> {
        let salt = scan.meta.salt;
        let mut queues: Vec<&Queue> = survivors.index.queues.values().map(|queue| &queue.queue).collect();
        queues.sort_by_key(|queue| queue.id);
        for queue in queues {
            let start = self.engine.frame.len();
            let length = record::encode_queue(&mut self.engine.frame, queue, Some(EventKind::Carried), salt);
            self.append(start, length, |place| IndexUpdate::Queue { queue: Box::new(queue.clone()), place })?;
            report.queues += 1;
        }
        let mut keys: Vec<&String> = survivors.index.kv.keys().collect();
        keys.sort();
        for key in keys {
            let record = &survivors.index.kv[key].record;
            let start = self.engine.frame.len();
            let length = record::encode_kv(&mut self.engine.frame, key, record, salt);
            let update = |place| IndexUpdate::Kv { key: key.clone(), record: record.clone(), place };
            self.append(start, length, update)?;
            report.kv += 1;
        }
        for (queue, key, tally) in survivors.index.all_tallies() {
            let start = self.engine.frame.len();
            let length = record::encode_tally(&mut self.engine.frame, queue, &key, &tally, salt);
            self.append(start, length, |place| IndexUpdate::Tally { queue, key, tally, place })?;
        }
        self.write_items(scan, survivors, report)?;
        self.finish(scan)
    }

    fn write_items(
        &mut self,
        scan: &IntegrityScan<'_>,
        survivors: &Survivors,
        report: &mut SalvageReport,
    ) -> Result<(), StoreError> {
        let salt = scan.meta.salt;
        let mut items = Vec::new();
        survivors.index.table.scan(0, usize::MAX, |sequence, slot| {
            let kept = survivors.index.queues.contains_key(&slot.queue);
            if kept && !matches!(survivors.condition(sequence), Condition::Lost) {
                items.push(sequence);
            }
            true
        });
        let segments: FxHashMap<u32, &Segment> =
            scan.log.iter().map(|file| (file.segment.number, &*file.segment)).collect();
        for sequence in items {
            let (Some(head), Some(places)) =
                (survivors.index.head(sequence), survivors.index.places(sequence))
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
        Ok(())
    }

    fn append(
        &mut self,
        start: usize,
        length: u32,
        update: impl FnOnce(RecordPlace) -> IndexUpdate,
    ) -> Result<(), StoreError> {
        let start = self.engine.fit(start)?;
        let place = self.engine.place(start, length);
        self.engine.apply(update(place))?;
        if self.engine.group_is_full() {
            self.engine.seal()?;
        }
        // Chores write caches, which opening does not need.
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
            let unread = |_| StoreError::Unavailable { cause: "an intact record does not decode".to_owned() };
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
            let update =
                Record::peek(&copy).and_then(|record| IndexUpdate::from_record(&record, nowhere, salt));
            let IndexUpdate::Item(update) = update.map_err(unread)? else {
                continue;
            };
            self.append(start, length, |place| IndexUpdate::Item(ItemUpdate { place, ..update }))?;
        }
        Ok(())
    }

    /// Makes all content durable. Writes `towline.meta` last, so that an unfinished directory is not a store.
    fn finish(mut self, scan: &IntegrityScan<'_>) -> Result<(), BackupError> {
        self.engine.seal()?;
        self.engine.sync()?;
        self.engine.mark()?;
        self.engine.sync()?;
        let disk = &*self.disk;
        disk.sync_directory().map_err(|error| OpenError::io(disk, "", error))?;
        let meta = Meta { history: COPIED, ..scan.meta };
        meta.write(disk).map_err(|error| OpenError::io(disk, META_FILE, error))?;
        Ok(())
    }
}

/// The record at a place. `None`: it does not read.
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
    let record = Record::read_valid(&bytes, salt).ok()?;
    (record.subject == sequence).then_some(bytes)
}
