//! The store's clock: that of the database, or an injected one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use towline_domain::Timestamp;
use towline_store::Clock;

/// Which clock decides.
#[derive(Clone)]
pub enum Time {
    /// `clock_timestamp()` of PostgreSQL: one clock for all servers.
    Database,
    /// For tests.
    Injected(Arc<dyn Clock>),
}

impl std::fmt::Debug for Time {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Time::Database => "Time::Database",
            Time::Injected(_) => "Time::Injected",
        })
    }
}

/// **Invariant:** the time never goes back, not even after a restart, because `sessions` stores the time of the latest batch.
#[derive(Debug)]
pub(crate) struct SteadyClock {
    time: Time,
    latest: AtomicU64,
}

impl SteadyClock {
    pub(crate) fn new(time: Time) -> SteadyClock {
        SteadyClock { time, latest: AtomicU64::new(0) }
    }

    /// The time of an injected clock; `None` if the database's clock decides.
    pub(crate) fn injected(&self) -> Option<Timestamp> {
        match &self.time {
            Time::Database => None,
            Time::Injected(clock) => Some(self.steady(clock.now())),
        }
    }

    /// The latest time that it returned.
    pub(crate) fn latest(&self) -> Timestamp {
        Timestamp(self.latest.load(Ordering::SeqCst))
    }

    /// The present time, given the reading of a clock.
    pub(crate) fn steady(&self, reading: Timestamp) -> Timestamp {
        let reading = reading.min(Timestamp::MAX);
        let latest = self.latest.fetch_max(reading.0, Ordering::SeqCst);
        reading.max(Timestamp(latest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_never_goes_back() {
        let clock = SteadyClock::new(Time::Database);
        assert_eq!(clock.steady(Timestamp(5)), Timestamp(5));
        assert_eq!(clock.steady(Timestamp(3)), Timestamp(5));
        assert_eq!(clock.steady(Timestamp(6)), Timestamp(6));
        assert_eq!(clock.steady(Timestamp(u64::MAX)), Timestamp::MAX);
    }
}
