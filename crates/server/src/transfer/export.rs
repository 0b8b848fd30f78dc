//! Writes everything in a store, as lines of JSON.

use super::record::{ExportedRecord, RecordKind};
use super::{BATCH_ITEMS, ExportLine, TransferError, VERSION, count_record, open};
use crate::backend::buffers::open_to_read;
use crate::config::{Settings, StoreChoice};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;
use tokio::sync::mpsc;
use towline_api::TransferSummary;
use towline_broker::Payloads;
use towline_domain::{Field, FieldSet, Item, Queue, QueueId, QueueName, Reference, limits};
use towline_store::{Cursor, Filter, KvPage, Restore, Store, StoredItem};

/// Larger than most lines.
const PIECE_BYTES: usize = 256 << 10;

/// Writes everything in the configured store. No server may use an embedded store meanwhile.
pub async fn export(
    settings: &Settings,
    with_tokens: bool,
    out: impl Write + Send,
) -> Result<TransferSummary, TransferError> {
    // Opening the store would create it.
    if matches!(settings.store, StoreChoice::Embedded) && !settings.data.is_dir() {
        return Err(TransferError::NoStore(settings.data.display().to_string()));
    }
    let backend = open(settings).await?;
    let payloads = OffloadedPayloads { settings: Some(settings), opened: None };
    let mut to = ToWriter(out);
    let summary = Export::new(backend.store(), payloads, with_tokens).run(&mut to).await?;
    to.0.flush().map_err(TransferError::Output)?;
    Ok(summary)
}

/// Exports the store of a running server. Each item is exported as it was when the export read it. If the export fails, its last
/// line says why. `guard` prevents the deletion of payloads until the export ends.
pub(crate) fn send(
    store: Arc<dyn Store>,
    payloads: Option<Payloads>,
    with_tokens: bool,
    guard: impl Send + 'static,
) -> mpsc::Receiver<Bytes> {
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(async move {
        let payloads = OffloadedPayloads { settings: None, opened: payloads };
        let mut to = ToClient(sender);
        let mut export = Export::new(store, payloads, with_tokens);
        if let Err(error) = export.run(&mut to).await {
            tracing::warn!("an export stopped: {error}");
            if export.line(&ExportLine::Failed(error.to_string())).is_ok() {
                // Fails if the client has disconnected.
                let _ = export.flush(0, &mut to).await;
            }
        }
        drop(guard);
    });
    receiver
}

/// Where the lines go.
trait LineSink {
    fn write(&mut self, lines: Bytes) -> impl Future<Output = Result<(), TransferError>> + Send;
}

struct ToWriter<W>(W);

impl<W: Write + Send> LineSink for ToWriter<W> {
    async fn write(&mut self, lines: Bytes) -> Result<(), TransferError> {
        self.0.write_all(&lines).map_err(TransferError::Output)
    }
}

struct ToClient(mpsc::Sender<Bytes>);

impl LineSink for ToClient {
    async fn write(&mut self, lines: Bytes) -> Result<(), TransferError> {
        let gone = |_| TransferError::Output(std::io::ErrorKind::BrokenPipe.into());
        self.0.send(lines).await.map_err(gone)
    }
}

struct Export<'a> {
    store: Arc<dyn Store>,
    payloads: OffloadedPayloads<'a>,
    with_tokens: bool,
    summary: TransferSummary,
    /// The queues that were written.
    names: BTreeMap<QueueId, QueueName>,
    lines: Vec<u8>,
}

impl Export<'_> {
    fn new(store: Arc<dyn Store>, payloads: OffloadedPayloads<'_>, with_tokens: bool) -> Export<'_> {
        let (summary, names) = (TransferSummary::default(), BTreeMap::new());
        Export { store, payloads, with_tokens, summary, names, lines: Vec::new() }
    }

    async fn run(&mut self, to: &mut impl LineSink) -> Result<TransferSummary, TransferError> {
        self.line(&ExportLine::Towline { export: VERSION })?;
        let mut after = None;
        loop {
            let page = self.store.queues(after, limits::PAGE_MAX).await?;
            let Some(last) = page.last() else { break };
            after = Some(last.queue.name.clone());
            for view in page {
                self.queue(view.queue)?;
            }
            self.flush(PIECE_BYTES, to).await?;
        }
        for kind in RecordKind::ALL {
            if kind != RecordKind::Token || self.with_tokens {
                self.records(kind, to).await?;
            }
        }
        let mut after: Option<Cursor> = None;
        loop {
            let page = self.store.list(Filter::default(), after, BATCH_ITEMS, FieldSet::ALL).await?;
            for stored in page.items {
                self.item(stored).await?;
                self.flush(PIECE_BYTES, to).await?;
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        self.line(&ExportLine::End(self.summary))?;
        self.flush(0, to).await?;
        Ok(self.summary)
    }

    fn line(&mut self, line: &ExportLine) -> Result<(), TransferError> {
        write_line(&mut self.lines, line)
    }

    async fn flush(&mut self, above: usize, to: &mut impl LineSink) -> Result<(), TransferError> {
        if self.lines.len() > above {
            to.write(std::mem::take(&mut self.lines).into()).await?;
        }
        Ok(())
    }

    fn queue(&mut self, queue: Queue) -> Result<(), TransferError> {
        self.names.insert(queue.id, queue.name.clone());
        self.summary.queues += 1;
        self.line(&ExportLine::Queue(Box::new(queue)))
    }

    async fn records(&mut self, kind: RecordKind, to: &mut impl LineSink) -> Result<(), TransferError> {
        let mut after = None;
        loop {
            let page = KvPage { prefix: kind.prefix().to_owned(), after, limit: limits::KV_PAGE_MAX };
            let records = self.store.kv_list(page).await?;
            let Some((last, _)) = records.last() else { return Ok(()) };
            after = Some(last.clone());
            for (key, record) in records {
                count_record(&mut self.summary, &key);
                self.line(&ExportLine::Record(ExportedRecord::of(key, record)))?;
            }
            self.flush(PIECE_BYTES, to).await?;
        }
    }

    async fn item(&mut self, mut stored: StoredItem) -> Result<(), TransferError> {
        if !self.names.values().any(|name| *name == stored.queue) {
            // It was created after the queues were listed.
            match self.store.queue(stored.queue.clone()).await? {
                Some(view) => self.queue(view.queue)?,
                // It was deleted, and its items with it.
                None => return Ok(()),
            }
        }
        self.payloads.fetch(&mut stored.item).await?;
        self.summary.items += 1;
        let item = Restore::of(stored, &self.names).into();
        self.line(&ExportLine::Item(Box::new(item)))
    }
}

/// The payload fields in object storage.
struct OffloadedPayloads<'a> {
    /// The place, opened when the first item has such a field.
    settings: Option<&'a Settings>,
    opened: Option<Payloads>,
}

impl OffloadedPayloads<'_> {
    /// Replaces references by the payload that they stand for: they mean nothing in another store.
    async fn fetch(&mut self, item: &mut Item) -> Result<(), TransferError> {
        if !Field::ALL
            .iter()
            .any(|&field| item.fields.get(field).is_some_and(|bytes| Reference::is_marked(bytes)))
        {
            return Ok(());
        }
        if let (None, Some(settings)) = (&self.opened, self.settings) {
            self.opened = Some(Payloads::new(open_to_read(settings)?, settings.offload));
        }
        let Some(payloads) = &self.opened else { return Err(TransferError::NoPlace(item.head.id)) };
        payloads.fetch(item).await.map_err(|problem| {
            let place = self.settings.map(|settings| settings.buffers.location(&settings.data).to_string());
            let location = place.unwrap_or_else(|| "the place for buffers of the server".to_owned());
            TransferError::Payload { id: item.head.id, location, problem }
        })
    }
}

fn write_line(out: &mut Vec<u8>, line: &ExportLine) -> Result<(), TransferError> {
    serde_json::to_writer(&mut *out, line).map_err(|error| TransferError::Output(error.into()))?;
    out.push(b'\n');
    Ok(())
}
