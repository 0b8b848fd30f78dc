//! Groups: how many have not ended, what they have to tell, and that all is done.
//!
//! A counter has how many of a group have not ended. The root of a group is not in it: most are alone, and cost nothing
//! then. A root that has ended is seen by its record; if others had joined by then it counts itself out, so that of all
//! those who end at the same time one sees that it was the last: the record says where the count ends.

use super::{OrphanedGroup, Record, Shared};
use crate::envelope::{Envelope, root_of};
use crate::event::Event;
use crate::ports::{Count, PortError};
use std::sync::Arc;
use std::time::Duration;

/// So long may somebody who waits take to say so.
const ORPHAN_GRACE: Duration = Duration::from_millis(100);

impl Shared {
    /// One more that has not ended; told again of the same one, nothing changes.
    pub(crate) async fn open_group(&self, envelope: &Envelope) -> Result<(), PortError> {
        if envelope.is_root() {
            return Ok(());
        }
        self.count(&envelope.group, 1, &envelope.id).await.map(drop)
    }

    /// Whether it is the root of a group that others have joined.
    pub(crate) async fn is_joined(&self, envelope: &Envelope) -> Result<bool, PortError> {
        Ok(envelope.is_root() && self.open(&envelope.group).await?.is_some())
    }

    /// One has ended, and its record is stored. However often it is delivered, it ends once.
    pub(crate) async fn close_group(
        self: &Arc<Shared>,
        envelope: &Envelope,
        record: &Record,
    ) -> Result<(), PortError> {
        if !envelope.is_root() {
            return Box::pin(self.member_ended(envelope)).await;
        }
        if !record.joined {
            // Who waits for the group of one who is alone hears that it is done, and that is told in any case.
            self.group_has_ended(&envelope.group);
        } else if self.count_out(envelope).await? <= record.last() {
            self.group_ended(&envelope.group).await;
        }
        Ok(())
    }

    async fn member_ended(self: &Arc<Shared>, envelope: &Envelope) -> Result<(), PortError> {
        // Whoever queued it may have died before it was counted.
        self.open_group(envelope).await?;
        let open = self.count_out(envelope).await?;
        let last = match root_of(&envelope.group) {
            Some(root) => self.record(root).await?.map(|record| record.last()),
            None => Some(0),
        };
        if last.is_some_and(|last| open <= last) {
            self.group_ended(&envelope.group).await;
        }
        Ok(())
    }

    async fn count_out(&self, envelope: &Envelope) -> Result<i64, PortError> {
        self.count(&envelope.group, -1, &format!("-{}", envelope.id)).await
    }

    async fn count(&self, group: &str, by: i64, once: &str) -> Result<i64, PortError> {
        let count = Count { by, once: Some(once) };
        self.backend.store.increment(&self.keys.open(group), count, self.config.unfinished_kept).await
    }

    async fn open(&self, group: &str) -> Result<Option<i64>, PortError> {
        self.counter_if_any(&self.keys.open(group)).await
    }

    async fn group_ended(self: &Arc<Shared>, group: &str) {
        self.group_has_ended(group);
        self.publish("group", group).await;
    }

    fn group_has_ended(self: &Arc<Shared>, group: &str) {
        self.tell_often(None, || Event::GroupDone { group: group.to_owned() });
        if self.is_told_of_orphans() {
            tokio::spawn(Arc::clone(self).look_for_waiters(group.to_owned()));
        }
    }

    /// Something, if all of it has ended. The count says so: children are counted in before their parent is counted out, so it
    /// is down only when nothing is left, and above again if more is queued into the group.
    pub(crate) async fn is_group_done(&self, group: &str) -> Result<Option<()>, PortError> {
        let Some(root) = root_of(group) else {
            return Ok(self.open(group).await?.filter(|open| *open <= 0).map(drop));
        };
        let Some(record) = self.record(root).await? else { return Ok(None) };
        let open = self.open(group).await?.unwrap_or_default();
        Ok((open <= record.last()).then_some(()))
    }

    /// What was last said to be its result.
    pub(crate) async fn group_result(&self, group: &str) -> Result<Option<String>, PortError> {
        let said = self.backend.store.get(&self.keys.group_result(group)).await?;
        match root_of(group).filter(|_| said.is_none()) {
            Some(root) => Ok(self.record(root).await?.and_then(|record| record.result)),
            None => Ok(said),
        }
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
    pub(crate) async fn publish(&self, what: &str, of: &str) {
        if let Err(error) = self.backend.pubsub.publish(self.keys.said(what, of)).await {
            self.trouble("telling who waits", &error);
        }
    }

    pub(crate) fn is_told_of_orphans(&self) -> bool {
        self.watchers.on_orphan.is_some()
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
        let result = self.group_result(group).await?;
        let states = if self.config.states { self.group_states(group).await? } else { Vec::new() };
        if let Some(on_orphan) = &self.watchers.on_orphan {
            on_orphan(OrphanedGroup { group: group.to_owned(), result, states });
        }
        Ok(())
    }
}
