//! The store's clock: that of the database, or an injected one.

use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use towline_domain::Timestamp;
use towline_store::{Clock, ClockNotice, ClockState, SteadyTime};

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
///
/// If the database's clock is behind that time, the time goes on at half speed, by the clock of this server. If it is far ahead,
/// the time follows in steps.
#[derive(Debug)]
pub(crate) struct SteadyClock {
    time: Time,
    /// The latest time that was returned.
    latest: AtomicU64,
    database: Mutex<Reading>,
}

/// The last reading of the database's clock.
#[derive(Debug)]
struct Reading {
    at: Instant,
    wall: Duration,
    time: SteadyTime,
}

impl Reading {
    fn follow(&mut self, at: Instant, wall: Duration) -> Timestamp {
        let elapsed = at.saturating_duration_since(self.at);
        (self.at, self.wall) = (at.max(self.at), wall);
        let now = self.time.follow(elapsed, wall);
        match self.time.take_notice() {
            Some(ClockNotice::Agrees) => tracing::info!("PostgreSQL: {}", ClockNotice::Agrees),
            Some(notice) => tracing::warn!("PostgreSQL: {notice}"),
            None => {}
        }
        now
    }
}

impl SteadyClock {
    /// A clock that goes on from the time of the latest batch. `reading` is what the database's clock says now.
    pub(crate) fn new(time: Time, reading: Timestamp, latest: Timestamp) -> SteadyClock {
        SteadyClock::at(instant(), time, reading, latest)
    }

    fn at(at: Instant, time: Time, reading: Timestamp, latest: Timestamp) -> SteadyClock {
        let wall = Duration::from_millis(reading.0);
        let mut database = Reading { at, wall, time: SteadyTime::new(wall) };
        database.time.resume(latest);
        SteadyClock { time, latest: AtomicU64::new(latest.0), database: Mutex::new(database) }
    }

    fn lock(&self) -> MutexGuard<'_, Reading> {
        self.database.lock()
    }

    /// The time of an injected clock; `None` if the database's clock decides.
    pub(crate) fn injected(&self) -> Option<Timestamp> {
        match &self.time {
            Time::Database => None,
            Time::Injected(clock) => Some(self.monotonic(clock.now())),
        }
    }

    /// The present time; `None` if it is that of the database's clock.
    pub(crate) fn present(&self) -> Option<Timestamp> {
        self.injected().or_else(|| self.present_at(instant()))
    }

    fn present_at(&self, at: Instant) -> Option<Timestamp> {
        let mut database = self.lock();
        if database.time.state().ahead_ms == 0 {
            return None;
        }
        let wall = database.wall + at.saturating_duration_since(database.at);
        let now = database.follow(at, wall);
        (database.time.state().ahead_ms != 0).then(|| self.monotonic(now))
    }

    /// The latest time that it returned.
    pub(crate) fn latest(&self) -> Timestamp {
        Timestamp(self.latest.load(Ordering::SeqCst))
    }

    /// The present time, given what the database's clock says.
    pub(crate) fn steady(&self, reading: Timestamp) -> Timestamp {
        match self.time {
            Time::Database => self.steady_at(instant(), reading),
            Time::Injected(_) => self.monotonic(reading),
        }
    }

    fn steady_at(&self, at: Instant, reading: Timestamp) -> Timestamp {
        let now = self.lock().follow(at, Duration::from_millis(reading.0));
        self.monotonic(now)
    }

    fn monotonic(&self, now: Timestamp) -> Timestamp {
        let now = now.min(Timestamp::MAX);
        let latest = self.latest.fetch_max(now.0, Ordering::SeqCst);
        now.max(Timestamp(latest))
    }

    pub(crate) fn state(&self) -> ClockState {
        match self.time {
            Time::Database => self.lock().time.state(),
            Time::Injected(_) => ClockState::default(),
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "how much time passed since the last reading")]
fn instant() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;
    use towline_store::ManualClock;

    const S: u64 = 1_700_000_000_000;

    #[test]
    fn the_time_of_an_injected_clock_never_goes_back() {
        let clock = Arc::new(ManualClock::new(Timestamp(5)));
        let steady = SteadyClock::new(Time::Injected(clock.clone()), Timestamp(S), Timestamp(0));
        assert_eq!(steady.injected(), Some(Timestamp(5)));
        clock.set(Timestamp(3));
        assert_eq!(steady.injected(), Some(Timestamp(5)));
        clock.set(Timestamp(u64::MAX));
        assert_eq!(steady.injected(), Some(Timestamp::MAX));
    }

    #[test]
    fn readings_are_taken_as_they_are() {
        let start = instant();
        let clock = SteadyClock::at(start, Time::Database, Timestamp(S), Timestamp(S - 5));
        let after = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(clock.steady_at(after(1), Timestamp(S + 900)), Timestamp(S + 900));
        assert_eq!(clock.present_at(after(1)), None);
        assert_eq!(clock.steady_at(after(2), Timestamp(S + 700_000)), Timestamp(S + 700_000));
        assert_eq!(clock.latest(), Timestamp(S + 700_000));
    }

    #[test]
    fn a_start_far_behind_the_database_s_clock_takes_a_step() {
        const DAY: u64 = 86_400_000;
        let (start, years) = (instant(), 3650 * DAY);
        let clock = SteadyClock::at(start, Time::Database, Timestamp(S + years), Timestamp(S));
        let after = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(clock.state().steps_cut, 1);
        assert_eq!(clock.steady_at(after(1), Timestamp(S + years + 1000)), Timestamp(S + 30 * DAY + 1000));
        // Statements that look for what is due use that time, too.
        assert_eq!(clock.present_at(after(2)), Some(Timestamp(S + 30 * DAY + 2000)));
        // The next reading is right again.
        assert_eq!(clock.steady_at(after(3), Timestamp(S + 3000)), Timestamp(S + 30 * DAY + 2500));
        let new = SteadyClock::at(start, Time::Database, Timestamp(S), Timestamp(0));
        assert_eq!(new.steady_at(after(1), Timestamp(S + 1000)), Timestamp(S + 1000), "a new store");
    }

    #[test]
    fn the_time_goes_on_while_the_database_s_clock_is_behind() {
        let start = instant();
        let clock = SteadyClock::at(start, Time::Database, Timestamp(S), Timestamp(S + 60_000));
        let after = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(clock.steady_at(after(10), Timestamp(S + 10_000)), Timestamp(S + 65_000));
        assert_eq!(clock.state().ahead_ms, 55_000);
        // Statements that look for what is due use that time, too.
        assert_eq!(clock.present_at(after(20)), Some(Timestamp(S + 70_000)));
        assert_eq!(clock.present_at(after(200)), None, "both agree again");
        assert_eq!(clock.steady_at(after(201), Timestamp(S + 201_000)), Timestamp(S + 201_000));
        assert_eq!(clock.state().ahead_ms, 0);
        // Set back while the server runs.
        assert_eq!(clock.steady_at(after(211), Timestamp(S)), Timestamp(S + 206_000));
    }
}
