//! Deletes all that match, in chunks, so that nobody else waits long.

use crate::operation::Result;
use crate::{Cursor, Filter, Operation, Store};
use towline_domain::FieldSet;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Purged {
    pub removed: u64,
    /// Where to go on; `None`: done.
    pub next: Option<Cursor>,
}

/// One chunk: call again with `next` until that is `None`.
///
/// An item whose state no longer matches when its turn comes is left alone.
pub async fn purge(
    store: &dyn Store,
    filter: Filter,
    after: Option<Cursor>,
    chunk: usize,
    force: bool,
) -> Result<Purged> {
    let (batch, next) = doomed(store, filter, after, chunk, force).await?;
    let removed = store.update(batch).await?.iter().filter(|answered| answered.is_ok()).count();
    Ok(Purged { removed: removed as u64, next })
}

/// The deletions of one chunk, for whoever carries out updates by another way than the store's own, and where to go on.
pub async fn doomed(
    store: &dyn Store,
    filter: Filter,
    after: Option<Cursor>,
    chunk: usize,
    force: bool,
) -> Result<(Vec<Operation>, Option<Cursor>)> {
    let only = filter.state;
    let page = store.list(filter, after, chunk, FieldSet::NONE).await?;
    let delete = |id| Operation::Delete { id, force, only };
    Ok((page.items.iter().map(|stored| delete(stored.item.head.id)).collect(), page.next))
}
