//! Refuses submits that depend on items that do not exist, and notes which of these items have completed.

use crate::broker::Shared;
use std::collections::HashSet;
use std::sync::Arc;
use towline_domain::{DependencyState, DependsOn, FieldSet, ItemId, Refusal, State, Submission, limits};
use towline_store::{Answered, Operation, Result};

/// The items that the submits of an operation depend on.
fn dependencies(operation: &Operation) -> impl Iterator<Item = ItemId> {
    let of_submission = |submission: &Submission| match submission.after.as_deref().map(|after| &after.on) {
        // The store refuses more than that.
        Some(DependsOn::Items { ids, .. }) if ids.len() <= limits::AFTER_ITEMS_MAX => ids.clone(),
        _ => Vec::new(),
    };
    operation.submissions().flat_map(of_submission)
}

pub(super) fn depends_on_items(batch: &[Operation]) -> bool {
    batch.iter().any(|operation| dependencies(operation).next().is_some())
}

/// Whether an item of the batch has a group or a dependency. The follower must start before it is submitted.
pub(super) fn uses_groups(batch: &[Operation]) -> bool {
    batch.iter().any(|operation| match operation.asked() {
        Operation::Restore(restore) => {
            restore.item.head.dependency().is_some() || restore.item.body.group.is_some()
        }
        other => other
            .submissions()
            .any(|submission| submission.after.is_some() || submission.body.group.is_some()),
    })
}

/// A submit that knows which of its dependencies have completed: they may be removed before its own event is read.
fn with_completed(mut operation: Operation, completed: &DependencyState) -> Operation {
    for after in operation.submissions_mut().filter_map(|submission| submission.after.as_mut()) {
        **after = after.observe(completed).0;
    }
    operation
}

impl Shared {
    /// Carries out a batch without the submits that depend on unknown items. Each of these is refused in its place.
    pub(crate) async fn update_known(self: Arc<Self>, batch: Vec<Operation>) -> Result<Vec<Answered>> {
        let mut ids: Vec<ItemId> = batch.iter().flat_map(dependencies).collect();
        ids.sort_unstable();
        ids.dedup();
        let mut unknown = HashSet::new();
        let mut completed = Vec::new();
        for ids in ids.chunks(limits::BATCH_MAX) {
            let found = self.store.get(ids.to_vec(), FieldSet::HEADS).await?;
            for (id, found) in ids.iter().zip(found) {
                match found.map(|stored| stored.item.head.state) {
                    None => drop(unknown.insert(*id)),
                    Some(State::Completed { .. }) => completed.push((*id, true)),
                    Some(_) => {}
                }
            }
        }
        let completed = DependencyState { group: None, ended: completed };
        let refuse = |operation: &Operation| {
            let id = dependencies(operation).find(|id| unknown.contains(id))?;
            let message = format!("item {id} does not exist; depend on items that exist");
            Some(Refusal::Invalid { what: "after", message })
        };
        let refused: Vec<Option<Refusal>> = batch.iter().map(refuse).collect();
        let known = batch.into_iter().zip(&refused).filter(|(_, refused)| refused.is_none());
        let known = known.map(|(operation, _)| with_completed(operation, &completed)).collect::<Vec<_>>();
        let answers = match known.is_empty() {
            true => Vec::new(),
            false => self.update_attached(known).await?,
        };
        let mut answers = answers.into_iter();
        let merged = refused.into_iter().map(|refused| match refused {
            Some(refusal) => Some(Err(refusal.into())),
            None => answers.next(),
        });
        Ok(merged.flatten().collect())
    }
}
