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
    let only = filter.state;
    let page = store.list(filter, after, chunk, FieldSet::NONE).await?;
    let delete = |id| Operation::Delete { id, force, only };
    let batch: Vec<Operation> = page.items.iter().map(|stored| delete(stored.item.head.id)).collect();
    let removed = store.update(batch).await?.iter().filter(|answered| answered.is_ok()).count();
    Ok(Purged { removed: removed as u64, next: page.next })
}
