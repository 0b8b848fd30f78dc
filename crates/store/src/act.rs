//! Acts on all that match, in chunks, so that nobody else waits long.

use crate::operation::{Answered, Result};
use crate::{Cursor, Filter, Operation, Store, StoredItem};
use std::collections::BTreeMap;
use std::sync::Arc;
use towline_domain::{FieldSet, ItemId, QueueName, StateName};

/// What is done to every item that matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    Delete { force: bool },
    Cancel { reason: String },
    Redrive,
    Pause,
    Resume,
    SetPriority { priority: i16 },
    Move { to: QueueName },
}

impl Act {
    /// Which items are meant if nobody says: those it can be done to, where one word names them.
    #[must_use]
    pub fn state(&self) -> Option<StateName> {
        match self {
            Act::Delete { .. } => None,
            Act::Cancel { .. } | Act::SetPriority { .. } | Act::Move { .. } => Some(StateName::Unfinished),
            Act::Redrive => Some(StateName::Failed),
            Act::Pause => Some(StateName::Pending),
            Act::Resume => Some(StateName::Paused),
        }
    }

    #[must_use]
    pub fn on(&self, id: ItemId) -> Operation {
        match self {
            Act::Delete { force } => Operation::Delete { id, force: *force },
            Act::Cancel { reason } => Operation::Cancel { id, reason: reason.clone() },
            Act::Redrive => Operation::Redrive { id },
            Act::Pause => Operation::Pause { id },
            Act::Resume => Operation::Resume { id },
            Act::SetPriority { priority } => Operation::SetPriority { id, priority: *priority },
            Act::Move { to } => Operation::Move { id, to: to.clone() },
        }
    }
}

/// How one chunk went.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Acted {
    pub done: u64,
    /// Items that were left alone, by the code of the refusal.
    pub left: BTreeMap<&'static str, u64>,
    /// Where to go on; `None`: that was all.
    pub next: Option<Cursor>,
}

impl Acted {
    #[must_use]
    pub fn of(answers: &[Answered], next: Option<Cursor>) -> Acted {
        let mut acted = Acted { next, ..Acted::default() };
        for answered in answers {
            match answered {
                Ok(_) => acted.done += 1,
                Err(refusal) => *acted.left.entry(refusal.code()).or_default() += 1,
            }
        }
        acted
    }
}

/// One chunk: call again with `next` until that is `None`.
///
/// An item that no longer matches when its turn comes is left alone.
pub async fn act(
    store: &dyn Store,
    act: &Act,
    filter: Filter,
    after: Option<Cursor>,
    chunk: usize,
) -> Result<Acted> {
    let (batch, next) = chosen(store, act, filter, after, chunk).await?;
    Ok(Acted::of(&store.update(batch).await?, next))
}

/// The operations of one chunk, for whoever carries out updates by another way than the store's own, and where to go on.
pub async fn chosen(
    store: &dyn Store,
    act: &Act,
    mut filter: Filter,
    after: Option<Cursor>,
    chunk: usize,
) -> Result<(Vec<Operation>, Option<Cursor>)> {
    filter.head.state = filter.head.state.or(act.state());
    let (only, of_heads) = (Arc::new(filter.only()), filter.is_of_heads());
    let page = store.list(filter, after, chunk, FieldSet::HEADS).await?;
    let one = |stored: &StoredItem| {
        let head = &stored.item.head;
        let only = if of_heads { only.clone() } else { Arc::new(only.unless_replaced(head)) };
        Operation::If { only, then: Box::new(act.on(head.id)) }
    };
    Ok((page.items.iter().map(one).collect(), page.next))
}
