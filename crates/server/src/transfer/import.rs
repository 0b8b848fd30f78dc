//! Reads an export into an empty store.

use super::record::{ExportedRecord, RecordKind};
use super::{BATCH_ITEMS, ExportLine, ExportedItem, TransferError, TransferSummary, VERSION, open};
use crate::backend::buffers::open_and_claim;
use crate::config::Settings;
use crate::server::open_audit_log;
use std::io::{BufRead, Read};
use std::sync::Arc;
use towline_broker::{Payloads, SteadyClock, begin_groups};
use towline_domain::kv::{KvAnswer, KvCommand};
use towline_domain::{Field, Policy, Queue, QueueState, limits};
use towline_store::{Clock, KvPage, Operation, Reply, Restore, Store, StoreError, name_dead_letter_queues};

/// A batch is written when it has this many bytes, even if it has fewer than [`BATCH_ITEMS`] items.
const BATCH_BYTES: usize = 8 << 20;
/// The largest payload fields in base64, plus everything else an item can have.
const LINE_BYTES_MAX: u64 =
    (limits::FIELD_BYTES_MAX as u64 / 3 + 1) * 4 * Field::ALL.len() as u64 + (8 << 20);

/// Reads an export into the configured store, which must be empty.
pub async fn import(settings: &Settings, input: impl BufRead) -> Result<TransferSummary, TransferError> {
    let backend = open(settings).await?;
    let store = backend.store();
    check_empty(&*store).await?;
    let audit = open_audit_log(settings)?;
    let clock = SteadyClock::new();
    let buffers = open_and_claim(settings, &store.identity(), &audit, clock.now()).await?;
    let payloads = Payloads::new(buffers, settings.offload);
    let summary = TransferSummary::default();
    let mut import = Import {
        store,
        payloads,
        clock,
        summary,
        queues: Vec::new(),
        batch: Vec::new(),
        bytes: 0,
        has_groups: false,
    };
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
            Some(ExportLine::Record(record)) => import.record(record, lines.line).await?,
            Some(ExportLine::Failed(why)) => return Err(lines.wrong(format!("the export failed: {why}"))),
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

async fn check_empty(store: &dyn Store) -> Result<(), TransferError> {
    if !store.queues(None, 1).await?.is_empty() {
        return Err(TransferError::NotEmpty("queues"));
    }
    for (kind, what) in [(RecordKind::Schedule, "schedules"), (RecordKind::Record, "records")] {
        let page = KvPage { prefix: kind.prefix().to_owned(), after: None, limit: 1 };
        if !store.kv_list(page).await?.is_empty() {
            return Err(TransferError::NotEmpty(what));
        }
    }
    Ok(())
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
    /// Whether an item is in a group or waits for something.
    has_groups: bool,
}

impl Import {
    async fn queue(&mut self, queue: Queue, line: u64) -> Result<(), TransferError> {
        let operation = Operation::CreateQueue {
            queue: queue.name.clone(),
            schema: Box::new(queue.schema.clone()),
            // Its dead-letter queue may come later.
            policy: Box::new(Policy { dead_letter_queue: None, ..queue.policy.clone() }),
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
        let head = &restore.item.head;
        self.has_groups |= head.group.is_some() || head.dependency().is_some();
        self.batch.push((line, Operation::Restore(Box::new(restore))));
        self.summary.items += 1;
        if self.batch.len() >= BATCH_ITEMS || self.bytes >= BATCH_BYTES {
            self.write_batch().await?;
        }
        Ok(())
    }

    async fn record(&mut self, exported: ExportedRecord, line: u64) -> Result<(), TransferError> {
        let wrong = |problem: String| TransferError::Line { line, problem };
        let kind = RecordKind::of(&exported.key)
            .ok_or_else(|| wrong(format!("a record with the key {:?} cannot be imported", exported.key)))?;
        let record =
            exported.record().map_err(|error| wrong(format!("a value is not in base64: {error}")))?;
        self.summary.count(&exported.key);
        if !record.is_live(self.clock.now()) {
            return Ok(());
        }
        let operation = Operation::Kv { key: exported.key, command: KvCommand::Adopt(record) };
        match self.store.update(vec![operation]).await?.answers.pop() {
            Some(Ok(Reply::Kv(KvAnswer::Won(true)))) => Ok(()),
            Some(Ok(_)) if kind == RecordKind::Token => Err(TransferError::HasTokens),
            Some(Ok(_)) => Err(wrong("the store already has this record".to_owned())),
            Some(Err(refusal)) => Err(wrong(refusal.to_string())),
            None => Err(StoreError::Closed.into()),
        }
    }

    async fn write_batch(&mut self) -> Result<(), TransferError> {
        self.bytes = 0;
        let batch = std::mem::take(&mut self.batch);
        self.update(batch).await
    }

    /// Begins to count groups, names dead-letter queues, and pauses and closes queues as they were. This comes last, because a
    /// closed queue accepts no items.
    async fn finish(self, line: u64) -> Result<TransferSummary, TransferError> {
        if self.has_groups {
            self.update(vec![(line, begin_groups()?)]).await?;
        }
        for operation in name_dead_letter_queues(&self.queues) {
            self.update(vec![(line, operation)]).await?;
        }
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
