//! The clock of the benchmark.

use std::time::{Duration, Instant};

#[expect(clippy::disallowed_methods, reason = "a benchmark measures time")]
pub fn now() -> Instant {
    Instant::now()
}

/// Time since `from`.
pub fn since(from: Instant) -> Duration {
    now().saturating_duration_since(from)
}

pub async fn until(time: Instant) {
    tokio::time::sleep_until(time.into()).await;
}
