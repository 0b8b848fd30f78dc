//! The stages of a batch in the broker: check, attach, execute, wake.
//!
//! 1. `check` refuses submits that depend on items that do not exist.
//! 2. `attach` checks the buffers that operations name and moves large payload fields to object storage.
//! 3. `execute` adds the receives of waiting receivers, and calls the store. Nothing else calls `Store::update`.
//! 4. `wake` wakes waiting callers from the effects of the batch.

pub(crate) mod attach;
pub(crate) mod attachments;
mod check;
pub(crate) mod claims;
mod execute;
pub(crate) mod payloads;
mod wake;

pub(crate) use execute::PIGGYBACKED_MAX;

use crate::broker::Shared;
use std::sync::Arc;
use towline_store::{Answered, Operation, Result};

impl Shared {
    /// Takes a client's batch through all stages.
    pub(crate) async fn update_checked(self: Arc<Self>, batch: Vec<Operation>) -> Result<Vec<Answered>> {
        match check::depends_on_items(&batch) {
            true => self.update_known(batch).await,
            false => self.update_attached(batch).await,
        }
    }

    /// Carries out a batch whose attachments are prepared, with the receives of waiting receivers after it.
    pub(crate) async fn update(self: Arc<Self>, batch: Vec<Operation>) -> Result<Vec<Answered>> {
        if !self.groups.are_begun() && check::uses_groups(&batch) {
            self.begin_groups().await?;
        }
        self.execute_with_receivers(batch).await
    }
}
