//! Compares sidecars with their segments.

use super::{IntegrityScan, ScannedSegment, place};
use crate::error::OpenError;
use crate::index::update::IndexUpdate;
use crate::log::record::Record;
use crate::log::segment;
use crate::log::sidecar::Sidecar;

impl IntegrityScan<'_> {
    pub(super) fn check_sidecars(&mut self) -> Result<(), OpenError> {
        let names = self.disk.list().map_err(|error| OpenError::io(self.disk, "", error))?;
        let log = std::mem::take(&mut self.log);
        // Opening does not use a sidecar of the newest segment.
        for file in log.iter().rev().skip(1).rev() {
            let name = segment::sidecar_name(file.header.number);
            if !names.contains(&name) {
                continue;
            }
            let Some(sidecar) = Sidecar::read(self.disk, &file.header, self.meta.salt) else {
                let what = "this sidecar does not belong to its segment; opening reads the segment instead";
                self.harmless(&name, 0, what);
                continue;
            };
            if self.is_whole() && !self.agrees(&sidecar, file)? {
                let what = "this sidecar contradicts its segment; remove it, the store does not need it";
                self.damaged(&name, 0, what);
            }
        }
        self.log = log;
        Ok(())
    }

    /// Whether sidecar and segment give the index the same updates.
    fn agrees(&self, sidecar: &Sidecar, file: &ScannedSegment) -> Result<bool, OpenError> {
        let (bytes, salt, number) = (self.read(file)?, self.meta.salt, file.segment.number);
        let mut updates = Vec::new();
        let read = sidecar.updates(number, salt, |update| {
            updates.push(update);
            Ok(())
        });
        let mut updates = updates.into_iter();
        let mut same = read.is_ok() && sidecar.end == file.end;
        bytes.frames(&file.header, self.checks(), |_, offset, records| {
            for (at, record) in Record::all_in(records).flatten().filter(|_| offset < file.end) {
                let place = place(number, offset + at as u64, record.bytes.len());
                let update = IndexUpdate::from_record(&record, place, salt).ok();
                same &= format!("{update:?}") == format!("{:?}", updates.next());
            }
            Ok::<_, OpenError>(())
        })?;
        Ok(same && updates.next().is_none())
    }
}
