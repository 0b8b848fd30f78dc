//! Cleaning up, in steps: expired buffers, vanished writers, data without a description, temporary files.
//!
//! Every step can be repeated, and nothing is remembered between steps but where to go on.

use futures::{StreamExt, TryStreamExt, stream};

use crate::storage::{At, page_limit};
use crate::{Buffers, Result, SweepFrom, Swept};

/// Things looked at at once.
const AT_ONCE: usize = 8;

/// What a step did to one thing.
enum Done {
    Nothing,
    ExpiredRemoved,
    VanishedFailed,
    OrphanRemoved,
}

impl Buffers {
    /// One step of cleaning up, looking at no more than `limit` (1 to 1000) things. Call again with `next` until
    /// there is none. What an item may name (blobs, outputs of attempts) is not touched: list and delete those.
    pub async fn sweep(&self, from: SweepFrom, limit: usize, grace_ms: u64, now_ms: u64) -> Result<Swept> {
        let limit = page_limit(limit);
        let before_ms = now_ms.saturating_sub(grace_ms);
        match from {
            SweepFrom::Start => self.sweep_buffers("", limit, now_ms).await,
            SweepFrom::Buffers { after } => self.sweep_buffers(&after, limit, now_ms).await,
            SweepFrom::Orphans { after } => self.sweep_orphans(after.as_deref(), limit, before_ms).await,
            SweepFrom::Temporary { after } => self.sweep_temporary(after.as_deref(), limit, before_ms).await,
        }
    }

    async fn sweep_buffers(&self, after: &str, limit: usize, now_ms: u64) -> Result<Swept> {
        let ids = self.ids(after, limit).await?;
        let mut swept = Swept::default();
        let all =
            stream::iter(ids.clone()).map(|id| async move { (self.sweep_buffer(&id, now_ms).await, id) });
        let mut all = all.buffered(AT_ONCE);
        while let Some((done, id)) = all.next().await {
            swept.count(done, &id);
        }
        swept.next = Some(match ids.last() {
            Some(last) if ids.len() == limit => SweepFrom::Buffers { after: last.clone() },
            _ => SweepFrom::Orphans { after: None },
        });
        Ok(swept)
    }

    async fn sweep_buffer(&self, id: &str, now_ms: u64) -> Result<Done> {
        let at = At::new("sweeping buffer", id);
        let Some(meta) = self.find_meta(at).await? else { return Ok(Done::Nothing) };
        if meta.expires_at_ms.is_some_and(|expires_at_ms| expires_at_ms <= now_ms) {
            self.delete(id).await?;
            return Ok(Done::ExpiredRemoved);
        }
        if self.storage().size(&self.storage().end(id), at).await?.is_some() {
            return Ok(Done::Nothing);
        }
        let Some(there) = self.find_writer(at).await? else { return Ok(Done::Nothing) };
        let end = self.fail_if_vanished(&there, now_ms, at).await?;
        Ok(if end.is_some() { Done::VanishedFailed } else { Done::Nothing })
    }

    async fn sweep_orphans(&self, after: Option<&str>, limit: usize, before_ms: u64) -> Result<Swept> {
        let ids = self
            .storage()
            .data_page(after, limit, At::new("listing data after", after.unwrap_or("")))
            .await?;
        let mut swept = Swept::default();
        let all =
            stream::iter(ids.clone()).map(|id| async move { (self.sweep_orphan(&id, before_ms).await, id) });
        let mut all = all.buffered(AT_ONCE);
        while let Some((done, id)) = all.next().await {
            swept.count(done, &id);
        }
        swept.next = match ids.last() {
            Some(last) if ids.len() == limit => Some(SweepFrom::Orphans { after: Some(last.clone()) }),
            _ => self.storage().has_temporary().then_some(SweepFrom::Temporary { after: None }),
        };
        Ok(swept)
    }

    async fn sweep_orphan(&self, id: &str, before_ms: u64) -> Result<Done> {
        let at = At::new("sweeping data of", id);
        if self.storage().size(&self.storage().meta(id), at).await?.is_some() {
            return Ok(Done::Nothing);
        }
        let data = self.storage().data(id);
        let mut objects = self.storage().list_under(&data, at);
        while let Some(object) = objects.try_next().await? {
            let written_ms = u64::try_from(object.last_modified.timestamp_millis()).unwrap_or(0);
            if written_ms >= before_ms {
                // A delete or a copy may be at it.
                return Ok(Done::Nothing);
            }
        }
        drop(objects);
        self.storage().delete_under(&data, at).await?;
        Ok(Done::OrphanRemoved)
    }

    async fn sweep_temporary(&self, after: Option<&str>, limit: usize, before_ms: u64) -> Result<Swept> {
        let at = At::new("removing temporary files after", after.unwrap_or(""));
        let ids = self.storage().data_page(after, limit, at).await?;
        let mut swept = Swept { looked_at: ids.len() as u64, ..Swept::default() };
        if after.is_none() {
            swept.temporary_removed += self.storage().remove_temporary(None, before_ms, at).await?;
        }
        swept.temporary_removed += self.storage().remove_temporary(Some(&ids), before_ms, at).await?;
        if ids.len() == limit {
            swept.next = ids.last().map(|last| SweepFrom::Temporary { after: Some(last.clone()) });
        }
        Ok(swept)
    }
}

impl Swept {
    fn count(&mut self, done: Result<Done>, id: &str) {
        self.looked_at += 1;
        match done {
            Ok(Done::Nothing) => {}
            Ok(Done::ExpiredRemoved) => self.expired_removed += 1,
            Ok(Done::VanishedFailed) => self.vanished_failed += 1,
            Ok(Done::OrphanRemoved) => self.orphans_removed += 1,
            Err(error) => {
                // One that is damaged must not keep the others from being swept.
                tracing::warn!(id, %error, "not swept");
                self.skipped += 1;
            }
        }
    }
}
