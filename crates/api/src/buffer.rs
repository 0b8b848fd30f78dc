//! Buffers as they are made, written and shown.

use crate::chain::{Hash, Position};
use crate::payload::Payload;
use crate::span::Span;
use crate::text::Text;
use crate::time::Time;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use towline_domain::Refusal;
use utoipa::ToSchema;

/// Who writes: 128 random bits as 32 hexadecimal digits.
pub const WRITER: &str = "towline-writer";
/// blake3 of a chunk's data, as 64 hexadecimal digits.
pub const HASH: &str = "towline-hash";
/// The chain after a chunk, as 64 hexadecimal digits.
pub const CHAIN: &str = "towline-chain";
/// Of an answer without a chunk: `complete` (there are no more) or `writing` (not yet).
pub const STATE: &str = "towline-state";
/// Totals of a complete buffer.
pub const CHUNKS: &str = "towline-chunks";
pub const BYTES: &str = "towline-bytes";

/// What is said of a buffer that is made, also by copying another. Everything is optional.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NewBuffer {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// Removed after so long; without, it stays until it is deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl: Option<Span>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BufferShown {
    pub id: String,
    /// `empty` (nobody has begun to write), `writing`, `complete` or `failed`.
    pub state: String,
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Time,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub expires_at: Option<Time>,
    pub tags: BTreeMap<String, String>,
    /// So far, without a gap.
    pub bytes: u64,
    pub chunks: u32,
    /// The chain after the last chunk: tells two contents apart that were cut in the same way.
    #[schema(value_type = String)]
    pub chain: Text<Hash>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub begun_at: Option<Time>,
    /// When its writer was last heard of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub last_sign_at: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub finished_at: Option<Time>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BufferListed {
    pub id: String,
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Time,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub expires_at: Option<Time>,
    pub tags: BTreeMap<String, String>,
}

/// Buffers in order of id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BufferPage {
    pub buffers: Vec<BufferListed>,
    /// Where to go on; `null`: there are no more.
    pub next: Option<String>,
}

/// Who wants to write.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BeginBuffer {
    /// 32 hexadecimal digits that nobody can guess. The same again goes on where it is; without, the server makes one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub writer: Option<String>,
}

/// Where a writer is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WriterPosition {
    pub writer: String,
    /// Also the number of the next chunk.
    pub chunks: u32,
    pub bytes: u64,
    #[schema(value_type = String)]
    pub chain: Text<Hash>,
}

impl TryFrom<WriterPosition> for Position {
    type Error = Refusal;

    fn try_from(at: WriterPosition) -> Result<Position, Refusal> {
        Ok(Position { chunks: at.chunks, bytes: at.bytes, chain: at.chain.into_domain("chain")? })
    }
}

/// A sign of life.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TouchBuffer {
    pub writer: String,
}

/// Totals, as the writer counted them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FinishBuffer {
    pub writer: String,
    pub chunks: u32,
    pub bytes: u64,
    #[schema(value_type = String)]
    pub chain: Text<Hash>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FailBuffer {
    pub writer: String,
    /// For those who read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A chunk that its writer wants to put into the storage itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SignPut {
    pub writer: String,
    /// Of the data.
    pub length: u64,
    #[schema(value_type = String)]
    pub hash: Text<Hash>,
    #[schema(value_type = String)]
    pub chain: Text<Hash>,
    /// How long the answer is good for: 15m, up to 1h.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in: Option<Span>,
}

/// A chunk that somebody wants to get from the storage itself.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SignGet {
    /// How long the answer is good for: 15m, up to 1h.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_in: Option<Span>,
}

/// A request to send to the storage, not to this server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SignedRequest {
    pub method: String,
    pub url: String,
    /// To be sent exactly so.
    pub headers: BTreeMap<String, String>,
    /// Of a put: the bytes to send before the data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = Byte)]
    pub head: Option<Payload>,
    /// Of a get: so many bytes come before the data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head_bytes: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AdoptChunk {
    pub writer: String,
    /// Read the data back and check its hash: `true`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check_data: Option<bool>,
}
