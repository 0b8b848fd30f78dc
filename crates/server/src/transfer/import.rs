//! Reads an export into an empty store.

use super::lines::{FromReader, LineReader, LineSource};
use super::record::{ExportedRecord, RecordKind};
use super::{BATCH_ITEMS, ExportLine, ExportedItem, TransferError, VERSION, count_record, open};
use crate::backend::buffers::open_and_claim;
use crate::config::Settings;
use crate::server::open_audit_log;
use std::io::BufRead;
use std::sync::Arc;
use towline_api::TransferSummary;
use towline_broker::{Broker, Payloads, RunningImport, SteadyClock, begin_groups, groups_are_begun};
use towline_domain::kv::{KvAnswer, KvCommand};
use towline_domain::{Policy, Queue, QueueState};
use towline_store::{
    Answered, Clock, KvPage, Operation, Reply, Restore, Store, StoreError, name_dead_letter_queues,
};

/// A batch is written when it has this many bytes, even if it has fewer than [`BATCH_ITEMS`] items.
const BATCH_BYTES: usize = 8 << 20;

/// Reads an export into the configured store, which must be empty.
pub async fn import(
    settings: &Settings,
    input: impl BufRead + Send,
) -> Result<TransferSummary, TransferError> {
    let backend = open(settings).await?;
    let store = backend.store();
    check_empty(&*store).await?;
    let audit = open_audit_log(settings)?;
    let clock = SteadyClock::new();
    let buffers = open_and_claim(settings, &store.identity(), &audit, clock.now()).await?;
    let payloads = Payloads::new(buffers, settings.offload);
    Import::new(Target::Store(store), Some(payloads), Arc::new(clock)).run(FromReader(input)).await
}

/// Reads an export into the store of a running server, which must be empty.
pub(crate) async fn receive(
    broker: &Broker,
    input: impl LineSource,
) -> Result<TransferSummary, TransferError> {
    check_empty(broker.store()).await?;
    let target = Target::Server(broker.begin_import());
    Import::new(target, broker.payloads(), broker.clock()).run(input).await
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
    if groups_are_begun(store).await? {
        return Err(TransferError::NotEmpty("groups"));
    }
    Ok(())
}

/// Where an import goes.
enum Target {
    /// A store without a server.
    Store(Arc<dyn Store>),
    Server(RunningImport),
}

impl Target {
    async fn update(&self, batch: Vec<Operation>) -> Result<Vec<Answered>, StoreError> {
        match self {
            Target::Store(store) => Ok(store.update(batch).await?.answers),
            Target::Server(running) => running.update(batch).await,
        }
    }
}

struct Import {
    target: Target,
    payloads: Option<Payloads>,
    clock: Arc<dyn Clock>,
    summary: TransferSummary,
    queues: Vec<Queue>,
    /// Each operation with the line it comes from.
    batch: Vec<(u64, Operation)>,
    bytes: usize,
    /// Whether an item is in a group or waits for something.
    has_groups: bool,
}

impl Import {
    fn new(target: Target, payloads: Option<Payloads>, clock: Arc<dyn Clock>) -> Import {
        let (summary, has_groups) = (TransferSummary::default(), false);
        Import {
            target,
            payloads,
            clock,
            summary,
            queues: Vec::new(),
            batch: Vec::new(),
            bytes: 0,
            has_groups,
        }
    }

    async fn run(mut self, input: impl LineSource) -> Result<TransferSummary, TransferError> {
        let mut lines = LineReader::new(input);
        match lines.next().await? {
            Some(ExportLine::Towline { export }) if export <= VERSION => {}
            Some(ExportLine::Towline { export }) => {
                let problem = format!("version {export} is newer than {VERSION}; use a newer towline");
                return Err(lines.wrong(problem));
            }
            _ => return Err(lines.wrong("this is not a Towline export".to_owned())),
        }
        loop {
            match lines.next().await? {
                Some(ExportLine::Queue(queue)) => self.queue(*queue, lines.line).await?,
                Some(ExportLine::Item(item)) => self.item(*item, lines.line).await?,
                Some(ExportLine::Record(record)) => self.record(record, lines.line).await?,
                Some(ExportLine::Failed(why)) => {
                    return Err(lines.wrong(format!("the export failed: {why}")));
                }
                Some(ExportLine::End(exported)) => {
                    self.write_batch().await?;
                    if self.summary != exported {
                        let problem = format!("{exported} were exported, but {} were read", self.summary);
                        return Err(lines.wrong(problem));
                    }
                    return self.finish(lines.line).await;
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

    async fn queue(&mut self, queue: Queue, line: u64) -> Result<(), TransferError> {
        let operation = Operation::CreateQueue {
            queue: queue.name.clone(),
            schema: Box::new(queue.schema.clone()),
            // Its dead-letter queue may come later.
            policy: Box::new(Policy { dead_letter_queue: None, ..queue.policy.clone() }),
        };
        let mut batch = vec![(line, operation)];
        if queue.paused {
            batch.push((line, Operation::PauseQueue { queue: queue.name.clone() }));
        }
        self.update(batch).await?;
        self.queues.push(queue);
        self.summary.queues += 1;
        Ok(())
    }

    async fn item(&mut self, item: ExportedItem, line: u64) -> Result<(), TransferError> {
        let mut restore = Restore::try_from(item).map_err(|error| {
            let problem = format!("a field is not in base64: {error}");
            TransferError::Line { line, problem }
        })?;
        if let Some(payloads) = &self.payloads {
            let offloaded = payloads.offload(&mut restore.item, self.clock.now()).await;
            offloaded.map_err(|error| TransferError::Refused { line, error })?;
        }
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
        count_record(&mut self.summary, &exported.key);
        if !record.is_live(self.clock.now()) {
            return Ok(());
        }
        let operation = Operation::Kv { key: exported.key, command: KvCommand::Adopt(record) };
        match self.target.update(vec![operation]).await?.pop() {
            Some(Ok(Reply::Kv(KvAnswer::Won(true)))) => Ok(()),
            Some(Ok(_)) if kind == RecordKind::Token => Err(TransferError::HasTokens),
            Some(Ok(_)) => Err(wrong("the store already has this record".to_owned())),
            Some(Err(error)) => Err(TransferError::Refused { line, error }),
            None => Err(StoreError::Closed.into()),
        }
    }

    async fn write_batch(&mut self) -> Result<(), TransferError> {
        self.bytes = 0;
        let batch = std::mem::take(&mut self.batch);
        self.update(batch).await
    }

    /// Begins to count groups, names dead-letter queues, and closes queues that were closed. This comes last, because a closed
    /// queue accepts no items.
    async fn finish(self, line: u64) -> Result<TransferSummary, TransferError> {
        if self.has_groups {
            self.update(vec![(line, begin_groups()?)]).await?;
        }
        for operation in name_dead_letter_queues(&self.queues) {
            self.update(vec![(line, operation)]).await?;
        }
        for Queue { name: queue, state, .. } in &self.queues {
            if *state != QueueState::Open {
                self.update(vec![(line, Operation::CloseQueue { queue: queue.clone() })]).await?;
            }
        }
        Ok(self.summary)
    }

    async fn update(&self, batch: Vec<(u64, Operation)>) -> Result<(), TransferError> {
        let (lines, operations): (Vec<u64>, Vec<Operation>) = batch.into_iter().unzip();
        let answers = self.target.update(operations).await?;
        for (line, answered) in lines.into_iter().zip(answers) {
            answered.map_err(|error| TransferError::Refused { line, error })?;
        }
        Ok(())
    }
}
