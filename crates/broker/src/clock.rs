//! A steady wall clock.

use parking_lot::{Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use towline_domain::Timestamp;
use towline_store::{Clock, ClockNotice, ClockState, SteadyTime};

/// The machine's clock without its jumps, for a store that never lets time go back.
#[derive(Debug)]
pub struct SteadyClock(Mutex<Reading>);

#[derive(Debug, Clone, Copy)]
struct Reading {
    at: Instant,
    time: SteadyTime,
}

impl SteadyClock {
    #[must_use]
    #[expect(clippy::new_without_default, reason = "it reads the machine's clock")]
    pub fn new() -> SteadyClock {
        let (at, wall) = machine();
        SteadyClock(Mutex::new(Reading { at, time: SteadyTime::new(wall) }))
    }

    fn lock(&self) -> MutexGuard<'_, Reading> {
        self.0.lock()
    }
}

impl Clock for SteadyClock {
    fn now(&self) -> Timestamp {
        let mut last = self.lock();
        // Read under the lock, so that readings are in order.
        let (at, wall) = machine();
        let elapsed = at.saturating_duration_since(last.at);
        last.at = at;
        let now = last.time.advance(elapsed, wall);
        let notice = last.time.take_notice();
        drop(last);
        log(notice);
        now
    }

    fn resume(&self, latest: Timestamp) {
        let mut last = self.lock();
        last.time.resume(latest);
        let notice = last.time.take_notice();
        drop(last);
        log(notice);
    }

    fn state(&self) -> ClockState {
        self.lock().time.state()
    }
}

fn log(notice: Option<ClockNotice>) {
    match notice {
        Some(ClockNotice::Agrees) => tracing::info!("{}", ClockNotice::Agrees),
        Some(notice) => tracing::warn!("{notice}"),
        None => {}
    }
}

/// Measures durations for metrics and pacing. No decision of the store depends on it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stopwatch(Instant);

#[expect(clippy::disallowed_methods, reason = "no decision of the store depends on it")]
impl Stopwatch {
    pub(crate) fn start() -> Stopwatch {
        Stopwatch(Instant::now())
    }

    pub(crate) fn elapsed(self) -> Duration {
        self.0.elapsed()
    }
}

#[expect(clippy::disallowed_methods, reason = "the one place where time enters")]
fn machine() -> (Instant, Duration) {
    (Instant::now(), SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use towline_domain::Millis;

    #[test]
    fn it_goes_on_from_the_latest_time_of_a_store() {
        let clock = SteadyClock::new();
        let latest = clock.now().after(Millis::hours(1));
        clock.resume(latest);
        assert!(clock.now() >= latest);
        assert!(clock.state().ahead_ms > 3_500_000, "{:?}", clock.state());
        let moved = std::iter::repeat_with(|| clock.now()).take(10_000_000).any(|now| now > latest);
        assert!(moved, "the time stands still");
    }

    #[test]
    fn readings_never_go_back() {
        let clock = SteadyClock::new();
        let times: Vec<Timestamp> = (0..1000).map(|_| clock.now()).collect();
        assert!(times.is_sorted());
    }
}
