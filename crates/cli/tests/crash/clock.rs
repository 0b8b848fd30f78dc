//! The machine's clock, which the servers use too.

use std::time::{SystemTime, UNIX_EPOCH};
use towline_domain::{Millis, Timestamp};

#[expect(clippy::disallowed_methods, reason = "the server under test runs by the same clock")]
pub fn now() -> Timestamp {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    Timestamp(since_1970.as_millis().try_into().unwrap())
}

/// A time in the past.
pub fn before(span: Millis) -> Timestamp {
    Timestamp(now().0 - span.0)
}

/// A monotonic time, for limits and measurements.
#[expect(clippy::disallowed_methods, reason = "measures the test, decides nothing")]
pub fn instant() -> std::time::Instant {
    std::time::Instant::now()
}
