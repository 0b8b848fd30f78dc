//! Reads one chunk of a buffer, and waits for it while a writer is still writing the buffer.
//!
//! The notifier wakes a reader whose writer is in the same process. For a writer on another server the reader polls,
//! with growing pauses.
//!
//! A reader has no clock. It starts with the caller's time, and advances it by its own pauses and by the writer's
//! activity. This estimate is never later than the real time, so a reader never fails a live writer too early.

use std::time::Duration;

use bytes::Bytes;

use crate::format::chunk_header::{CHUNK_BYTES_MAX, CHUNK_HEADER_LEN};
use crate::format::records::Outcome;
use crate::format::verify::parse_chunk;
use crate::id::check_id;
use crate::storage::ErrorContext;
use crate::{BufferError, Buffers, CHUNKS_MAX, ChunkHeader, Position, Result};

const OBJECT_BYTES_MAX: u64 = CHUNK_HEADER_LEN as u64 + CHUNK_BYTES_MAX;

/// How many polls a waiting reader makes before it checks again that the buffer still exists.
const POLLS_PER_META_CHECK: u32 = 8;

/// A chunk as it was read, with its data checked against its hash.
#[derive(Debug, Clone)]
pub struct Chunk {
    pub header: ChunkHeader,
    /// The data in pieces. Reading copied none of them.
    pub data: Vec<Bytes>,
}

/// What a reader finds at a chunk number.
#[derive(Debug, Clone)]
pub enum ChunkLookup {
    Chunk(Chunk),
    /// The buffer is complete and has fewer chunks.
    End(Position),
    /// The writer stored neither the chunk nor the end within the given time. The reader may ask again.
    NotYet,
}

impl Buffers {
    /// Reads chunk `n` and checks its hash. Waits up to `wait` for it while the buffer has not ended.
    pub async fn chunk(&self, id: &str, n: u32, wait: Duration, now_ms: u64) -> Result<ChunkLookup> {
        check_id(id)?;
        let context = ErrorContext::new("reading buffer", id);
        // Even a reader that does not wait gets a stored chunk.
        if let Some(found) = self.lookup(n, now_ms, context).await? {
            return Ok(found);
        }
        self.require_meta(context).await?;
        match tokio::time::timeout(wait, self.wait_for(n, now_ms, context)).await {
            Ok(found) => found,
            Err(_) => Ok(ChunkLookup::NotYet),
        }
    }

    async fn wait_for(&self, n: u32, now_ms: u64, context: ErrorContext<'_>) -> Result<ChunkLookup> {
        let waiter = self.notifier().waiter(context.id);
        let mut now_ms = now_ms;
        let mut pause = self.options().poll_first;
        let mut polls = 0_u32;
        loop {
            // Registered before the lookup, so that a change after the lookup wakes this reader.
            let wake_up = waiter.notified();
            if let Some(found) = self.lookup(n, now_ms, context).await? {
                return Ok(found);
            }
            if polls.is_multiple_of(POLLS_PER_META_CHECK) {
                self.require_meta(context).await?;
            }
            polls = polls.wrapping_add(1);
            if let Some(existing) = self.find_writer(context).await? {
                now_ms = now_ms.max(self.last_seen_activity(n, existing.touched_at_ms, context).await?);
                if self.fail_if_vanished(&existing, now_ms, context).await?.is_some() {
                    continue;
                }
            }
            match tokio::time::timeout(pause, wake_up).await {
                Ok(()) => {
                    pause = self.options().poll_first;
                    // The wake-up may have come from a delete: check the description next.
                    polls = 0;
                }
                Err(_) => {
                    now_ms += pause.as_millis() as u64;
                    pause = (pause * 2).min(self.options().poll_max);
                }
            }
        }
    }

    /// The writer's latest activity that is cheap to find: from this process, the writer's record or the previous chunk.
    async fn last_seen_activity(&self, n: u32, touched_at_ms: u64, context: ErrorContext<'_>) -> Result<u64> {
        if let Some(known) = self.known_progress(context.id) {
            return Ok(known.last_activity_ms().max(touched_at_ms));
        }
        let before = match n.checked_sub(1) {
            Some(before) => self.find_header(before, context).await?,
            None => None,
        };
        Ok(before.map_or(0, |header| header.put_at_ms).max(touched_at_ms))
    }

    /// The chunk or the end, if either is stored now.
    async fn lookup(&self, n: u32, now_ms: u64, context: ErrorContext<'_>) -> Result<Option<ChunkLookup>> {
        if let Some(known) = self.known_progress(context.id) {
            known.record_read(n);
            if let Some(chunk) = self.chunk_cache().get(context.id, n, now_ms) {
                return Ok(Some(ChunkLookup::Chunk(chunk)));
            }
        }
        if let Some(chunk) = self.find_chunk(n, context).await? {
            return Ok(Some(ChunkLookup::Chunk(chunk)));
        }
        let Some(end) = self.find_end(context).await? else { return Ok(None) };
        let position = end.position(context)?;
        match end.outcome {
            Outcome::Complete { .. } if n >= position.chunks => Ok(Some(ChunkLookup::End(position))),
            Outcome::Complete { .. } => match self.find_chunk(n, context).await? {
                // The writer stored this chunk and the end between the two lookups.
                Some(chunk) => Ok(Some(ChunkLookup::Chunk(chunk))),
                None => self.missing(n, position, context).await,
            },
            Outcome::Failed { reason } => Err(BufferError::Failed { id: context.id.to_owned(), reason }),
        }
    }

    async fn missing(
        &self,
        n: u32,
        position: Position,
        context: ErrorContext<'_>,
    ) -> Result<Option<ChunkLookup>> {
        // A delete removes the description first, so a deleted buffer is reported as not found.
        self.require_meta(context).await?;
        Err(context.damaged(format!("chunk {n} of {} is missing", position.chunks)))
    }

    /// A stored chunk with its data checked.
    pub(crate) async fn find_chunk(&self, n: u32, context: ErrorContext<'_>) -> Result<Option<Chunk>> {
        if n >= CHUNKS_MAX {
            return Ok(None);
        }
        let path = self.storage().chunk(context.id, n);
        let found = self.storage().get_hashed(&path, OBJECT_BYTES_MAX, CHUNK_HEADER_LEN, context).await?;
        found.map(|(object, hash)| parse_chunk(&object, hash, n, context)).transpose()
    }
}
