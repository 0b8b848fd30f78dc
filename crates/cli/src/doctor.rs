//! `towline doctor`: checks an embedded store, its buffers and its list as a backup, and saves what is intact of a damaged one.

use crate::exit::Failure;
use crate::output::{self, Format, Output};
use crate::progress;
use crate::serve::environment;
use crate::store_args::runtime;
use clap::Args;
use indicatif::ProgressBar;
use serde::Serialize;
use std::fmt::Write;
use std::path::PathBuf;
use towline_server::Settings;
use towline_server::backup::{BackupCheck, LIST_FILE, check_backup};
use towline_server::config::StoreChoice;
use towline_server::doctor::{
    Affected, BuffersCheck, Finding, ObjectReport, SalvageReport, VerifyReport, check_buffers,
    salvage_with_progress, verify_with_progress,
};

/// Findings and ids that are printed as text. `-o json` prints all of them.
const LISTED_MAX: usize = 20;

/// Check every byte of an embedded store and of its buffers. Stop the server first.
///
/// Reads all files, changes nothing, and exits with 1 if the store or its buffers are damaged. In the directory of a backup,
/// compares every file with the list `towline.backup`. With `--salvage`, writes everything of the store that is intact to a
/// new store in another directory, and exits with 0 if that succeeds.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Configuration file [default: towline.toml, if it exists]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Directory of the store [default: towline-data]
    #[arg(long, value_name = "DIRECTORY")]
    data: Option<String>,
    /// Place for buffers: a directory, or s3://bucket/prefix, which is checked only if this flag names it [default: `buffers`
    /// in the data directory]
    #[arg(long, value_name = "PLACE")]
    buffers: Option<String>,
    /// Write the intact content to a new store in this directory. It must be empty or not exist
    #[arg(long, value_name = "DIRECTORY")]
    salvage: Option<PathBuf>,
}

#[derive(Debug, Serialize)]
struct Diagnosis {
    directory: String,
    whole: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    read: Option<Totals>,
    #[serde(skip_serializing_if = "Option::is_none")]
    backup: Option<ListedFiles>,
    #[serde(skip_serializing_if = "Option::is_none")]
    buffers: Option<CheckedBuffers>,
    findings: Vec<Found>,
    affected: Costs,
    #[serde(skip_serializing_if = "Option::is_none")]
    salvaged: Option<Salvaged>,
}

#[derive(Debug, Serialize)]
struct Totals {
    segments: u64,
    frames: u64,
    records: u64,
    bytes: u64,
}

/// The files in the list of a backup.
#[derive(Debug, Serialize)]
struct ListedFiles {
    files: u64,
    bytes: u64,
}

/// The objects in the place for buffers.
#[derive(Debug, Serialize)]
struct CheckedBuffers {
    place: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    checked: Option<CheckedObjects>,
}

#[derive(Debug, Serialize)]
struct CheckedObjects {
    buffers: u64,
    payloads: u64,
    bytes: u64,
    damaged: u64,
}

#[derive(Debug, Serialize)]
struct Found {
    file: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    byte: Option<u64>,
    what: String,
    harmless: bool,
}

#[derive(Debug, Serialize)]
struct Costs {
    lost: Vec<String>,
    lost_unknown: u64,
    incomplete: Vec<String>,
    queues_without_definition: u64,
    may_reappear: bool,
}

#[derive(Debug, Serialize)]
struct Salvaged {
    directory: String,
    items: u64,
    queues: u64,
    records: u64,
    queues_recreated: Vec<String>,
}

pub fn run(args: &DoctorArgs, output: Output) -> Result<(), Failure> {
    let given = [("data", &args.data), ("buffers", &args.buffers)];
    let flags: Vec<_> = given.into_iter().filter_map(|(name, value)| Some((name, value.clone()?))).collect();
    let settings = Settings::load(args.config.as_deref(), environment(), &flags)
        .map_err(|error| Failure::Usage(error.to_string()))?;
    if settings.store != StoreChoice::Embedded {
        let words = "doctor checks an embedded store; for PostgreSQL use the database's own tools";
        return Err(Failure::Usage(words.to_owned()));
    }
    let directory = settings.data.display().to_string();
    let bar = progress::bar(None);
    let diagnosis = match &args.salvage {
        None => check(args, &settings, directory, &bar),
        Some(target) => {
            output::say(format!("salvaging {directory} to {}", target.display()));
            let salvaged = salvage_with_progress(&settings.data, target, &mut |bytes| bar.inc(bytes));
            let report = salvaged.map_err(Failure::refused);
            report.map(|report| Diagnosis::of_salvage(directory, target.display().to_string(), report))
        }
    };
    bar.finish_and_clear();
    let diagnosis = diagnosis?;
    match output.requested() {
        Some(Format::Json | Format::Ndjson) => output.object(&diagnosis)?,
        Some(Format::Table) | None => output::text(&output::printable(&diagnosis.text()))?,
    }
    if diagnosis.whole || diagnosis.salvaged.is_some() { Ok(()) } else { Err(Failure::AlreadyReported) }
}

fn check(
    args: &DoctorArgs,
    settings: &Settings,
    directory: String,
    bar: &ProgressBar,
) -> Result<Diagnosis, Failure> {
    let verified = verify_with_progress(&settings.data, &mut |bytes| bar.inc(bytes));
    let mut diagnosis = Diagnosis::of(directory, verified.map_err(Failure::refused)?);
    let listed = check_backup(&settings.data, &mut |bytes| bar.inc(bytes)).map_err(Failure::refused)?;
    if let Some(listed) = listed {
        diagnosis.add_list(listed);
    }
    let mut read = |bytes| bar.inc(bytes);
    let objects = check_buffers(settings, args.buffers.is_some(), &mut read);
    match runtime()?.block_on(objects).map_err(Failure::refused)? {
        BuffersCheck::Checked { place, report } => diagnosis.add_objects(place, report),
        BuffersCheck::NotChecked { place } => {
            diagnosis.buffers = Some(CheckedBuffers { place, checked: None });
        }
        BuffersCheck::Nothing => {}
    }
    Ok(diagnosis)
}

impl Diagnosis {
    fn of(directory: String, report: VerifyReport) -> Diagnosis {
        let whole = report.is_whole();
        let VerifyReport { segments, frames, records, bytes, findings, affected } = report;
        let read = Some(Totals { segments, frames, records, bytes });
        Diagnosis {
            directory,
            whole,
            read,
            backup: None,
            buffers: None,
            findings: found(findings),
            affected: costs(&affected),
            salvaged: None,
        }
    }

    fn of_salvage(directory: String, target: String, report: SalvageReport) -> Diagnosis {
        let whole = report.findings.iter().all(|finding| finding.harmless);
        let SalvageReport { items, queues, kv, queues_remade, findings, affected } = report;
        let salvaged =
            Some(Salvaged { directory: target, items, queues, records: kv, queues_recreated: queues_remade });
        Diagnosis {
            directory,
            whole,
            read: None,
            backup: None,
            buffers: None,
            findings: found(findings),
            affected: costs(&affected),
            salvaged,
        }
    }

    fn add_list(&mut self, BackupCheck { files, bytes, findings }: BackupCheck) {
        self.backup = Some(ListedFiles { files, bytes });
        self.add_findings(findings);
    }

    fn add_objects(&mut self, place: String, report: ObjectReport) {
        let ObjectReport { buffers, blobs: payloads, bytes, findings } = report;
        let damaged = findings.len() as u64;
        let checked = Some(CheckedObjects { buffers, payloads, bytes, damaged });
        let found = findings.into_iter().map(|finding| (format!("{place}: {}", finding.id), finding.what));
        let found = found.collect();
        self.buffers = Some(CheckedBuffers { place, checked });
        self.add_findings(found);
    }

    fn add_findings(&mut self, findings: Vec<(String, String)>) {
        self.whole &= findings.is_empty();
        let found = |(file, what)| Found { file, byte: None, what, harmless: false };
        self.findings.extend(findings.into_iter().map(found));
    }

    fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = self.write(&mut text);
        text
    }

    fn write(&self, text: &mut String) -> std::fmt::Result {
        if let Some(read) = &self.read {
            let Totals { segments, records, bytes, .. } = read;
            writeln!(text, "{}: read {segments} segments, {records} records, {bytes} bytes", self.directory)?;
        }
        if let Some(ListedFiles { files, bytes }) = &self.backup {
            writeln!(text, "{LIST_FILE}: compared {files} files, {bytes} bytes")?;
        }
        if let Some(CheckedBuffers { place, checked }) = &self.buffers {
            match checked {
                Some(CheckedObjects { buffers, payloads, bytes, .. }) => {
                    writeln!(
                        text,
                        "{place}: read {buffers} buffers, {payloads} offloaded payloads, {bytes} bytes"
                    )?;
                }
                None => writeln!(text, "{place}: not checked; check it with --buffers {place}")?,
            }
        }
        for finding in self.findings.iter().take(LISTED_MAX) {
            let at = finding.byte.map(|byte| format!(" at byte {byte}")).unwrap_or_default();
            let note = if finding.harmless { " (harmless)" } else { "" };
            writeln!(text, "{}{at}: {}{note}", finding.file, finding.what)?;
        }
        if self.findings.len() > LISTED_MAX {
            writeln!(text, "... and {} more; -o json lists all", self.findings.len() - LISTED_MAX)?;
        }
        list(text, "items whose payload is lost", &self.affected.lost)?;
        list(text, "items that may lack a change", &self.affected.incomplete)?;
        if self.affected.lost_unknown > 0 {
            writeln!(text, "lost items of unknown id, at most: {}", self.affected.lost_unknown)?;
        }
        if self.affected.may_reappear {
            writeln!(
                text,
                "items that were settled or removed in a damaged part may return in an earlier state"
            )?;
        }
        if let Some(Salvaged { directory, items, queues, records, queues_recreated }) = &self.salvaged {
            writeln!(text, "{directory}: saved {queues} queues, {items} items, {records} records")?;
            list(text, "queues created for items without a queue, paused", queues_recreated)?;
        }
        let log_is_damaged = self.findings.iter().any(|finding| finding.byte.is_some() && !finding.harmless);
        match (self.whole, &self.salvaged) {
            (true, _) => writeln!(text, "the store is intact"),
            (false, None) if !log_is_damaged && self.backup.is_some() => {
                writeln!(text, "the log is intact, but this is not the whole backup: use another one")
            }
            (false, None) if !log_is_damaged => writeln!(
                text,
                "the log is intact, but objects are damaged: restore them from a backup, or delete these buffers and the items with \
                 these payloads"
            ),
            (false, None) => writeln!(
                text,
                "the store is damaged: restore a backup, or save the intact part with `towline doctor --data {} --salvage NEW`",
                self.directory
            ),
            (false, Some(salvaged)) => {
                writeln!(
                    text,
                    "the store is damaged; serve the saved part with `towline serve --data {}`",
                    salvaged.directory
                )
            }
        }
    }
}

fn list(text: &mut String, what: &str, names: &[String]) -> std::fmt::Result {
    if names.is_empty() {
        return Ok(());
    }
    let more = if names.len() > LISTED_MAX { ", ... (-o json lists all)" } else { "" };
    let shown = names.iter().take(LISTED_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
    writeln!(text, "{what}: {}: {shown}{more}", names.len())
}

fn found(findings: Vec<Finding>) -> Vec<Found> {
    let found = |Finding { file, byte, what, harmless }| Found { file, byte: Some(byte), what, harmless };
    findings.into_iter().map(found).collect()
}

fn costs(affected: &Affected) -> Costs {
    Costs {
        lost: affected.lost.iter().map(ToString::to_string).collect(),
        lost_unknown: affected.lost_unknown,
        incomplete: affected.incomplete.iter().map(ToString::to_string).collect(),
        queues_without_definition: affected.queues.len() as u64,
        may_reappear: affected.may_reappear,
    }
}
