//! The end of a buffer: complete, failed by its writer, abandoned, or failed because its writer vanished. Whoever comes
//! first decides; an end is never replaced.

use crate::id::check_id;
use crate::storage::At;
use crate::stored::{self, End, Outcome, Writer};
use crate::{BufferError, Buffers, Position, Result, WriterId, WriterMark};

/// The longest reason that is kept.
const REASON_LEN_MAX: usize = 1000;

impl Buffers {
    /// Ends a buffer as complete, if all chunks are there and add up to `totals`. A repeat is acknowledged.
    pub async fn finish(&self, id: &str, writer: WriterId, totals: Position, now_ms: u64) -> Result<()> {
        check_id(id)?;
        let at = At::new("finishing buffer", id);
        let writer = writer.mark();
        self.need_meta(at).await?;
        if let Some(end) = self.find_end(at).await? {
            return self.same_end(&end, writer, totals, at).await;
        }
        let progress = self.progress(writer, at).await?;
        self.catch_up(&progress, at).await?;
        let there = progress.position();
        if there.chunks < totals.chunks {
            return Err(BufferError::ChunkMissing { id: id.to_owned(), n: there.chunks });
        }
        if there != totals || progress.has_ahead() {
            let Position { chunks, bytes, chain } = there;
            let chain = chain.to_hex().to_string();
            return Err(BufferError::TotalsDiffer { id: id.to_owned(), chunks, bytes, chain });
        }
        let outcome = Outcome::Complete { sizes: progress.sizes(), writer };
        let end = self.put_end(End::new(outcome, totals, now_ms), at).await?;
        self.same_end(&end, writer, totals, at).await
    }

    /// Ends a buffer as failed, by its writer.
    pub async fn fail(&self, id: &str, writer: WriterId, reason: &str, now_ms: u64) -> Result<()> {
        check_id(id)?;
        let at = At::new("failing buffer", id);
        self.need_writer(writer.mark(), at).await?;
        self.put_failed(reason, now_ms, at).await
    }

    /// Ends a buffer as failed, by whoever is in charge of it: written or not.
    pub async fn abandon(&self, id: &str, reason: &str, now_ms: u64) -> Result<()> {
        check_id(id)?;
        let at = At::new("abandoning buffer", id);
        self.need_meta(at).await?;
        self.put_failed(reason, now_ms, at).await
    }

    /// Ends a buffer whose writer gave no sign of life for too long; tells the end, if it has one then.
    pub(crate) async fn fail_if_vanished(
        &self,
        there: &Writer,
        now_ms: u64,
        at: At<'_>,
    ) -> Result<Option<End>> {
        let timeout_ms = self.options().writer_timeout_ms;
        let lively_since = now_ms.saturating_sub(timeout_ms);
        let known = self.known_progress(at.id).filter(|known| known.writer == there.writer);
        if there.touched_at_ms.max(known.map_or(0, |known| known.last_sign_ms())) >= lively_since {
            return Ok(None);
        }
        let survey = self.survey(at).await?;
        if survey.last_put_ms >= lively_since {
            return Ok(None);
        }
        let last_sign_ms = survey.last_put_ms.max(there.touched_at_ms);
        let silent_ms = now_ms.saturating_sub(last_sign_ms);
        let reason =
            format!("the writer vanished: no sign of life for {silent_ms} ms, {timeout_ms} are allowed");
        self.put_end(End::new(Outcome::Failed { reason }, survey.position, now_ms), at).await.map(Some)
    }

    async fn put_failed(&self, reason: &str, now_ms: u64, at: At<'_>) -> Result<()> {
        let survey = self.survey(at).await?;
        let reason = reason.chars().take(REASON_LEN_MAX).collect();
        let end = self.put_end(End::new(Outcome::Failed { reason }, survey.position, now_ms), at).await?;
        match end.outcome {
            Outcome::Failed { .. } => Ok(()),
            Outcome::Complete { .. } => Err(end.refusal(at.id)),
        }
    }

    /// Stores an end, or finds that there is one.
    async fn put_end(&self, end: End, at: At<'_>) -> Result<End> {
        let path = self.storage().end(at.id);
        let end = if self.storage().create(&path, stored::encode(&end, at)?, at).await? {
            end
        } else {
            self.storage().settle(&path, at).await?;
            self.find_end(at).await?.ok_or_else(|| at.unsettled())?
        };
        self.forget_progress(at.id);
        self.bells().ring(at.id);
        Ok(end)
    }

    /// Whether a buffer ended as its writer says.
    async fn same_end(&self, end: &End, by: WriterMark, totals: Position, at: At<'_>) -> Result<()> {
        match &end.outcome {
            Outcome::Complete { writer, .. } if *writer == by && end.position(at)? == totals => {
                self.storage().settle(&self.storage().end(at.id), at).await
            }
            _ => Err(end.refusal(at.id)),
        }
    }
}
