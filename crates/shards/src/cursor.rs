//! List cursors across shards: the number of a shard and the cursor within that shard.

use crate::SHARDS_MAX;
use towline_store::Cursor;

const SHARD_SHIFT: u32 = 64 - SHARDS_MAX.ilog2();

/// The shard of a cursor, and the cursor within it.
pub(crate) fn split(cursor: Option<Cursor>) -> (usize, Option<Cursor>) {
    let Some(Cursor(cursor)) = cursor else { return (0, None) };
    let within = cursor & ((1 << SHARD_SHIFT) - 1);
    let shard = usize::try_from(cursor >> SHARD_SHIFT).unwrap_or(usize::MAX);
    (shard, Some(Cursor(within)).filter(|_| within > 0))
}

/// Where a list continues after a page of one shard: in the same shard, or at the start of the next one.
pub(crate) fn next(shard: usize, within: Option<Cursor>, shards: usize) -> Option<Cursor> {
    let join = |shard: usize, within: u64| Cursor((shard as u64) << SHARD_SHIFT | within);
    match within {
        Some(Cursor(within)) => Some(join(shard, within)),
        None => (shard + 1 < shards).then(|| join(shard + 1, 0)),
    }
}
