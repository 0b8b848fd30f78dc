//! Wire types of buffers, and the headers of their chunks.

use crate::chain::{Hash, Position};
use crate::payload::Payload;
use crate::span::Span;
use crate::text::Text;
use crate::time::Time;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use towline_domain::{BufferStateKind, Refusal};
use utoipa::ToSchema;

/// The id of an item, a space, and the lease on it. The holder of a lease may read the item's input buffers, and read and write the
/// output buffers of its attempt, without a scope for buffers.
pub const LEASE_HEADER: &str = "towline-lease";
/// The writer's token: 128 random bits as 32 hexadecimal digits.
pub const WRITER: &str = "towline-writer";
/// BLAKE3 hash of a chunk's data, as 64 hexadecimal digits.
pub const HASH: &str = "towline-hash";
/// The hash chain after a chunk, as 64 hexadecimal digits.
pub const CHAIN: &str = "towline-chain";
/// In a response without a chunk: `complete` (the buffer has no more chunks) or `writing` (the chunk is not
/// there yet).
pub const STATE: &str = "towline-state";
/// Number of chunks of a complete buffer. The next header has its bytes.
pub const CHUNKS: &str = "towline-chunks";
pub const BYTES: &str = "towline-bytes";

/// A buffer to create, also by copying another buffer. Every field is optional.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NewBuffer {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// Delete the buffer after this time. Default: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl: Option<Span>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BufferShown {
    pub id: String,
    /// `empty` (no writer has started), `writing`, `complete` or `failed`.
    pub state: String,
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Time,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub expires_at: Option<Time>,
    pub tags: BTreeMap<String, String>,
    /// Bytes written so far, without gaps.
    pub bytes: u64,
    pub chunks: u32,
    /// The hash chain after the last chunk. Equal contents that were split into the same chunks have the same
    /// chain.
    #[schema(value_type = String)]
    pub chain: Text<Hash>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub begun_at: Option<Time>,
    /// Time of the writer's last request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub last_sign_at: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub finished_at: Option<Time>,
    /// Why the buffer failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl BufferShown {
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.state == BufferStateKind::Complete.name()
    }
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

/// A page of buffers in order of id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BufferPage {
    pub buffers: Vec<BufferListed>,
    /// Pass this as `cursor` to get the next page. `null`: this is the last page.
    pub next: Option<String>,
}

/// A request to start or resume writing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BeginBuffer {
    /// The writer's token: 32 random hexadecimal digits. The same token again resumes. Default: the server
    /// generates one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub writer: Option<String>,
}

/// How much a writer has written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WriterPosition {
    pub writer: String,
    /// Number of chunks written, and the number of the next chunk.
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

/// A heartbeat of a writer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TouchBuffer {
    pub writer: String,
}

/// The totals that the writer counted.
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
    /// Why the buffer failed. Readers get this text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A request for a signed URL, to upload a chunk directly to object storage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SignPut {
    pub writer: String,
    /// Length of the data in bytes.
    pub length: u64,
    #[schema(value_type = String)]
    pub hash: Text<Hash>,
    #[schema(value_type = String)]
    pub chain: Text<Hash>,
    /// How long the URL is valid. Default: 15m. Maximum: 1h.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in: Option<Span>,
}

/// A request for a signed URL, to download a chunk directly from object storage.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SignGet {
    /// How long the URL is valid. Default: 15m. Maximum: 1h.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_in: Option<Span>,
}

/// A request to send to object storage, not to this server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SignedRequest {
    pub method: String,
    pub url: String,
    /// Send exactly these headers.
    pub headers: BTreeMap<String, String>,
    /// For an upload: send these bytes before the data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = Byte)]
    pub head: Option<Payload>,
    /// For a download: skip this many bytes before the data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head_bytes: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AdoptChunk {
    pub writer: String,
    /// Whether the server reads the data back and checks its hash. Default: true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check_data: Option<bool>,
}
