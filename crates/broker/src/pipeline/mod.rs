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
use towline_domain::change::{Answer, HandedOffItem, Submitted};
use towline_domain::{FieldSet, HandedOff, ItemId, ItemState};
use towline_store::{Answered, Operation, Reply, Result};

/// The places and items of the commits that submit items.
fn hand_offs(batch: &[Operation]) -> Vec<(usize, ItemId)> {
    let commits = batch.iter().enumerate().filter(|(_, operation)| !operation.handed_off().is_empty());
    commits.filter_map(|(at, operation)| Some((at, operation.item()?))).collect()
}

impl Shared {
    /// Takes a client's batch through all stages.
    pub(crate) async fn update_checked(self: Arc<Self>, batch: Vec<Operation>) -> Result<Vec<Answered>> {
        let commits = hand_offs(&batch);
        let mut answers = match check::depends_on_items(&batch) {
            true => Arc::clone(&self).update_known(batch).await?,
            false => Arc::clone(&self).update_attached(batch).await?,
        };
        if !commits.is_empty() {
            self.name_handed_off(&commits, &mut answers).await?;
        }
        Ok(answers)
    }

    /// Gives a repeated commit the answer of the first: the ids of the items that the first submitted.
    async fn name_handed_off(&self, commits: &[(usize, ItemId)], answers: &mut [Answered]) -> Result<()> {
        let repeated = |(at, _): &&(usize, ItemId)| {
            matches!(answers.get(*at), Some(Ok(Reply::Answer(Answer::State(ItemState::Completed)))))
        };
        let (places, ids): (Vec<usize>, Vec<ItemId>) = commits.iter().filter(repeated).copied().unzip();
        if ids.is_empty() {
            return Ok(());
        }
        let found = self.store.get(ids, FieldSet::NONE).await?;
        for (at, found) in places.into_iter().zip(found) {
            let Some(stored) = found else { continue };
            let ids = stored.item.outcome.handed_off.into_iter();
            let items = ids.map(|id| HandedOffItem { id, submitted: Submitted::Known }).collect();
            answers[at] = Ok(Reply::Answer(Answer::HandedOff(HandedOff { items })));
        }
        Ok(())
    }

    /// Carries out a batch whose attachments are prepared, with the receives of waiting receivers after it.
    pub(crate) async fn update(self: Arc<Self>, batch: Vec<Operation>) -> Result<Vec<Answered>> {
        if !self.groups.are_begun() && check::uses_groups(&batch) {
            self.begin_groups().await?;
        }
        self.execute_with_receivers(batch).await
    }
}
