//! Reads an export into an empty store.

use super::{BATCH_ITEMS, ExportLine, ExportedItem, TransferError, TransferSummary, VERSION, open};
use crate::backend::buffers::open_and_claim;
use crate::config::Settings;
use crate::server::open_audit_log;
use std::io::{BufRead, Read};
use std::sync::Arc;
use towline_broker::{Payloads, SteadyClock};
use towline_domain::{Field, Queue, QueueState, limits};
use towline_store::{Clock, Operation, Restore, Store};

/// A batch is written when it has this many bytes, even if it has fewer than [`BATCH_ITEMS`] items.
const BATCH_BYTES: usize = 8 << 20;
/// The largest payload fields in base64, plus everything else an item can have.
const LINE_BYTES_MAX: u64 =
    (limits::FIELD_BYTES_MAX as u64 / 3 + 1) * 4 * Field::ALL.len() as u64 + (8 << 20);

/// Reads an export into the configured store, which must be empty.
pub async fn import(settings: &Settings, input: impl BufRead) -> Result<TransferSummary, TransferError> {
    let backend = open(settings).await?;
    let store = backend.store();
    if !store.queues(None, 1).await?.is_empty() {
        return Err(TransferError::NotEmpty);
    }
    let audit = open_audit_log(settings)?;
    let clock = SteadyClock::new();
    let buffers = open_and_claim(settings, &store.identity(), &audit, clock.now()).await?;
    let payloads = Payloads::new(buffers, settings.offload);
    let summary = TransferSummary::default();
    let mut import =
        Import { store, payloads, clock, summary, queues: Vec::new(), batch: Vec::new(), bytes: 0 };
    let mut lines = LineReader { input, line: 0 };
    match lines.next()? {
        Some(ExportLine::Towline { export }) if export <= VERSION => {}
        Some(ExportLine::Towline { export }) => {
            let problem = format!("version {export} is newer than {VERSION}; use a newer towline");
            return Err(lines.wrong(problem));
        }
        _ => return Err(lines.wrong("this is not a Towline export".to_owned())),
    }
    loop {
        match lines.next()? {
            Some(ExportLine::Queue(queue)) => import.queue(*queue, lines.line).await?,
            Some(ExportLine::Item(item)) => import.item(*item, lines.line).await?,
            Some(ExportLine::End(exported)) => {
                import.write_batch().await?;
                if import.summary != exported {
                    let problem = format!("{exported} were exported, but {} were read", import.summary);
                    return Err(lines.wrong(problem));
                }
                return import.finish(lines.line).await;
            }
            Some(ExportLine::Towline { .. }) => {
                return Err(lines.wrong("a second export starts here".to_owned()));
            }
            None => {
                let problem = "the export is incomplete; start again with an empty store";
                return Err(lines.wrong(problem.to_owned()));
            }
        }
    }
}

struct LineReader<R> {
    input: R,
    line: u64,
}

impl<R: BufRead> LineReader<R> {
    fn next(&mut self) -> Result<Option<ExportLine>, TransferError> {
        let mut text = Vec::new();
        let mut bounded = (&mut self.input).take(LINE_BYTES_MAX);
        bounded.read_until(b'\n', &mut text).map_err(TransferError::Input)?;
        if text.is_empty() {
            return Ok(None);
        }
        self.line += 1;
        if text.len() as u64 == LINE_BYTES_MAX {
            return Err(self.wrong(format!("the line is longer than {LINE_BYTES_MAX} bytes")));
        }
        serde_json::from_slice(&text).map(Some).map_err(|error| self.wrong(error.to_string()))
    }

    fn wrong(&self, problem: String) -> TransferError {
        TransferError::Line { line: self.line, problem }
    }
}

struct Import {
    store: Arc<dyn Store>,
    payloads: Payloads,
    clock: SteadyClock,
    summary: TransferSummary,
    queues: Vec<Queue>,
    /// Each operation with the line it comes from.
    batch: Vec<(u64, Operation)>,
    bytes: usize,
}

impl Import {
    async fn queue(&mut self, queue: Queue, line: u64) -> Result<(), TransferError> {
        let operation = Operation::CreateQueue {
            queue: queue.name.clone(),
            schema: Box::new(queue.schema.clone()),
            policy: Box::new(queue.policy.clone()),
        };
        self.update(vec![(line, operation)]).await?;
        self.queues.push(queue);
        self.summary.queues += 1;
        Ok(())
    }

    async fn item(&mut self, item: ExportedItem, line: u64) -> Result<(), TransferError> {
        let mut restore = Restore::try_from(item).map_err(|error| {
            let problem = format!("a field is not in base64: {error}");
            TransferError::Line { line, problem }
        })?;
        let offloaded = self.payloads.offload(&mut restore.item, self.clock.now()).await;
        offloaded.map_err(|refusal| TransferError::Line { line, problem: refusal.to_string() })?;
        self.bytes += restore.item.fields.bytes();
        self.batch.push((line, Operation::Restore(Box::new(restore))));
        self.summary.items += 1;
        if self.batch.len() >= BATCH_ITEMS || self.bytes >= BATCH_BYTES {
            self.write_batch().await?;
        }
        Ok(())
    }

    async fn write_batch(&mut self) -> Result<(), TransferError> {
        self.bytes = 0;
        let batch = std::mem::take(&mut self.batch);
        self.update(batch).await
    }

    /// Pauses and closes queues as they were. This comes last, because a closed queue accepts no items.
    async fn finish(self, line: u64) -> Result<TransferSummary, TransferError> {
        for Queue { name: queue, paused, state, .. } in &self.queues {
            if *paused {
                self.update(vec![(line, Operation::PauseQueue { queue: queue.clone() })]).await?;
            }
            if *state != QueueState::Open {
                self.update(vec![(line, Operation::CloseQueue { queue: queue.clone() })]).await?;
            }
        }
        Ok(self.summary)
    }

    async fn update(&self, batch: Vec<(u64, Operation)>) -> Result<(), TransferError> {
        let (lines, operations): (Vec<u64>, Vec<Operation>) = batch.into_iter().unzip();
        let answers = self.store.update(operations).await?.answers;
        for (line, answered) in lines.into_iter().zip(answers) {
            answered.map_err(|refusal| TransferError::Line { line, problem: refusal.to_string() })?;
        }
        Ok(())
    }
}
