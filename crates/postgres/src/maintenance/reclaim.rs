//! Truncates partitions that are not needed, between batches, at most once in [`INTERVAL_MS`].

use crate::connection::session::Session;
use crate::encoding::sql::millis;
use crate::error::describe;
use crate::options::EventRetention;
use crate::store::Shared;
use std::sync::atomic::{AtomicU64, Ordering};
use towline_domain::Timestamp;

/// The time between two runs of a server.
const INTERVAL_MS: u64 = 2000;
/// New payloads go to the next partition when the current one holds this many bytes.
const PAYLOAD_PARTITION_BYTES: i64 = 64 << 20;
/// How many of the eight partitions of `events` hold the retained events. One more is being written, and one is the next.
const EVENT_PARTITIONS: i64 = 6;

#[derive(Debug, Default)]
pub(crate) struct ReclaimTimer {
    last: AtomicU64,
}

impl ReclaimTimer {
    /// Whether a run is due. Returns true to one of the workers that ask at the same time.
    fn is_due(&self, now: Timestamp) -> bool {
        let last = self.last.load(Ordering::Relaxed);
        now.0.saturating_sub(last) >= INTERVAL_MS
            && self.last.compare_exchange(last, now.0, Ordering::Relaxed, Ordering::Relaxed).is_ok()
            // The first run waits for the interval, too: a server that just started has more urgent work.
            && last != 0
    }
}

/// Runs if it is due. A partition that another transaction has locked is left for the next run.
pub(crate) async fn reclaim_if_due(session: &Session, shared: &Shared) {
    if !shared.reclaim.is_due(shared.clock.latest()) {
        return;
    }
    let statements = &session.statements;
    let rotate = session.client.query(&statements.rotate_payloads, &[&PAYLOAD_PARTITION_BYTES]).await;
    // Separate transactions, so that the second one does not hold the locks of the first.
    let reclaim = session.client.query(&statements.reclaim_disk, &[&shared.locks]).await;
    let EventRetention { bytes, time } = shared.events.unwrap_or_default();
    let (bytes, time) = (bytes.cast_signed() / EVENT_PARTITIONS, time.0.cast_signed() / EVENT_PARTITIONS);
    let now = millis(shared.clock.latest());
    let rotate_events =
        session.client.query(&statements.rotate_events, &[&shared.locks, &bytes, &time, &now]).await;
    for failed in [rotate.err(), reclaim.err(), rotate_events.err()].into_iter().flatten() {
        tracing::debug!(error = describe(&failed), "cannot reclaim disk space; will try again");
    }
}
