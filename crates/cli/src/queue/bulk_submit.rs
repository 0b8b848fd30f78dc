//! `towline queue submit --bulk`: submits a file of items in bounded memory.
//!
//! Makes one call at a time while the reader prepares the next lines. So items are submitted in the order of
//! their lines.

use super::bulk_reader::{self, BulkLine, LineBatch};
use crate::connect::Session;
use crate::exit::Failure;
use crate::output::{self, Format};
use crate::source::Source;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::io::{self, BufWriter, IsTerminal, Stdout, Write};
use std::time::Duration;
use towline_api::{Client, ClientError, ErrorBody, Submitted};

/// How long to wait for a server that restarts. A call that may have been carried out is repeated only if
/// that is safe.
const PATIENCE: Duration = Duration::from_secs(60);

pub async fn run(session: &Session, queue: &str, from: Source, wait: Duration) -> Result<(), Failure> {
    let client = session.client.clone().retry_for(PATIENCE);
    // Report a missing queue before reading a pipe full of items.
    session.client.queue(queue).await?;
    let (from, length) = bulk_reader::open(from)?;
    let bar = bar(length);
    let mut lines = bulk_reader::read(from, bar.clone())?;
    let mut results = Results::new(session.output.requested());
    let end = loop {
        match lines.next().await {
            None => break Ok(()),
            Some(Err(error)) => break Err(Failure::Refused(format!("cannot read the next lines: {error}"))),
            Some(Ok(batch)) => {
                if let Err(failure) = submit(&client, (queue, wait), batch, &mut results, &bar).await {
                    break Err(failure);
                }
            }
        }
    };
    bar.finish_and_clear();
    results.finish();
    end?;
    if results.refused > 0 {
        output::say(format!(
            "{} of {} lines were refused",
            results.refused,
            results.refused + results.accepted
        ));
        return Err(Failure::AlreadyReported);
    }
    Ok(())
}

async fn submit(
    client: &Client,
    (queue, wait): (&str, Duration),
    batch: LineBatch,
    results: &mut Results,
    bar: &ProgressBar,
) -> Result<(), Failure> {
    let Some(first) = batch.lines.first().map(|line| line.number) else { return Ok(()) };
    let mut items = Vec::new();
    let mut lines = Vec::with_capacity(batch.lines.len());
    for BulkLine { number, shown, item } in batch.lines {
        let error = match item {
            Ok(item) => {
                items.push(item);
                None
            }
            Err(error) => Some(error),
        };
        lines.push((number, shown, error));
    }
    let submitted = match items.is_empty() {
        true => Vec::new(),
        false => client.submit_or_wait(queue, items, wait).await.map_err(|error| stopped(first, error))?,
    };
    let mut submitted = submitted.into_iter();
    for (line, shown, error) in lines {
        let submitted = match error {
            Some(error) => Submitted { error: Some(error), ..Submitted::default() },
            None => submitted.next().unwrap_or_default(),
        };
        if let Some(ErrorBody { message, .. }) = &submitted.error {
            bar.suspend(|| output::say(format!("line {line}: {message}: {shown}")));
        }
        for note in &submitted.notes {
            bar.suspend(|| output::say(format!("line {line}: {note}")));
        }
        results.push(line, &submitted);
    }
    bar.set_message(results.accepted.to_string());
    results.flush();
    Ok(())
}

/// Says which lines were not submitted.
fn stopped(first: u64, error: ClientError) -> Failure {
    let lost = matches!(error, ClientError::Unreachable { .. });
    let remedy = match lost {
        true => "; items with an idempotency_key can safely be submitted again",
        false => "",
    };
    match Failure::from(error) {
        Failure::Unreachable(words) => {
            Failure::Unreachable(format!("nothing was acknowledged from line {first} on: {words}{remedy}"))
        }
        Failure::Refused(words) => {
            Failure::Refused(format!("nothing was submitted from line {first} on: {words}"))
        }
        other => other,
    }
}

/// A progress bar, only where it does not mix with the printed ids.
fn bar(length: Option<u64>) -> ProgressBar {
    if io::stdout().is_terminal() || !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let (bar, template) = match length {
        Some(length) => {
            (ProgressBar::new(length), "{bar:30} {percent}%  {msg} items  {bytes_per_sec}  {eta} left")
        }
        None => (ProgressBar::new_spinner(), "{spinner} {msg} items  {bytes}  {bytes_per_sec}"),
    };
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    bar.set_style(style);
    bar.set_message("0");
    bar
}

/// Prints the results of the lines.
struct Results {
    format: Option<Format>,
    /// `None` after the reader closed the pipe. The items are still submitted.
    out: Option<BufWriter<Stdout>>,
    accepted: u64,
    refused: u64,
}

#[derive(Serialize)]
struct ResultLine<'a> {
    line: u64,
    #[serde(flatten)]
    submitted: &'a Submitted,
}

impl Results {
    fn new(format: Option<Format>) -> Results {
        Results { format, out: Some(BufWriter::new(io::stdout())), accepted: 0, refused: 0 }
    }

    fn push(&mut self, line: u64, submitted: &Submitted) {
        let begun = self.accepted + self.refused > 0;
        match submitted.error {
            None => self.accepted += 1,
            Some(_) => self.refused += 1,
        }
        let format = self.format;
        self.print(|out| match format {
            Some(Format::Json) => {
                out.write_all(if begun { b",\n" } else { b"[\n" })?;
                Ok(serde_json::to_writer(out, &ResultLine { line, submitted })?)
            }
            Some(Format::Ndjson) => {
                serde_json::to_writer(&mut *out, &ResultLine { line, submitted })?;
                out.write_all(b"\n")
            }
            Some(Format::Table) | None => match &submitted.id {
                Some(id) => writeln!(out, "{id}"),
                None => Ok(()),
            },
        });
    }

    fn flush(&mut self) {
        self.print(Write::flush);
    }

    fn finish(&mut self) {
        if self.format == Some(Format::Json) {
            let begun = self.accepted + self.refused > 0;
            self.print(|out| out.write_all(if begun { b"\n]\n" } else { b"[]\n" }));
        }
        self.flush();
    }

    fn print(&mut self, print: impl FnOnce(&mut BufWriter<Stdout>) -> io::Result<()>) {
        let Some(out) = &mut self.out else { return };
        if let Err(error) = print(out) {
            if error.kind() != io::ErrorKind::BrokenPipe {
                output::say(format!("cannot print further ids: {error}"));
            }
            self.out = None;
        }
    }
}
