//! Now and then, between batches: the disk gets back what nobody needs any more.

use crate::connection::session::Session;
use crate::encoding::sql::millis;
use crate::error::describe;
use crate::options::Kept;
use crate::store::Shared;
use std::sync::atomic::{AtomicU64, Ordering};
use towline_domain::Timestamp;

/// Between two looks of a server.
const EVERY_MS: u64 = 2000;
/// A partition of `bodies` is left for the next when it holds this much.
const BODIES_BYTES: i64 = 64 << 20;
/// Partitions of `events` that hold what is kept; one is being written, one is about to be.
const EVENT_PARTS: i64 = 6;

#[derive(Debug, Default)]
pub(crate) struct Upkeep {
    last: AtomicU64,
}

impl Upkeep {
    /// Whether it is time, for one of those who ask.
    fn is_due(&self, now: Timestamp) -> bool {
        let last = self.last.load(Ordering::Relaxed);
        now.0.saturating_sub(last) >= EVERY_MS
            && self.last.compare_exchange(last, now.0, Ordering::Relaxed, Ordering::Relaxed).is_ok()
            // A server that has just begun has other things to do.
            && last != 0
    }
}

/// Truncates what is empty, if it is time. Who is in the way is not waited for: nothing is lost by trying again.
pub(crate) async fn keep_up(session: &Session, shared: &Shared) {
    if !shared.upkeep.is_due(shared.clock.latest()) {
        return;
    }
    let statements = &session.statements;
    let rotate = session.client.query(&statements.rotate_payloads, &[&BODIES_BYTES]).await;
    // Two transactions: what the second locks must not wait for what the first did.
    let reclaim = session.client.query(&statements.reclaim_disk, &[&shared.locks]).await;
    let Kept { bytes, time } = shared.events.unwrap_or_default();
    let (bytes, time) = (bytes.cast_signed() / EVENT_PARTS, time.0.cast_signed() / EVENT_PARTS);
    let now = millis(shared.clock.latest());
    let rotate_events =
        session.client.query(&statements.rotate_events, &[&shared.locks, &bytes, &time, &now]).await;
    for failed in [rotate.err(), reclaim.err(), rotate_events.err()].into_iter().flatten() {
        tracing::debug!(error = describe(&failed), "room on disk was not reclaimed this time");
    }
}
