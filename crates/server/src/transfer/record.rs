//! Records in an export: those of clients, schedules and tokens. All of them are key-value records of the store.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use towline_broker::RECORDS;
use towline_domain::Timestamp;
use towline_domain::kv::{KvRecord, MARKS, SCHEDULES, TOKENS};

/// The kinds of records that another store can use. What is counted about groups is not copied: the other store counts again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RecordKind {
    Record,
    /// What a record has counted once.
    Mark,
    Schedule,
    Token,
}

impl RecordKind {
    pub(super) const ALL: [RecordKind; 4] =
        [RecordKind::Record, RecordKind::Mark, RecordKind::Schedule, RecordKind::Token];

    /// The prefix of the keys.
    pub(super) fn prefix(self) -> &'static str {
        match self {
            RecordKind::Record => RECORDS,
            RecordKind::Mark => MARKS,
            RecordKind::Schedule => SCHEDULES,
            RecordKind::Token => TOKENS,
        }
    }

    pub(super) fn of(key: &str) -> Option<RecordKind> {
        RecordKind::ALL.into_iter().find(|kind| key.starts_with(kind.prefix()))
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ExportedRecord {
    pub(super) key: String,
    /// In base64.
    value: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires_at: Option<Timestamp>,
}

impl ExportedRecord {
    pub(super) fn of(key: String, record: KvRecord) -> ExportedRecord {
        ExportedRecord { key, value: STANDARD.encode(record.value), expires_at: record.expires_at }
    }

    pub(super) fn record(&self) -> Result<KvRecord, base64::DecodeError> {
        Ok(KvRecord { value: STANDARD.decode(&self.value)?.into(), expires_at: self.expires_at })
    }
}
