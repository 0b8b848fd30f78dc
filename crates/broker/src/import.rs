//! Restoring a whole store while the broker runs.
//!
//! **Invariant:** during an import, schedules submit nothing. Groups are counted, and dependencies resolved, only after the last item
//! is there: the caller writes [`begin_groups`](crate::begin_groups) at the end.

use crate::broker::{Broker, Shared};
use std::sync::Arc;
use towline_store::{Answered, Operation, Result};

/// The right to restore into the store. Dropping it lets schedules and groups start.
pub struct RunningImport(Arc<Shared>);

impl std::fmt::Debug for RunningImport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RunningImport")
    }
}

impl Broker {
    /// Stops schedules until the import is dropped. There must be one import at a time.
    #[must_use]
    pub fn begin_import(&self) -> RunningImport {
        self.0.schedule_timers.hold(true);
        RunningImport(Arc::clone(&self.0))
    }
}

impl RunningImport {
    /// Carries out a batch as it is: buffers and dependencies were checked when the items were submitted.
    pub async fn update(&self, batch: Vec<Operation>) -> Result<Vec<Answered>> {
        self.0.execute(batch).await
    }
}

impl Drop for RunningImport {
    fn drop(&mut self) {
        self.0.schedule_timers.hold(false);
        self.0.groups.wake();
    }
}
