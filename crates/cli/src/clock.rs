//! The command line's clock: the one place that asks the system for the time.

use std::time::SystemTime;
use tokio::time::Instant;
use towline_api::Timestamp;

/// For measuring; never goes back.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "the edge: nothing above passes a time in")]
pub fn now() -> Instant {
    Instant::now()
}

/// What the wall clock shows, to compare with times that a server sends.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "the edge: nothing above passes a time in")]
pub fn wall() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
