//! Groups: counts the unfinished members, stores the values of a group, and finds out that it has ended.
//!
//! A counter holds how many members of a group have not ended. The root is not counted in: most roots are alone in their
//! group, and then the group costs nothing. The result record of the root says that the root has ended. If members have
//! joined by then, the root counts itself out too, and its record says so. So the counter ends at 0 or at -1, and of
//! several members that end at the same time exactly one sees that it was the last.

use super::{Engine, ResultRecord, State};
use crate::envelope::{Envelope, root_of};
use crate::event::Event;
use crate::ports::{Increment, PortError};
use std::sync::Arc;
use std::time::Duration;

/// How long a waiter may take to record itself before the group counts as an orphan.
const ORPHAN_GRACE: Duration = Duration::from_millis(100);

/// A group that ended while no waiter waited for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrphanedGroup {
    pub group: String,
    /// The result of the group, encoded by the codec of the system.
    pub result: Option<String>,
    /// The states of the first thousand members, in systems that track states ([`crate::Builder::track_states`]).
    pub states: Vec<(String, State)>,
}

impl Engine {
    /// Counts a member into its group. A repeated call changes nothing.
    pub(crate) async fn join_group(&self, envelope: &Envelope) -> Result<(), PortError> {
        if envelope.is_root() {
            return Ok(());
        }
        self.add_unfinished(&envelope.group, 1, &envelope.id).await.map(drop)
    }

    /// Whether the work is the root of a group that other members have joined.
    pub(super) async fn is_joined_root(&self, envelope: &Envelope) -> Result<bool, PortError> {
        Ok(envelope.is_root() && self.unfinished(&envelope.group).await?.is_some())
    }

    /// Counts a member out of its group. Its result must be stored before. A repeated call changes nothing.
    pub(super) async fn leave_group(
        self: &Arc<Engine>,
        envelope: &Envelope,
        record: &ResultRecord,
    ) -> Result<(), PortError> {
        if !envelope.is_root() {
            return Box::pin(self.member_ended(envelope)).await;
        }
        if !record.joined {
            // No message for the group: its waiters also wait for the message that the root is done.
            self.emit_group_done(&envelope.group);
        } else if self.count_out(envelope).await? <= record.unfinished_at_end() {
            self.group_ended(&envelope.group).await;
        }
        Ok(())
    }

    async fn member_ended(self: &Arc<Engine>, envelope: &Envelope) -> Result<(), PortError> {
        // The submitter may have died before it counted the member in.
        self.join_group(envelope).await?;
        let unfinished = self.count_out(envelope).await?;
        let at_end = match root_of(&envelope.group) {
            Some(root) => self.result_record(root).await?.map(|record| record.unfinished_at_end()),
            None => Some(0),
        };
        if at_end.is_some_and(|at_end| unfinished <= at_end) {
            self.group_ended(&envelope.group).await;
        }
        Ok(())
    }

    async fn count_out(&self, envelope: &Envelope) -> Result<i64, PortError> {
        self.add_unfinished(&envelope.group, -1, &format!("-{}", envelope.id)).await
    }

    async fn add_unfinished(&self, group: &str, by: i64, once: &str) -> Result<i64, PortError> {
        let (key, increment) = (self.keys.unfinished(group), Increment { by, once: Some(once) });
        self.backend.store.increment(&key, increment, self.config.unfinished_retention).await
    }

    async fn unfinished(&self, group: &str) -> Result<Option<i64>, PortError> {
        self.counter_if_any(&self.keys.unfinished(group)).await
    }

    async fn group_ended(self: &Arc<Engine>, group: &str) {
        self.emit_group_done(group);
        self.publish("group", group).await;
    }

    fn emit_group_done(self: &Arc<Engine>, group: &str) {
        self.emit_with(None, || Event::GroupDone { group: group.to_owned() });
        if self.watches_orphans() {
            tokio::spawn(Arc::clone(self).check_orphan(group.to_owned()));
        }
    }

    /// Returns `Some` if all members have ended. Children are counted in before their parent is counted out, so the
    /// counter reaches its end only when no member is left. It rises again if more work is submitted to the group.
    pub(crate) async fn is_group_done(&self, group: &str) -> Result<Option<()>, PortError> {
        let Some(root) = root_of(group) else {
            return Ok(self.unfinished(group).await?.filter(|unfinished| *unfinished <= 0).map(drop));
        };
        let Some(record) = self.result_record(root).await? else { return Ok(None) };
        let unfinished = self.unfinished(group).await?.unwrap_or_default();
        Ok((unfinished <= record.unfinished_at_end()).then_some(()))
    }

    /// The last result of the group's members.
    pub(crate) async fn group_result(&self, group: &str) -> Result<Option<String>, PortError> {
        let result = self.backend.store.get(&self.keys.group_result(group)).await?;
        match root_of(group).filter(|_| result.is_none()) {
            Some(root) => Ok(self.result_record(root).await?.and_then(|record| record.result)),
            None => Ok(result),
        }
    }

    /// Replaces the result of the group, or appends a value. A repeated call changes nothing.
    pub(super) async fn add_group_value(
        &self,
        envelope: &Envelope,
        value: &str,
        append: bool,
    ) -> Result<(), PortError> {
        let (group, retention) = (&envelope.group, self.config.result_retention);
        let store = &self.backend.store;
        if append {
            let increment = Increment { by: 1, once: Some(&envelope.id) };
            let n = store.increment(&self.keys.appended_count(group), increment, retention).await?;
            return store.set(&self.keys.appended(group, n), value.to_owned(), retention).await;
        }
        store.set(&self.keys.group_result(group), value.to_owned(), retention).await
    }

    /// Wakes waiters. A lost message only delays them: they also look into the store at intervals.
    pub(super) async fn publish(&self, what: &str, of: &str) {
        if let Err(error) = self.backend.pubsub.publish(self.keys.message(what, of)).await {
            self.report_error("publish to waiters", &error);
        }
    }

    pub(crate) fn watches_orphans(&self) -> bool {
        self.callbacks.on_orphan.is_some()
    }

    async fn check_orphan(self: Arc<Engine>, group: String) {
        self.sleep(ORPHAN_GRACE).await;
        if let Err(error) = self.report_orphan(&group).await {
            self.report_error("look for waiters of a group", &error);
        }
    }

    async fn report_orphan(&self, group: &str) -> Result<(), PortError> {
        let (store, key) = (&self.backend.store, self.keys.orphan_check(group));
        let is_first = store.set_if_absent(&key, "1".to_owned(), self.config.result_retention).await?;
        if !is_first || store.get(&self.keys.group_waiter(group)).await?.is_some() {
            return Ok(());
        }
        let result = self.group_result(group).await?;
        let states = if self.config.track_states { self.group_states(group).await? } else { Vec::new() };
        if let Some(on_orphan) = &self.callbacks.on_orphan {
            on_orphan(OrphanedGroup { group: group.to_owned(), result, states });
        }
        Ok(())
    }
}
