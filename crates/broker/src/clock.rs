//! The wall clock.

use std::time::{SystemTime, UNIX_EPOCH};
use towline_domain::Timestamp;
use towline_store::Clock;

/// The machine's clock. A store never lets it go back; a jump forward makes timers due.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one place where wall time enters")]
    fn now(&self) -> Timestamp {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp(u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX)).min(Timestamp::MAX)
    }
}
