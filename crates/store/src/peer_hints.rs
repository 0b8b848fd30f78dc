//! What the servers of one database tell each other.

use std::collections::{BTreeMap, BTreeSet};
use towline_domain::{ItemId, QueueName};

/// Hints of other servers on the same store. A hint may be lost, so the broker polls as well.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PeerHints {
    /// Whether hints arrive at the moment.
    pub listening: bool,
    /// How many items may have become ready in each queue.
    pub ready: BTreeMap<QueueName, u32>,
    /// Items that ended, or moved to another queue.
    pub left: BTreeSet<ItemId>,
    /// Queues that more items left than a hint names.
    pub left_unnamed: BTreeSet<QueueName>,
    /// Anything may have changed: too much to name, or hints were missed.
    pub anything: bool,
}
