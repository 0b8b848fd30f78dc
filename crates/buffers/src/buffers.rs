//! The handle to all buffers of one place, and what can be done with it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::BoxStream;

use crate::{
    BlobPage, BufferError, Location, Meta, NewBuffer, NewChunk, Next, Options, Page, Position, Result, Shown,
    Signed, Stored, SweepFrom, Swept, WriterId,
};

/// The handle to all buffers of one place. A clone is the same handle.
#[derive(Debug, Clone)]
pub struct Buffers {}

const UNFINISHED: BufferError = BufferError::NotSupported { what: "this" };

#[expect(unused_variables, reason = "signatures first: the bodies follow in the next commits")]
impl Buffers {
    /// Opens a place; a directory is created (only its owner may enter). Blocks for a few file operations.
    pub fn open(location: &Location, options: Options) -> Result<Self> {
        Err(UNFINISHED)
    }

    /// Proves that the place can be written and read, and refuses to write an object twice. For a server's start;
    /// `nonce` is random, so that servers that start at once do not meet.
    pub async fn check(&self, nonce: [u8; 16]) -> Result<()> {
        Err(UNFINISHED)
    }

    /// Creates an empty buffer. The same again, to the ms, is answered as the first time.
    pub async fn create(&self, id: &str, new: NewBuffer, now_ms: u64) -> Result<Meta> {
        Err(UNFINISHED)
    }

    pub async fn meta(&self, id: &str) -> Result<Meta> {
        Err(UNFINISHED)
    }

    /// State and size. Marks the buffer failed if its writer vanished.
    pub async fn show(&self, id: &str, now_ms: u64) -> Result<Shown> {
        Err(UNFINISHED)
    }

    /// Buffers after an id, in the order of ids, that have all these tags. `limit` (1 to 1000) bounds how many are
    /// looked at: a page may have fewer, or none, and yet a `next`.
    pub async fn list(
        &self,
        after: Option<&str>,
        limit: usize,
        tags: &BTreeMap<String, String>,
    ) -> Result<Page> {
        Err(UNFINISHED)
    }

    /// Removes a buffer: its description first, so that nothing is read or written any more, then its data. That it
    /// is not there is no error.
    pub async fn delete(&self, id: &str) -> Result<()> {
        Err(UNFINISHED)
    }

    /// Copies a complete buffer, within the storage. The copy appears when it is whole, or not at all.
    pub async fn copy(&self, from: &str, to: &str, new: NewBuffer, now_ms: u64) -> Result<Meta> {
        Err(UNFINISHED)
    }

    /// Begins to write, or goes on: the same writer again is told where it is. Any other is refused.
    pub async fn begin(&self, id: &str, writer: WriterId, now_ms: u64) -> Result<Position> {
        Err(UNFINISHED)
    }

    /// How far the buffer is written without a gap, every link of the chain checked.
    pub async fn position(&self, id: &str) -> Result<Position> {
        Err(UNFINISHED)
    }

    /// Stores a chunk; durable when answered. Chunks may come out of order, up to 64 ahead of the first that is
    /// missing, and several at once. A repeat is acknowledged.
    pub async fn put_chunk(
        &self,
        id: &str,
        writer: WriterId,
        chunk: NewChunk,
        now_ms: u64,
    ) -> Result<Stored> {
        Err(UNFINISHED)
    }

    /// A sign of life of a writer that has nothing to send.
    pub async fn touch(&self, id: &str, writer: WriterId, now_ms: u64) -> Result<()> {
        Err(UNFINISHED)
    }

    /// Ends a buffer as complete, if all chunks are there and add up to `totals`. A repeat is acknowledged.
    pub async fn finish(&self, id: &str, writer: WriterId, totals: Position, now_ms: u64) -> Result<()> {
        Err(UNFINISHED)
    }

    /// Ends a buffer as failed, by its writer.
    pub async fn fail(&self, id: &str, writer: WriterId, reason: &str, now_ms: u64) -> Result<()> {
        Err(UNFINISHED)
    }

    /// Ends a buffer as failed, by whoever is in charge of it: written or not.
    pub async fn abandon(&self, id: &str, reason: &str, now_ms: u64) -> Result<()> {
        Err(UNFINISHED)
    }

    /// Chunk `n`, its hash checked; waits for it while the buffer is being written.
    pub async fn chunk(&self, id: &str, n: u32, wait: Duration, now_ms: u64) -> Result<Next> {
        Err(UNFINISHED)
    }

    /// The bytes of a range (to the end: `start..u64::MAX`), each chunk and the chain between them checked, at most
    /// two chunks fetched ahead. While the buffer is being written it waits for what is to come, at most `wait` for
    /// each chunk. The stream ends well only where the range or the complete buffer ends.
    pub async fn read(
        &self,
        id: &str,
        range: Range<u64>,
        wait: Duration,
        now_ms: u64,
    ) -> Result<BoxStream<'static, Result<Bytes>>> {
        Err(UNFINISHED)
    }

    /// A request with which a client puts chunk `n` (header and data) into the storage itself; then [`adopt_chunk`].
    ///
    /// [`adopt_chunk`]: Self::adopt_chunk
    pub async fn sign_chunk_put(
        &self,
        id: &str,
        writer: WriterId,
        n: u32,
        expires_in: Duration,
    ) -> Result<Signed> {
        Err(UNFINISHED)
    }

    /// A request with which a client gets chunk `n` (header and data) from the storage itself.
    pub async fn sign_chunk_get(&self, id: &str, n: u32, expires_in: Duration) -> Result<Signed> {
        Err(UNFINISHED)
    }

    /// Takes in a chunk that a client put itself: checks its header and place in the chain, and its data if told so.
    pub async fn adopt_chunk(
        &self,
        id: &str,
        writer: WriterId,
        n: u32,
        check_data: bool,
        now_ms: u64,
    ) -> Result<()> {
        Err(UNFINISHED)
    }

    /// Stores a blob, compressed if that helps. The same again is acknowledged.
    pub async fn put_blob(&self, key: &str, bytes: Bytes) -> Result<()> {
        Err(UNFINISHED)
    }

    /// A blob of at most `bytes_max` bytes, its hash checked.
    pub async fn get_blob(&self, key: &str, bytes_max: u64) -> Result<Bytes> {
        Err(UNFINISHED)
    }

    /// That it is not there is no error.
    pub async fn delete_blob(&self, key: &str) -> Result<()> {
        Err(UNFINISHED)
    }

    /// Blobs after a key, for whoever knows which of them are still named: at most `limit` (1 to 1000).
    pub async fn list_blobs(&self, after: Option<&str>, limit: usize) -> Result<BlobPage> {
        Err(UNFINISHED)
    }

    /// One step of cleaning up, looking at no more than `limit` (1 to 1000) things. Call again with `next` until
    /// there is none. What an item may name (blobs, outputs of attempts) is not touched: list and delete those.
    pub async fn sweep(&self, from: SweepFrom, limit: usize, grace_ms: u64, now_ms: u64) -> Result<Swept> {
        Err(UNFINISHED)
    }
}
