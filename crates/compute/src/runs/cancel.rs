//! Cancels runs.

use crate::{Compute, Result};
use towline_api::compute::RunShown;
use towline_domain::{ItemId, ItemState, Refusal};

impl Compute {
    /// Cancels a run. One that runs is stopped by its node first, and is `canceling` until then.
    pub async fn cancel_run(&self, id: ItemId, reason: &str) -> Result<RunShown> {
        let stored = self.run_item(id).await?;
        let reason = if reason.is_empty() { "canceled by a client" } else { reason };
        if !self.stop_item(&stored, reason).await? {
            let state = ItemState::from(stored.item.head.state.kind());
            let remedy = "a run that has ended cannot be canceled";
            return Err(Refusal::WrongState { id, state, remedy }.into());
        }
        self.run(id).await
    }
}
