//! Bulk actions: an action on all items that match a filter, in chunks, so that other calls do not wait long.

use crate::operation::{Answered, Result};
use crate::{Cursor, Filter, Operation, Store, StoredItem};
use std::collections::BTreeMap;
use std::sync::Arc;
use towline_domain::{FieldSet, ItemId, QueueName, StateName};

/// An action on every matching item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BulkAction {
    Delete { force: bool },
    Cancel { reason: String },
    Redrive,
    Pause,
    Resume,
    SetPriority { priority: i16 },
    Move { to: QueueName },
}

impl BulkAction {
    /// The state of the items that the action applies to, for a filter without a state.
    #[must_use]
    pub fn state(&self) -> Option<StateName> {
        match self {
            BulkAction::Delete { .. } => None,
            BulkAction::Cancel { .. } | BulkAction::SetPriority { .. } | BulkAction::Move { .. } => {
                Some(StateName::Unfinished)
            }
            BulkAction::Redrive => Some(StateName::Failed),
            BulkAction::Pause => Some(StateName::Pending),
            BulkAction::Resume => Some(StateName::Paused),
        }
    }

    #[must_use]
    pub fn on(&self, id: ItemId) -> Operation {
        match self {
            BulkAction::Delete { force } => Operation::Delete { id, force: *force },
            BulkAction::Cancel { reason } => Operation::Cancel { id, reason: reason.clone() },
            BulkAction::Redrive => Operation::Redrive { id },
            BulkAction::Pause => Operation::Pause { id },
            BulkAction::Resume => Operation::Resume { id },
            BulkAction::SetPriority { priority } => Operation::SetPriority { id, priority: *priority },
            BulkAction::Move { to } => Operation::Move { id, to: to.clone() },
        }
    }
}

/// The result of one chunk.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BulkResult {
    pub done: u64,
    /// The number of refused items, by the code of the error.
    pub left: BTreeMap<&'static str, u64>,
    /// Continue here. `None`: all done.
    pub next: Option<Cursor>,
}

impl BulkResult {
    #[must_use]
    pub fn of(answers: &[Answered], next: Option<Cursor>) -> BulkResult {
        let mut result = BulkResult { next, ..BulkResult::default() };
        for answered in answers {
            match answered {
                Ok(_) => result.done += 1,
                Err(error) => *result.left.entry(error.code()).or_default() += 1,
            }
        }
        result
    }
}

/// Carries out one chunk. Call again with `next` until it is `None`.
///
/// An item that no longer matches when it is changed is refused.
pub async fn bulk(
    store: &dyn Store,
    action: &BulkAction,
    filter: Filter,
    after: Option<Cursor>,
    chunk: usize,
) -> Result<BulkResult> {
    let (batch, next) = bulk_batch(store, action, filter, after, chunk).await?;
    Ok(BulkResult::of(&store.update(batch).await?.answers, next))
}

/// The operations of one chunk and where to continue, for a caller that does not update the store directly.
pub async fn bulk_batch(
    store: &dyn Store,
    action: &BulkAction,
    mut filter: Filter,
    after: Option<Cursor>,
    chunk: usize,
) -> Result<(Vec<Operation>, Option<Cursor>)> {
    filter.head.state = filter.head.state.or(action.state());
    let (precondition, of_heads) = (Arc::new(filter.precondition()), filter.is_of_heads());
    let page = store.list(filter, after, chunk, FieldSet::HEADS).await?;
    let operation = |stored: &StoredItem| {
        let head = &stored.item.head;
        let precondition =
            if of_heads { precondition.clone() } else { Arc::new(precondition.unless_replaced(head)) };
        Operation::Guarded { precondition, then: Box::new(action.on(head.id)) }
    };
    Ok((page.items.iter().map(operation).collect(), page.next))
}
