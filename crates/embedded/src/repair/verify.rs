//! Verify: reads a store that is not in use, lists all damage, and says what the damage costs.
//!
//! **Invariant:** it writes nothing.

use super::damage::{Affected, Survivors};
use super::directories::{lock, open_source};
use super::integrity_scan::{Finding, IntegrityScan};
use crate::error::OpenError;
use std::path::Path;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VerifyReport {
    pub segments: u64,
    pub frames: u64,
    pub records: u64,
    pub bytes: u64,
    pub findings: Vec<Finding>,
    /// Empty unless there is damage.
    pub affected: Affected,
}

impl VerifyReport {
    /// Whether the store has no damage.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.findings.iter().all(|finding| finding.harmless)
    }
}

/// Reads and checks all files in the directory of a store that is not in use.
pub fn verify(path: &Path) -> Result<VerifyReport, OpenError> {
    verify_with_progress(path, &mut |_| {})
}

/// The same. Calls `read` with the number of bytes after each segment is read.
pub fn verify_with_progress(path: &Path, read: &mut dyn FnMut(u64)) -> Result<VerifyReport, OpenError> {
    let disk = open_source(path)?;
    let _lock = lock(&disk)?;
    let mut scan = IntegrityScan::of(&disk, read)?;
    let mut report = VerifyReport {
        segments: scan.log.len() as u64,
        frames: scan.totals.frames,
        records: scan.totals.records,
        bytes: scan.totals.bytes,
        ..VerifyReport::default()
    };
    if !scan.is_whole() {
        report.affected = Survivors::of(&mut scan)?.affected();
    }
    report.findings = scan.findings;
    Ok(report)
}
