//! Groups: how many have not ended, what they have to tell, and that all is done.

use super::{OrphanedGroup, Shared};
use crate::envelope::Envelope;
use crate::event::Event;
use crate::ports::{Count, PortError};
use std::sync::Arc;
use std::time::Duration;

/// So long may somebody who waits take to say so.
const ORPHAN_GRACE: Duration = Duration::from_millis(100);

impl Shared {
    /// One more that has not ended; told again of the same one, nothing changes.
    pub(crate) async fn open_group(&self, envelope: &Envelope) -> Result<(), PortError> {
        let count = Count { by: 1, once: Some(&envelope.id) };
        let kept = self.config.results_kept;
        self.backend.store.increment(&self.keys.open(&envelope.group), count, kept).await.map(drop)
    }

    /// One has ended. However often it is delivered, it ends once.
    pub(crate) async fn close_group(self: &Arc<Shared>, envelope: &Envelope) -> Result<(), PortError> {
        let (group, kept) = (&envelope.group, self.config.results_kept);
        let ended = format!("-{}", envelope.id);
        let count = Count { by: -1, once: Some(&ended) };
        let open = self.backend.store.increment(&self.keys.open(group), count, kept).await?;
        if open > 0 {
            return Ok(());
        }
        self.tell(&Event::GroupDone { group: group.clone() });
        self.publish(&format!("group {group}")).await;
        if self.watchers.on_orphan.is_some() {
            tokio::spawn(Arc::clone(self).look_for_waiters(group.clone()));
        }
        Ok(())
    }

    /// Something, if all of it has ended. The count says so: children are counted in before their parent is counted out, so it
    /// is at 0 only when nothing is left, and above again if more is queued into the group.
    pub(crate) async fn is_group_done(&self, group: &str) -> Result<Option<()>, PortError> {
        let open = self.backend.store.get(&self.keys.open(group)).await?;
        Ok(open.filter(|open| open.parse::<i64>().is_ok_and(|open| open <= 0)).map(drop))
    }

    /// Told again of the same one, nothing changes.
    pub(crate) async fn add_to_group(
        &self,
        envelope: &Envelope,
        value: &str,
        append: bool,
    ) -> Result<(), PortError> {
        let (group, kept) = (&envelope.group, self.config.results_kept);
        let store = &self.backend.store;
        if append {
            let count = Count { by: 1, once: Some(&envelope.id) };
            let n = store.increment(&self.keys.appended(group), count, kept).await?;
            return store.set(&self.keys.append(group, n), value.to_owned(), kept).await;
        }
        store.set(&self.keys.group_result(group), value.to_owned(), kept).await
    }

    /// Best effort: waiters look for themselves, too.
    pub(crate) async fn publish(&self, message: &str) {
        if let Err(error) = self.backend.pubsub.publish(format!("{}{message}", self.keys.0)).await {
            self.trouble("telling who waits", &error);
        }
    }

    async fn look_for_waiters(self: Arc<Shared>, group: String) {
        self.sleep(ORPHAN_GRACE).await;
        if let Err(error) = self.orphaned(&group).await {
            self.trouble("looking for who waits for a group", &error);
        }
    }

    async fn orphaned(&self, group: &str) -> Result<(), PortError> {
        let store = &self.backend.store;
        let first =
            store.set_if_absent(&self.keys.handled(group), "1".to_owned(), self.config.results_kept).await?;
        if !first || store.get(&self.keys.waited(group)).await?.is_some() {
            return Ok(());
        }
        let result = store.get(&self.keys.group_result(group)).await?;
        if let Some(on_orphan) = &self.watchers.on_orphan {
            on_orphan(OrphanedGroup { group: group.to_owned(), result });
        }
        Ok(())
    }
}
