//! The clock of a node: the only place that asks the system for the time.

use std::time::SystemTime;
use tokio::time::Instant;
use towline_api::{Time, Timestamp};

/// A monotonic time.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "the edge: nothing above passes a time in")]
pub fn now() -> Instant {
    Instant::now()
}

/// The wall clock, for times that people read.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "the edge: nothing above passes a time in")]
pub fn wall() -> Time {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp(u64::try_from(since.as_millis()).unwrap_or(u64::MAX)).into()
}

/// The wall clock, for the lines of a log.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "the edge: nothing above passes a time in")]
pub fn log_time() -> jiff::Timestamp {
    jiff::Timestamp::now()
}
