//! Stores one chunk of a buffer.

use std::sync::Arc;

use bytes::Bytes;
use object_store::PutPayload;

use super::progress::{AHEAD_MAX, Progress};
use crate::format::chunk_header::{CHUNK_BYTES_MAX, CHUNKS_MAX, ChunkHeader};
use crate::format::verify::hash_pieces;
use crate::id::check_id;
use crate::storage::ErrorContext;
use crate::{BufferError, Buffers, Chunk, Hash, Result, WriterId, WriterMark};

/// How many chunks a writer may send before this process checks whether another server ended the buffer.
const CHUNKS_PER_END_CHECK: u32 = 64;

/// A chunk to store. The writer computes `hash` (blake3 of the data) and `chain` ([`link`](crate::link)).
#[derive(Debug, Clone)]
pub struct NewChunk {
    pub n: u32,
    pub hash: Hash,
    pub chain: Hash,
    /// The data in order, in pieces as they were received. Storing them copies nothing.
    pub data: Vec<Bytes>,
}

/// The result of putting a chunk. In both cases the chunk is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PutOutcome {
    New,
    /// The same writer had stored the same chunk before.
    Repeat,
}

impl Buffers {
    /// Stores a chunk. The chunk is durable when this returns. A repeat succeeds.
    ///
    /// A writer may send chunks in parallel and out of order, up to 64 ahead of the first missing one.
    pub async fn put_chunk(
        &self,
        id: &str,
        writer: WriterId,
        chunk: NewChunk,
        now_ms: u64,
    ) -> Result<PutOutcome> {
        check_id(id)?;
        let context = ErrorContext::new("writing buffer", id);
        let writer = writer.mark();
        let NewChunk { n, hash, chain, data } = chunk;
        let length = data.iter().map(|piece| piece.len() as u64).sum();
        if length == 0 || length > CHUNK_BYTES_MAX {
            let (id, bytes_max) = (id.to_owned(), CHUNK_BYTES_MAX);
            return Err(BufferError::ChunkSize { id, n, bytes: length, bytes_max });
        }
        let progress = self.admit_chunk(n, writer, context).await?;
        if n.is_multiple_of(CHUNKS_PER_END_CHECK) {
            self.refuse_if_ended(context).await?;
        }
        if hash_pieces(data.clone(), context).await? != hash {
            return Err(BufferError::WrongHash { id: id.to_owned(), n });
        }
        let header = ChunkHeader { n, length, put_at_ms: now_ms, writer, hash, chain };
        // A repeat is compared with the stored chunk below: this process may know only its number.
        if !progress.contains(n) {
            progress
                .check_links(&header)
                .map_err(|broken| BufferError::ChainBroken { id: id.to_owned(), n: broken.n })?;
        }
        let outcome = self.store_chunk(&header, &data, context).await?;
        // `finish` reports a broken chain between chunks that were stored at the same time.
        let _ = progress.add(header, now_ms);
        if outcome == PutOutcome::New && progress.has_close_reader(n) {
            self.chunk_cache().insert(id, Chunk { header, data });
        }
        self.notifier().notify(id);
        Ok(outcome)
    }

    async fn store_chunk(
        &self,
        header: &ChunkHeader,
        data: &[Bytes],
        context: ErrorContext<'_>,
    ) -> Result<PutOutcome> {
        let (id, n) = (context.id, header.n);
        let path = self.storage().chunk(id, n);
        let encoded = Bytes::copy_from_slice(&header.encode());
        let payload: PutPayload = std::iter::once(encoded).chain(data.iter().cloned()).collect();
        if self.storage().create(&path, payload, context).await? {
            return Ok(PutOutcome::New);
        }
        let existing = self.find_header(n, context).await?.ok_or_else(|| context.inconsistent())?;
        if (existing.hash, existing.chain, existing.writer) != (header.hash, header.chain, header.writer) {
            return Err(BufferError::ChunkConflict { id: id.to_owned(), n });
        }
        self.storage().sync_parent(&path, context).await?;
        Ok(PutOutcome::Repeat)
    }

    /// The progress of the buffer, if the writer may store chunk `n` now.
    pub(super) async fn admit_chunk(
        &self,
        n: u32,
        writer: WriterMark,
        context: ErrorContext<'_>,
    ) -> Result<Arc<Progress>> {
        if n >= CHUNKS_MAX {
            return Err(BufferError::TooManyChunks { id: context.id.to_owned(), n, chunks_max: CHUNKS_MAX });
        }
        let progress = self.progress(writer, context).await?;
        let too_far = |progress: &Progress| n - n.min(progress.position().chunks) > AHEAD_MAX;
        if too_far(&progress) {
            // The writer may have sent chunks through another server.
            self.catch_up(&progress, context).await?;
            if too_far(&progress) {
                let (id, next) = (context.id.to_owned(), progress.position().chunks);
                return Err(BufferError::ChunkTooFar { id, n, next, ahead_max: AHEAD_MAX });
            }
        }
        Ok(progress)
    }
}
