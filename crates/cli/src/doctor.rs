//! `towline doctor`: checks an embedded store, and saves what is intact of a damaged one.

use crate::exit::Failure;
use crate::output::{self, Format, Output};
use crate::serve::environment;
use clap::Args;
use serde::Serialize;
use std::fmt::Write;
use std::path::PathBuf;
use towline_server::Settings;
use towline_server::config::StoreChoice;
use towline_server::doctor::{Affected, Finding, SalvageReport, VerifyReport, salvage, verify};

/// Findings and ids that are printed as text. `-o json` prints all of them.
const LISTED_MAX: usize = 20;

/// Check every byte of an embedded store. Stop the server first.
///
/// Reads all files, changes nothing, and exits with 1 if the store is damaged. With `--salvage`, writes everything
/// that is intact to a new store in another directory, and exits with 0 if that succeeds.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Configuration file [default: towline.toml, if it exists]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Directory of the store [default: towline-data]
    #[arg(long, value_name = "DIRECTORY")]
    data: Option<String>,
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

#[derive(Debug, Serialize)]
struct Found {
    file: String,
    byte: u64,
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
    let flags: Vec<_> = args.data.iter().map(|data| ("data", data.clone())).collect();
    let settings = Settings::load(args.config.as_deref(), environment(), &flags)
        .map_err(|error| Failure::Usage(error.to_string()))?;
    if settings.store != StoreChoice::Embedded {
        let words = "doctor checks an embedded store; for PostgreSQL use the database's own tools";
        return Err(Failure::Usage(words.to_owned()));
    }
    let directory = settings.data.display().to_string();
    let diagnosis = match &args.salvage {
        None => Diagnosis::of(directory, verify(&settings.data).map_err(Failure::refused)?),
        Some(target) => {
            output::say(format!("salvaging {directory} to {}", target.display()));
            let report = salvage(&settings.data, target).map_err(Failure::refused)?;
            Diagnosis::of_salvage(directory, target.display().to_string(), report)
        }
    };
    match output.requested() {
        Some(Format::Json | Format::Ndjson) => output.object(&diagnosis)?,
        Some(Format::Table) | None => output::text(&output::printable(&diagnosis.text()))?,
    }
    if diagnosis.whole || diagnosis.salvaged.is_some() { Ok(()) } else { Err(Failure::AlreadyReported) }
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
            findings: found(findings),
            affected: costs(&affected),
            salvaged,
        }
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
        for finding in self.findings.iter().take(LISTED_MAX) {
            let note = if finding.harmless { " (harmless)" } else { "" };
            writeln!(text, "{} at byte {}: {}{note}", finding.file, finding.byte, finding.what)?;
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
        match (self.whole, &self.salvaged) {
            (true, _) => writeln!(text, "the store is intact"),
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
    let found = |Finding { file, byte, what, harmless }| Found { file, byte, what, harmless };
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
