//! Ends a buffer: the writer finishes or fails it, an operator or server abandons it, or it fails because the writer
//! vanished.
//!
//! **Invariant:** the first end counts. It is never replaced.

use crate::format::records::{self, EndRecord, Outcome, WriterRecord};
use crate::id::check_id;
use crate::storage::ErrorContext;
use crate::{BufferError, Buffers, Position, Result, WriterId, WriterMark};

/// The maximum length of a stored failure reason, in characters. A longer reason is cut.
const REASON_LEN_MAX: usize = 1000;

impl Buffers {
    /// Completes a buffer if all its chunks are stored and add up to `totals`. A repeat succeeds.
    pub async fn finish(&self, id: &str, writer: WriterId, totals: Position, now_ms: u64) -> Result<()> {
        check_id(id)?;
        let context = ErrorContext::new("finishing buffer", id);
        let writer = writer.mark();
        self.require_meta(context).await?;
        if let Some(end) = self.find_end(context).await? {
            return self.confirm_end(&end, writer, totals, context).await;
        }
        let progress = self.progress(writer, context).await?;
        self.catch_up(&progress, context).await?;
        let stored = progress.position();
        if stored.chunks < totals.chunks {
            return Err(BufferError::ChunkMissing { id: id.to_owned(), n: stored.chunks });
        }
        if stored != totals || progress.has_gap() {
            let Position { chunks, bytes, chain } = stored;
            let chain = chain.to_hex().to_string();
            return Err(BufferError::TotalsDiffer { id: id.to_owned(), chunks, bytes, chain });
        }
        let outcome = Outcome::Complete { sizes: progress.sizes(), writer };
        let end = self.put_end(EndRecord::new(outcome, totals, now_ms), context).await?;
        self.confirm_end(&end, writer, totals, context).await
    }

    /// Fails a buffer on behalf of its writer.
    pub async fn fail(&self, id: &str, writer: WriterId, reason: &str, now_ms: u64) -> Result<()> {
        check_id(id)?;
        let context = ErrorContext::new("failing buffer", id);
        self.require_writer(writer.mark(), context).await?;
        self.put_failed(reason, now_ms, context).await
    }

    /// Fails a buffer that has not ended, whether or not it has a writer.
    pub async fn abandon(&self, id: &str, reason: &str, now_ms: u64) -> Result<()> {
        check_id(id)?;
        let context = ErrorContext::new("abandoning buffer", id);
        self.require_meta(context).await?;
        self.put_failed(reason, now_ms, context).await
    }

    /// Fails a buffer whose writer showed no activity for longer than the timeout. Returns the end, if there is one.
    pub(crate) async fn fail_if_vanished(
        &self,
        existing: &WriterRecord,
        now_ms: u64,
        context: ErrorContext<'_>,
    ) -> Result<Option<EndRecord>> {
        let timeout_ms = self.options().writer_timeout_ms;
        let active_since = now_ms.saturating_sub(timeout_ms);
        let known = self.known_progress(context.id).filter(|known| known.writer == existing.writer);
        if existing.touched_at_ms.max(known.map_or(0, |known| known.last_activity_ms())) >= active_since {
            return Ok(None);
        }
        let scan = self.scan_chunks(context).await?;
        if scan.last_put_ms >= active_since {
            return Ok(None);
        }
        let last_activity_ms = scan.last_put_ms.max(existing.touched_at_ms);
        let silent_ms = now_ms.saturating_sub(last_activity_ms);
        let reason =
            format!("the writer vanished: no activity for {silent_ms} ms (the timeout is {timeout_ms} ms)");
        self.put_end(EndRecord::new(Outcome::Failed { reason }, scan.position, now_ms), context)
            .await
            .map(Some)
    }

    async fn put_failed(&self, reason: &str, now_ms: u64, context: ErrorContext<'_>) -> Result<()> {
        let scan = self.scan_chunks(context).await?;
        let reason = reason.chars().take(REASON_LEN_MAX).collect();
        let end =
            self.put_end(EndRecord::new(Outcome::Failed { reason }, scan.position, now_ms), context).await?;
        match end.outcome {
            Outcome::Failed { .. } => Ok(()),
            Outcome::Complete { .. } => Err(end.refusal(context.id)),
        }
    }

    /// Stores an end. Returns the existing one if the buffer has ended already.
    async fn put_end(&self, end: EndRecord, context: ErrorContext<'_>) -> Result<EndRecord> {
        let path = self.storage().end(context.id);
        let end = if self.storage().create(&path, records::encode(&end, context)?, context).await? {
            end
        } else {
            self.storage().sync_parent(&path, context).await?;
            self.find_end(context).await?.ok_or_else(|| context.inconsistent())?
        };
        self.forget_progress(context.id);
        self.notifier().notify(context.id);
        Ok(end)
    }

    /// Succeeds if the buffer was completed by this writer with these totals.
    async fn confirm_end(
        &self,
        end: &EndRecord,
        by: WriterMark,
        totals: Position,
        context: ErrorContext<'_>,
    ) -> Result<()> {
        match &end.outcome {
            Outcome::Complete { writer, .. } if *writer == by && end.position(context)? == totals => {
                self.storage().sync_parent(&self.storage().end(context.id), context).await
            }
            _ => Err(end.refusal(context.id)),
        }
    }
}
