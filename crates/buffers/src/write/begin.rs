//! The writer's claim on a buffer: begin or resume, ask for the position, report activity.

use std::sync::Arc;

use futures::{StreamExt, TryStreamExt};

use super::progress::Progress;
use crate::format::chunk_header::{CHUNK_HEADER_LEN, CHUNKS_MAX, ChunkHeader};
use crate::format::records::{self, WriterRecord};
use crate::format::verify::parse_header;
use crate::id::check_id;
use crate::storage::ErrorContext;
use crate::{BufferError, Buffers, Position, Result, WriterId, WriterMark};

/// How many headers this process reads in parallel when it learns the progress of a buffer.
const PARALLEL_HEADERS: usize = 16;

impl Buffers {
    /// Begins to write a buffer, or resumes: the same writer gets its position. Refuses every other writer.
    pub async fn begin(&self, id: &str, writer: WriterId, now_ms: u64) -> Result<Position> {
        check_id(id)?;
        let context = ErrorContext::new("beginning buffer", id);
        let writer = writer.mark();
        self.require_meta(context).await?;
        self.refuse_if_ended(context).await?;
        self.storage().create_directory(&self.storage().chunks(id), context).await?;
        let record = WriterRecord { writer, begun_at_ms: now_ms, touched_at_ms: now_ms };
        if self
            .storage()
            .create(&self.storage().writer(id), records::encode(&record, context)?, context)
            .await?
        {
            // Any cached progress belongs to a deleted buffer with the same id.
            self.forget_progress(id);
            return Ok(self.cache_progress(id, Progress::new(writer, now_ms)).position());
        }
        match self.find_writer(context).await? {
            Some(existing) if existing.writer == writer => {
                let progress = self.progress(writer, context).await?;
                self.record_writer_activity(&existing, now_ms, context).await?;
                self.catch_up(&progress, context).await?;
                Ok(progress.position())
            }
            Some(existing) => match self.fail_if_vanished(&existing, now_ms, context).await? {
                Some(end) => Err(end.refusal(id)),
                None => Err(BufferError::BeingWritten { id: id.to_owned() }),
            },
            None => Err(context.inconsistent()),
        }
    }

    /// How far the buffer is written without a gap. Checks every link of the hash chain.
    pub async fn position(&self, id: &str) -> Result<Position> {
        check_id(id)?;
        let context = ErrorContext::new("finding the position of buffer", id);
        self.require_meta(context).await?;
        if let Some(end) = self.find_end(context).await? {
            return end.position(context);
        }
        let Some(existing) = self.find_writer(context).await? else { return Ok(Position::START) };
        let progress = self.progress(existing.writer, context).await?;
        self.catch_up(&progress, context).await?;
        Ok(progress.position())
    }

    /// Reports that the writer is alive although it has no chunk to send.
    pub async fn touch(&self, id: &str, writer: WriterId, now_ms: u64) -> Result<()> {
        check_id(id)?;
        let context = ErrorContext::new("touching buffer", id);
        let existing = self.require_writer(writer.mark(), context).await?;
        self.refuse_if_ended(context).await?;
        self.record_writer_activity(&existing, now_ms, context).await
    }

    async fn record_writer_activity(
        &self,
        existing: &WriterRecord,
        now_ms: u64,
        context: ErrorContext<'_>,
    ) -> Result<()> {
        let record = WriterRecord { touched_at_ms: now_ms.max(existing.touched_at_ms), ..existing.clone() };
        let path = self.storage().writer(context.id);
        self.storage().overwrite(&path, records::encode(&record, context)?, context).await?;
        if let Some(progress) = self.known_progress(context.id) {
            progress.record_activity(now_ms);
        }
        Ok(())
    }

    pub(super) async fn refuse_if_ended(&self, context: ErrorContext<'_>) -> Result<()> {
        self.find_end(context).await?.map_or(Ok(()), |end| Err(end.refusal(context.id)))
    }

    /// The writer's record, if `writer` is the writer of the buffer.
    pub(super) async fn require_writer(
        &self,
        writer: WriterMark,
        context: ErrorContext<'_>,
    ) -> Result<WriterRecord> {
        self.require_meta(context).await?;
        match self.find_writer(context).await? {
            Some(existing) if existing.writer == writer => Ok(existing),
            Some(_) => {
                self.refuse_if_ended(context).await?;
                Err(BufferError::BeingWritten { id: context.id.to_owned() })
            }
            None => Err(BufferError::NotBegun { id: context.id.to_owned() }),
        }
    }

    /// The progress of this writer's buffer: cached, or read from the storage if the writer began on another server.
    pub(super) async fn progress(
        &self,
        writer: WriterMark,
        context: ErrorContext<'_>,
    ) -> Result<Arc<Progress>> {
        if let Some(known) = self.known_progress(context.id).filter(|known| known.writer == writer) {
            return Ok(known);
        }
        let existing = self.require_writer(writer, context).await?;
        self.refuse_if_ended(context).await?;
        let learned = Progress::new(writer, existing.touched_at_ms);
        self.catch_up(&learned, context).await?;
        Ok(self.cache_progress(context.id, learned))
    }

    /// Adds the headers of stored chunks that `progress` does not know yet, up to the first missing chunk.
    pub(super) async fn catch_up(&self, progress: &Progress, context: ErrorContext<'_>) -> Result<()> {
        let first = progress.position().chunks;
        if self.find_header(first, context).await?.is_none() {
            return Ok(());
        }
        let mut headers = futures::stream::iter(first..CHUNKS_MAX)
            .map(|n| self.find_header(n, context))
            .buffered(PARALLEL_HEADERS);
        while let Some(header) = headers.try_next().await? {
            let Some(header) = header else { break };
            if header.writer != progress.writer {
                return Err(context.damaged(format!("chunk {} is of another writer", header.n)));
            }
            progress
                .add(header, header.put_at_ms)
                .map_err(|broken| BufferError::ChainBroken { id: context.id.to_owned(), n: broken.n })?;
        }
        Ok(())
    }

    /// The header of a stored chunk.
    pub(crate) async fn find_header(&self, n: u32, context: ErrorContext<'_>) -> Result<Option<ChunkHeader>> {
        let path = self.storage().chunk(context.id, n);
        let Some(prefix) = self.storage().get_prefix(&path, CHUNK_HEADER_LEN as u64, context).await? else {
            return Ok(None);
        };
        parse_header(&prefix.bytes, prefix.object_bytes, n, context).map(Some)
    }
}
