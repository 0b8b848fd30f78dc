//! The authority on time: the database's clock, or one that is injected.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use towline_domain::Timestamp;
use towline_store::Clock;

/// Whose clock counts.
#[derive(Clone)]
pub enum Time {
    /// `clock_timestamp()`: one authority for all servers.
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

/// **Invariant:** what it says never goes back, not even over a reopening: the time of the latest batch is stored.
#[derive(Debug)]
pub(crate) struct SteadyClock {
    time: Time,
    latest: AtomicU64,
}

impl SteadyClock {
    pub(crate) fn new(time: Time) -> SteadyClock {
        SteadyClock { time, latest: AtomicU64::new(0) }
    }

    /// What the injected clock says, steadied; `None`: ask the database.
    pub(crate) fn injected(&self) -> Option<Timestamp> {
        match &self.time {
            Time::Database => None,
            Time::Injected(clock) => Some(self.steady(clock.now())),
        }
    }

    /// The latest that it said.
    pub(crate) fn latest(&self) -> Timestamp {
        Timestamp(self.latest.load(Ordering::SeqCst))
    }

    /// The present, given what a clock says.
    pub(crate) fn steady(&self, said: Timestamp) -> Timestamp {
        let said = said.min(Timestamp::MAX);
        let latest = self.latest.fetch_max(said.0, Ordering::SeqCst);
        said.max(Timestamp(latest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_never_goes_back() {
        let clock = SteadyClock::new(Time::Database);
        assert_eq!(clock.steady(Timestamp(5)), Timestamp(5));
        assert_eq!(clock.steady(Timestamp(3)), Timestamp(5));
        assert_eq!(clock.steady(Timestamp(6)), Timestamp(6));
        assert_eq!(clock.steady(Timestamp(u64::MAX)), Timestamp::MAX);
    }
}
