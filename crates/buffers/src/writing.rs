//! A writer's calls while it writes: begin (or go on), put a chunk, give a sign of life, ask where it is.

use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use object_store::PutPayload;

use crate::header::{CHUNK_BYTES_MAX, CHUNKS_MAX, HEADER_LEN, Header};
use crate::id::check_id;
use crate::progress::{AHEAD_MAX, Progress};
use crate::storage::At;
use crate::stored::{self, Writer};
use crate::verify::{hash_of, header_of};
use crate::{BufferError, Buffers, Chunk, NewChunk, Position, Result, Stored, WriterId, WriterMark};

/// Headers read at once when a buffer is learnt anew.
const HEADERS_AT_ONCE: usize = 16;

/// Chunks between looks whether another server ended the buffer, so that nobody writes for hours in vain.
const CHUNKS_PER_END: u32 = 64;

impl Buffers {
    /// Begins to write, or goes on: the same writer again is told where it is. Any other is refused.
    pub async fn begin(&self, id: &str, writer: WriterId, now_ms: u64) -> Result<Position> {
        check_id(id)?;
        let at = At::new("beginning buffer", id);
        let writer = writer.mark();
        self.need_meta(at).await?;
        if let Some(end) = self.find_end(at).await? {
            return Err(end.refusal(id));
        }
        self.storage().prepare(&self.storage().chunks(id), at).await?;
        let record = Writer { writer, begun_at_ms: now_ms, touched_at_ms: now_ms };
        if self.storage().create(&self.storage().writer(id), stored::encode(&record, at)?, at).await? {
            // Whatever is known here is of a buffer that had this id before.
            self.forget_progress(id);
            return Ok(self.keep_progress(id, Progress::new(writer, now_ms)).position());
        }
        match self.find_writer(at).await? {
            Some(there) if there.writer == writer => {
                let progress = self.progress(writer, at).await?;
                self.sign_life(&there, now_ms, at).await?;
                self.catch_up(&progress, at).await?;
                Ok(progress.position())
            }
            Some(there) => match self.fail_if_vanished(&there, now_ms, at).await? {
                Some(end) => Err(end.refusal(id)),
                None => Err(BufferError::BeingWritten { id: id.to_owned() }),
            },
            None => Err(at.unsettled()),
        }
    }

    /// How far the buffer is written without a gap, every link of the chain checked.
    pub async fn position(&self, id: &str) -> Result<Position> {
        check_id(id)?;
        let at = At::new("finding the position of buffer", id);
        self.need_meta(at).await?;
        if let Some(end) = self.find_end(at).await? {
            return end.position(at);
        }
        let Some(there) = self.find_writer(at).await? else { return Ok(Position::START) };
        let progress = self.progress(there.writer, at).await?;
        self.catch_up(&progress, at).await?;
        Ok(progress.position())
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
        check_id(id)?;
        let at = At::new("writing buffer", id);
        let writer = writer.mark();
        let NewChunk { n, hash, chain, data } = chunk;
        let length = data.iter().map(|piece| piece.len() as u64).sum();
        if length == 0 || length > CHUNK_BYTES_MAX {
            let (id, bytes_max) = (id.to_owned(), CHUNK_BYTES_MAX);
            return Err(BufferError::ChunkSize { id, n, bytes: length, bytes_max });
        }
        let progress = self.place_for(n, writer, at).await?;
        if n.is_multiple_of(CHUNKS_PER_END)
            && let Some(end) = self.find_end(at).await?
        {
            return Err(end.refusal(id));
        }
        if hash_of(data.clone(), at).await? != hash {
            return Err(BufferError::WrongHash { id: id.to_owned(), n });
        }
        let header = Header { n, length, put_at_ms: now_ms, writer, hash, chain };
        // Of a repeat nothing is known here but its number; what is stored decides.
        if !progress.knows(n) {
            progress
                .fits(&header)
                .map_err(|broken| BufferError::ChainBroken { id: id.to_owned(), n: broken.n })?;
        }

        let path = self.storage().chunk(id, n);
        let head = Bytes::copy_from_slice(&header.encode());
        let payload: PutPayload = std::iter::once(head).chain(data.iter().cloned()).collect();
        let stored = if self.storage().create(&path, payload, at).await? {
            Stored::New
        } else {
            let there = self.find_header(n, at).await?.ok_or_else(|| at.unsettled())?;
            if (there.hash, there.chain, there.writer) != (hash, chain, writer) {
                return Err(BufferError::ChunkConflict { id: id.to_owned(), n });
            }
            self.storage().settle(&path, at).await?;
            Stored::Repeat
        };
        // A break in the chain between chunks that came at once is told when the buffer is finished.
        let _ = progress.absorb(header, now_ms);
        if stored == Stored::New && progress.is_followed(n) {
            self.recent().keep(id, Chunk { header, data });
        }
        self.bells().ring(id);
        Ok(stored)
    }

    /// A sign of life of a writer that has nothing to send.
    pub async fn touch(&self, id: &str, writer: WriterId, now_ms: u64) -> Result<()> {
        check_id(id)?;
        let at = At::new("touching buffer", id);
        let writer = writer.mark();
        let there = self.need_writer(writer, at).await?;
        if let Some(end) = self.find_end(at).await? {
            return Err(end.refusal(id));
        }
        self.sign_life(&there, now_ms, at).await
    }

    async fn sign_life(&self, there: &Writer, now_ms: u64, at: At<'_>) -> Result<()> {
        let record = Writer { touched_at_ms: now_ms.max(there.touched_at_ms), ..there.clone() };
        self.storage().overwrite(&self.storage().writer(at.id), stored::encode(&record, at)?, at).await?;
        if let Some(progress) = self.known_progress(at.id) {
            progress.sign(now_ms);
        }
        Ok(())
    }

    /// The writer of a buffer, if it is this one.
    pub(crate) async fn need_writer(&self, writer: WriterMark, at: At<'_>) -> Result<Writer> {
        self.need_meta(at).await?;
        match self.find_writer(at).await? {
            Some(there) if there.writer == writer => Ok(there),
            Some(_) => match self.find_end(at).await? {
                Some(end) => Err(end.refusal(at.id)),
                None => Err(BufferError::BeingWritten { id: at.id.to_owned() }),
            },
            None => Err(BufferError::NotBegun { id: at.id.to_owned() }),
        }
    }

    /// What is known of a buffer that this writer writes; learnt from the storage if it began elsewhere.
    pub(crate) async fn progress(&self, writer: WriterMark, at: At<'_>) -> Result<Arc<Progress>> {
        if let Some(known) = self.known_progress(at.id).filter(|known| known.writer == writer) {
            return Ok(known);
        }
        let there = self.need_writer(writer, at).await?;
        if let Some(end) = self.find_end(at).await? {
            return Err(end.refusal(at.id));
        }
        let learnt = Progress::new(writer, there.touched_at_ms);
        self.catch_up(&learnt, at).await?;
        Ok(self.keep_progress(at.id, learnt))
    }

    /// Makes sure that chunk `n` may be stored now.
    pub(crate) async fn place_for(&self, n: u32, writer: WriterMark, at: At<'_>) -> Result<Arc<Progress>> {
        if n >= CHUNKS_MAX {
            return Err(BufferError::TooManyChunks { id: at.id.to_owned(), n, chunks_max: CHUNKS_MAX });
        }
        let progress = self.progress(writer, at).await?;
        let too_far = |progress: &Progress| n - n.min(progress.position().chunks) > AHEAD_MAX;
        if too_far(&progress) {
            // Chunks may have come through other servers.
            self.catch_up(&progress, at).await?;
            if too_far(&progress) {
                let next = progress.position().chunks;
                return Err(BufferError::ChunkTooFar { id: at.id.to_owned(), n, next, ahead_max: AHEAD_MAX });
            }
        }
        Ok(progress)
    }

    /// Takes in the headers of chunks that are stored and not known here, up to the first that is missing.
    pub(crate) async fn catch_up(&self, progress: &Progress, at: At<'_>) -> Result<()> {
        let broken = |n| BufferError::ChainBroken { id: at.id.to_owned(), n };
        let first = progress.position().chunks;
        if self.find_header(first, at).await?.is_none() {
            return Ok(());
        }
        let mut headers = futures::stream::iter(first..CHUNKS_MAX)
            .map(|n| self.find_header(n, at))
            .buffered(HEADERS_AT_ONCE);
        while let Some(header) = headers.try_next().await? {
            let Some(header) = header else { break };
            if header.writer != progress.writer {
                return Err(at.damaged(format!("chunk {} is of another writer", header.n)));
            }
            progress.absorb(header, header.put_at_ms).map_err(|stop| broken(stop.n))?;
        }
        Ok(())
    }

    /// What a stored chunk says of itself.
    pub(crate) async fn find_header(&self, n: u32, at: At<'_>) -> Result<Option<Header>> {
        let path = self.storage().chunk(at.id, n);
        let Some(beginning) = self.storage().get_beginning(&path, HEADER_LEN as u64, at).await? else {
            return Ok(None);
        };
        header_of(&beginning.bytes, beginning.object_bytes, n, at).map(Some)
    }
}
