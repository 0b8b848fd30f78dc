//! The sweep: deletes expired buffers, fails buffers whose writer vanished, deletes data without a description, and
//! deletes temporary files.
//!
//! The sweep runs in steps. Every step can be repeated. The cursor is the only state between two steps.

use futures::{StreamExt, TryStreamExt, stream};

use crate::storage::{ErrorContext, page_limit};
use crate::{Buffers, Result};
use towline_domain::BufferId;

const PARALLEL_CHECKS: usize = 8;

/// Where a sweep continues. The next call may come much later. A new sweep starts at the default.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum SweepCursor {
    #[default]
    Start,
    /// Examines buffers: deletes expired ones and fails those whose writer vanished.
    Buffers { after: String },
    /// Deletes data without a description.
    Orphans { after: Option<String> },
    /// Deletes files that a crash left half written. In a directory only.
    Temporary { after: Option<String> },
}

/// What one step of a sweep did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SweepReport {
    pub examined: u64,
    pub expired_removed: u64,
    pub vanished_failed: u64,
    pub orphans_removed: u64,
    pub temporary_removed: u64,
    /// Objects whose check failed. The log says why, and the next sweep tries again.
    pub skipped: u64,
    /// `None` at the end of the sweep.
    pub next: Option<SweepCursor>,
}

/// What a step did to one buffer.
enum SweepAction {
    Nothing,
    ExpiredRemoved,
    VanishedFailed,
    OrphanRemoved,
}

impl Buffers {
    /// Runs one step of a sweep, which examines at most `limit` (1 to 1000) objects. The caller repeats it with `next`
    /// until there is none.
    ///
    /// The sweep does not delete blobs and outputs of attempts: the broker does, because items refer to them.
    pub async fn sweep(
        &self,
        from: SweepCursor,
        limit: usize,
        grace_ms: u64,
        now_ms: u64,
    ) -> Result<SweepReport> {
        let limit = page_limit(limit);
        let before_ms = now_ms.saturating_sub(grace_ms);
        match from {
            SweepCursor::Start => self.sweep_buffers("", limit, now_ms).await,
            SweepCursor::Buffers { after } => self.sweep_buffers(&after, limit, now_ms).await,
            SweepCursor::Orphans { after } => self.sweep_orphans(after.as_deref(), limit, before_ms).await,
            SweepCursor::Temporary { after } => {
                self.sweep_temporary(after.as_deref(), limit, before_ms).await
            }
        }
    }

    async fn sweep_buffers(&self, after: &str, limit: usize, now_ms: u64) -> Result<SweepReport> {
        let ids = self.ids(after, limit).await?;
        let mut report = SweepReport::default();
        let checks =
            stream::iter(ids.clone()).map(|id| async move { (self.sweep_buffer(&id, now_ms).await, id) });
        let mut checks = checks.buffered(PARALLEL_CHECKS);
        while let Some((action, id)) = checks.next().await {
            report.count(action, &id);
        }
        report.next = Some(match ids.last() {
            Some(last) if ids.len() == limit => SweepCursor::Buffers { after: last.clone() },
            _ => SweepCursor::Orphans { after: None },
        });
        Ok(report)
    }

    async fn sweep_buffer(&self, id: &str, now_ms: u64) -> Result<SweepAction> {
        let context = ErrorContext::new("sweeping buffer", id);
        let Some(meta) = self.find_meta(context).await? else { return Ok(SweepAction::Nothing) };
        let is_expired = meta.expires_at_ms.is_some_and(|expires_at_ms| expires_at_ms <= now_ms);
        if is_expired && !is_of_attempt(id) {
            self.delete(id).await?;
            return Ok(SweepAction::ExpiredRemoved);
        }
        if self.storage().size(&self.storage().end(id), context).await?.is_some() {
            return Ok(SweepAction::Nothing);
        }
        let Some(existing) = self.find_writer(context).await? else { return Ok(SweepAction::Nothing) };
        let end = self.fail_if_vanished(&existing, now_ms, context).await?;
        Ok(if end.is_some() { SweepAction::VanishedFailed } else { SweepAction::Nothing })
    }

    async fn sweep_orphans(&self, after: Option<&str>, limit: usize, before_ms: u64) -> Result<SweepReport> {
        let ids = self
            .storage()
            .data_page(after, limit, ErrorContext::new("listing data after", after.unwrap_or("")))
            .await?;
        let mut report = SweepReport::default();
        let checks =
            stream::iter(ids.clone()).map(|id| async move { (self.sweep_orphan(&id, before_ms).await, id) });
        let mut checks = checks.buffered(PARALLEL_CHECKS);
        while let Some((action, id)) = checks.next().await {
            report.count(action, &id);
        }
        report.next = match ids.last() {
            Some(last) if ids.len() == limit => Some(SweepCursor::Orphans { after: Some(last.clone()) }),
            _ => self.storage().has_temporary().then_some(SweepCursor::Temporary { after: None }),
        };
        Ok(report)
    }

    async fn sweep_orphan(&self, id: &str, before_ms: u64) -> Result<SweepAction> {
        let context = ErrorContext::new("sweeping data of", id);
        if self.storage().size(&self.storage().meta(id), context).await?.is_some() {
            return Ok(SweepAction::Nothing);
        }
        let data = self.storage().data(id);
        let mut objects = self.storage().list_prefix(&data, context);
        while let Some(object) = objects.try_next().await? {
            let written_ms = u64::try_from(object.last_modified.timestamp_millis()).unwrap_or(0);
            if written_ms >= before_ms {
                // A delete or a copy may be in progress.
                return Ok(SweepAction::Nothing);
            }
        }
        drop(objects);
        self.storage().delete_prefix(&data, context).await?;
        Ok(SweepAction::OrphanRemoved)
    }

    async fn sweep_temporary(
        &self,
        after: Option<&str>,
        limit: usize,
        before_ms: u64,
    ) -> Result<SweepReport> {
        let context = ErrorContext::new("removing temporary files after", after.unwrap_or(""));
        let ids = self.storage().data_page(after, limit, context).await?;
        let mut report = SweepReport { examined: ids.len() as u64, ..SweepReport::default() };
        if after.is_none() {
            report.temporary_removed += self.storage().remove_temporary(None, before_ms, context).await?;
        }
        report.temporary_removed += self.storage().remove_temporary(Some(&ids), before_ms, context).await?;
        if ids.len() == limit {
            report.next = ids.last().map(|last| SweepCursor::Temporary { after: Some(last.clone()) });
        }
        Ok(report)
    }
}

fn is_of_attempt(id: &str) -> bool {
    id.parse::<BufferId>().is_ok_and(|id| id.attempted().is_some())
}

impl SweepReport {
    fn count(&mut self, action: Result<SweepAction>, id: &str) {
        self.examined += 1;
        match action {
            Ok(SweepAction::Nothing) => {}
            Ok(SweepAction::ExpiredRemoved) => self.expired_removed += 1,
            Ok(SweepAction::VanishedFailed) => self.vanished_failed += 1,
            Ok(SweepAction::OrphanRemoved) => self.orphans_removed += 1,
            Err(error) => {
                // One damaged object must not stop the sweep.
                tracing::warn!(id, %error, "sweep skipped an object");
                self.skipped += 1;
            }
        }
    }
}
