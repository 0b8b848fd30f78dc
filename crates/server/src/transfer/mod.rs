//! Moving everything between stores as lines of JSON: `towline export | towline import`.
//!
//! **Invariant:** a successful import contains everything that was exported. The last line of an export counts what is in it, so
//! an import detects an incomplete export.

mod export;
mod import;
mod lines;
mod record;

pub use export::export;
pub(crate) use export::send;
pub use import::import;
pub(crate) use import::receive;
pub(crate) use lines::{LINE_BYTES_MAX, LineSource};

use crate::auth::token_store;
use crate::backend::Backend;
use crate::config::Settings;
use crate::server::ServerError;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use record::{ExportedRecord, RecordKind};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use towline_api::{Code, TransferSummary};
use towline_broker::SteadyClock;
use towline_domain::{AttemptError, Body, Field, Fields, Head, Item, ItemId, Outcome, Queue, QueueName};
use towline_store::{OperationError, Restore, StoreError};

/// The format version that export writes, and the latest that import reads.
const VERSION: u32 = 1;
/// Items per read or write.
const BATCH_ITEMS: usize = 500;

/// Counts a key-value record.
fn count_record(summary: &mut TransferSummary, key: &str) {
    match RecordKind::of(key) {
        Some(RecordKind::Record) => summary.records += 1,
        Some(RecordKind::Schedule) => summary.schedules += 1,
        Some(RecordKind::Token) if token_store::is_token(key) => summary.tokens += 1,
        Some(RecordKind::Token | RecordKind::Mark) | None => {}
    }
}

#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    #[error(transparent)]
    Open(#[from] ServerError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("cannot write the export: {0}")]
    Output(std::io::Error),
    #[error("cannot read the export: {0}")]
    Input(std::io::Error),
    #[error(
        "there is no store in {0}; give its directory with --data, or no --data to export from a running server"
    )]
    NoStore(String),
    #[error("the store already has {0}; import into an empty store")]
    NotEmpty(&'static str),
    #[error(
        "the store already has tokens, and those of the export have the same ids. A server that requires tokens has at least the token of \
         this import. Export without --with-tokens and create new tokens, or stop the server and import with --data into a new directory"
    )]
    HasTokens,
    #[error(
        "the payload of item {0} is in a place for buffers, and this server has none; configure it with --buffers"
    )]
    NoPlace(ItemId),
    #[error(
        "the payload of item {id} cannot be exported from {location}: {problem}; give the right place with --buffers. If the payload \
         is lost, delete the item and export again"
    )]
    Payload { id: ItemId, location: String, problem: OperationError },
    #[error("line {line} of the export: {problem}")]
    Line { line: u64, problem: String },
    /// The request that carries the export ended early.
    #[error("{detail}")]
    Request { code: Code, detail: String },
    /// The store refused what a line contains.
    #[error("line {line} of the export: {error}")]
    Refused { line: u64, error: OperationError },
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ExportLine {
    Towline {
        export: u32,
    },
    Queue(Box<Queue>),
    Item(Box<ExportedItem>),
    Record(ExportedRecord),
    End(TransferSummary),
    /// Instead of the end: why the server could not continue.
    Failed(String),
}

#[derive(Debug, Serialize, Deserialize)]
struct ExportedItem {
    queue: QueueName,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    claimed_in: Option<QueueName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    came_from: Option<QueueName>,
    head: Head,
    body: Body,
    /// In base64.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    fields: BTreeMap<Field, String>,
    #[serde(default)]
    outcome: Outcome,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    errors: Vec<AttemptError>,
}

impl From<Restore> for ExportedItem {
    fn from(restore: Restore) -> ExportedItem {
        let Restore { queue, item, claimed_in, came_from } = restore;
        let Item { head, body, fields, outcome, errors } = item;
        let present = Field::ALL.into_iter().filter_map(|field| Some((field, fields.get(field)?)));
        let fields = present.map(|(field, value)| (field, STANDARD.encode(value))).collect();
        let errors = errors.into_iter().collect();
        ExportedItem { queue, claimed_in, came_from, head, body, fields, outcome, errors }
    }
}

impl TryFrom<ExportedItem> for Restore {
    type Error = base64::DecodeError;

    fn try_from(exported: ExportedItem) -> Result<Restore, base64::DecodeError> {
        let ExportedItem { queue, claimed_in, came_from, head, body, fields: encoded, outcome, errors } =
            exported;
        let mut fields = Fields::default();
        for (field, value) in encoded {
            fields.set(field, Some(Bytes::from(STANDARD.decode(value)?)));
        }
        let item = Item { head, body, fields, outcome, errors: errors.into_iter().collect() };
        Ok(Restore { queue, item, claimed_in, came_from })
    }
}

/// The counts in the last line of an export, or why the export is not complete.
pub fn last_line(line: &[u8]) -> Result<TransferSummary, String> {
    match serde_json::from_slice(line) {
        Ok(ExportLine::End(summary)) => Ok(summary),
        Ok(ExportLine::Failed(why)) => Err(why),
        _ => Err("the last line is missing".to_owned()),
    }
}

async fn open(settings: &Settings) -> Result<Backend, ServerError> {
    Backend::open(settings, Arc::new(SteadyClock::new())).await
}
