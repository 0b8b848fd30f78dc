//! The clock of the command line: the only place that asks the system for the time.

use std::time::SystemTime;
use tokio::time::Instant;
use towline_api::Timestamp;

/// A monotonic time, for measuring.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "the edge: nothing above passes a time in")]
pub fn now() -> Instant {
    Instant::now()
}

/// The wall clock, to compare with times from a server.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "the edge: nothing above passes a time in")]
pub fn wall() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
