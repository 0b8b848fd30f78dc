//! What callers give and get: the description of a buffer, its state, chunks, pages.

use std::collections::BTreeMap;

use blake3::Hash;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{CHAIN_START, Header};

/// The most tags of a buffer, the longest name and value of a tag, in bytes.
pub const TAGS_MAX: usize = 32;
pub const TAG_NAME_LEN_MAX: usize = 64;
pub const TAG_VALUE_LEN_MAX: usize = 256;

/// What the creator of a buffer says of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NewBuffer {
    pub tags: BTreeMap<String, String>,
    /// The sweep removes the buffer after this time.
    pub expires_at_ms: Option<u64>,
}

/// What is known of a buffer since it was created.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    pub created_at_ms: u64,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at_ms: Option<u64>,
}

/// How far a buffer is written without a gap: its totals when it is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// Also the number of the next chunk.
    pub chunks: u32,
    pub bytes: u64,
    /// The chain after the last of these chunks.
    pub chain: Hash,
}

impl Position {
    pub const START: Self = Self { chunks: 0, bytes: 0, chain: CHAIN_START };
}

/// Where a buffer is in its life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// Created; nobody has begun to write.
    Empty,
    Writing {
        begun_at_ms: u64,
        last_sign_ms: u64,
    },
    Complete {
        finished_at_ms: u64,
    },
    Failed {
        finished_at_ms: u64,
        reason: String,
    },
}

/// A buffer as `show` tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    pub id: String,
    pub meta: Meta,
    pub state: State,
    pub position: Position,
}

/// A chunk to be stored. The writer computes `hash` (blake3 of the data) and `chain` ([`link`](crate::link)).
#[derive(Debug, Clone)]
pub struct NewChunk {
    pub n: u32,
    pub hash: Hash,
    pub chain: Hash,
    /// The data in order, in as many pieces as it came; nothing is copied.
    pub data: Vec<Bytes>,
}

/// What became of a chunk: both are acknowledged, and durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stored {
    New,
    /// The same chunk of the same writer was there.
    Repeat,
}

/// A chunk as it was read, its data checked against its hash.
#[derive(Debug, Clone)]
pub struct Chunk {
    pub header: Header,
    /// In pieces, none of which was copied.
    pub data: Vec<Bytes>,
}

/// What a reader finds at a number.
#[derive(Debug, Clone)]
pub enum Next {
    Chunk(Chunk),
    /// The buffer is complete, and ended before this number.
    End(Position),
    /// Neither came in the time given; ask again.
    NotYet,
}

/// Buffers in the order of their ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    pub buffers: Vec<Listed>,
    /// Give it as `after` to get the next page; `None` after the last one.
    pub next: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    pub id: String,
    pub meta: Meta,
}

/// Blobs in the order of their keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlobPage {
    pub blobs: Vec<ListedBlob>,
    pub next: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedBlob {
    pub key: String,
    /// As stored: with its header, compressed.
    pub stored_bytes: u64,
    /// By the storage's clock.
    pub written_at_ms: u64,
}

/// A request that a client may send to the storage itself, until it expires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signed {
    pub method: http::Method,
    pub url: String,
    /// To be sent exactly so: they are part of the signature.
    pub headers: Vec<(String, String)>,
}

/// Where a sweep goes on; the next call may come much later, and after a restart a new sweep begins at the default.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum SweepFrom {
    #[default]
    Start,
    /// Buffers, for those expired and those whose writer vanished.
    Buffers { after: String },
    /// Data without a description.
    Orphans { after: Option<String> },
    /// Files that a crash left half written, in a directory only.
    Temporary { after: Option<String> },
}

/// What one step of a sweep did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Swept {
    pub looked_at: u64,
    pub expired_removed: u64,
    pub vanished_failed: u64,
    pub orphans_removed: u64,
    pub temporary_removed: u64,
    /// Could not be dealt with; the log says why, and the next sweep tries again.
    pub skipped: u64,
    /// `None` when everything was looked at.
    pub next: Option<SweepFrom>,
}
