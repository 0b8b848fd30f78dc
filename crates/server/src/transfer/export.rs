//! Writes everything in a store.

use super::{BATCH_ITEMS, ExportLine, TransferError, TransferSummary, VERSION, open};
use crate::backend::buffers::open_to_read;
use crate::config::{Settings, StoreChoice};
use std::collections::BTreeMap;
use std::io::Write;
use towline_broker::Payloads;
use towline_domain::{Field, FieldSet, Item, QueueId, QueueName, Reference, limits};
use towline_store::{Cursor, Filter, Restore};

/// Writes everything in the configured store. No server may use the store meanwhile.
pub async fn export(settings: &Settings, mut out: impl Write) -> Result<TransferSummary, TransferError> {
    // Opening the store would create it.
    if matches!(settings.store, StoreChoice::Embedded) && !settings.data.is_dir() {
        return Err(TransferError::NoStore(settings.data.display().to_string()));
    }
    let backend = open(settings).await?;
    let store = backend.store();
    let mut payloads = OffloadedPayloads { settings, opened: None };
    let mut summary = TransferSummary::default();
    write_line(&mut out, &ExportLine::Towline { export: VERSION })?;
    let mut names: BTreeMap<QueueId, QueueName> = BTreeMap::new();
    let mut after = None;
    loop {
        let page = store.queues(after, limits::PAGE_MAX).await?;
        let Some(last) = page.last() else { break };
        after = Some(last.queue.name.clone());
        for view in page {
            names.insert(view.queue.id, view.queue.name.clone());
            write_line(&mut out, &ExportLine::Queue(Box::new(view.queue)))?;
            summary.queues += 1;
        }
    }
    let mut after: Option<Cursor> = None;
    loop {
        let page = store.list(Filter::default(), after, BATCH_ITEMS, FieldSet::ALL).await?;
        for mut stored in page.items {
            payloads.fetch(&mut stored.item).await?;
            write_line(&mut out, &ExportLine::Item(Box::new(Restore::of(stored, &names).into())))?;
            summary.items += 1;
        }
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    write_line(&mut out, &ExportLine::End(summary))?;
    out.flush().map_err(TransferError::Output)?;
    Ok(summary)
}

/// The payload fields in object storage. Opened when the first item has one.
struct OffloadedPayloads<'a> {
    settings: &'a Settings,
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
        let payloads = match &mut self.opened {
            Some(payloads) => payloads,
            opened => opened.insert(Payloads::new(open_to_read(self.settings)?, self.settings.offload)),
        };
        payloads.fetch(item).await.map_err(|problem| {
            let location = self.settings.buffers.location(&self.settings.data).to_string();
            TransferError::Payload { id: item.head.id, location, problem }
        })
    }
}

fn write_line(out: &mut impl Write, line: &ExportLine) -> Result<(), TransferError> {
    serde_json::to_writer(&mut *out, line).map_err(|error| TransferError::Output(error.into()))?;
    out.write_all(b"\n").map_err(TransferError::Output)
}
