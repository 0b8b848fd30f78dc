//! A steady wall clock.

use parking_lot::Mutex;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use towline_domain::Timestamp;
use towline_store::Clock;

/// A larger jump ahead is followed at once: otherwise schedules would be late for too long.
const JUMP_MAX: Duration = Duration::from_secs(600);

/// The machine's clock without its jumps, for a store that never lets time go back.
///
/// When the machine's clock is set ahead by minutes, leases must not all lapse at that moment. When it is set back,
/// time must not stand still. So this clock runs at twice or half the speed until the two agree again. A worker that
/// sends a heartbeat every third of its lease keeps it.
#[derive(Debug)]
pub struct SteadyClock(Mutex<Reading>);

#[derive(Debug, Clone, Copy)]
struct Reading {
    at: Instant,
    /// Since 1970.
    time: Duration,
}

impl SteadyClock {
    #[must_use]
    #[expect(clippy::new_without_default, reason = "it reads the machine's clock")]
    pub fn new() -> SteadyClock {
        let (at, time) = machine();
        SteadyClock(Mutex::new(Reading { at, time }))
    }
}

impl Clock for SteadyClock {
    fn now(&self) -> Timestamp {
        let mut last = self.0.lock();
        // Read under the lock, so that readings are in order.
        let (at, wall) = machine();
        let time = advance(last.time, at.saturating_duration_since(last.at), wall);
        *last = Reading { at, time };
        Timestamp(u64::try_from(time.as_millis()).unwrap_or(u64::MAX)).min(Timestamp::MAX)
    }
}

/// The next reading: `elapsed` after the reading `time`, when the machine's clock shows `wall`.
fn advance(time: Duration, elapsed: Duration, wall: Duration) -> Duration {
    let steady = time.saturating_add(elapsed);
    match wall.checked_sub(steady) {
        Some(behind) if behind > JUMP_MAX => wall,
        Some(behind) => steady + behind.min(elapsed),
        None => steady - (steady - wall).min(elapsed / 2),
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

    const S: u64 = 1_000_000;

    fn after(elapsed: u64, wall: u64) -> u64 {
        advance(Duration::from_secs(S), Duration::from_secs(elapsed), Duration::from_secs(wall)).as_secs() - S
    }

    #[test]
    fn it_follows_the_machines_clock() {
        assert_eq!(after(10, S + 10), 10);
        assert_eq!(after(0, S), 0);
    }

    #[test]
    fn a_jump_ahead_is_caught_up_at_twice_the_speed() {
        assert_eq!(after(10, S + 10 + 300), 20);
        assert_eq!(after(10, S + 10 + 4), 14);
        assert_eq!(after(0, S + 300), 0);
    }

    #[test]
    fn a_large_jump_is_followed_at_once() {
        assert_eq!(after(10, S + 10 + 600), 20);
        assert_eq!(after(10, S + 10 + 601), 611);
    }

    #[test]
    fn after_a_step_back_it_runs_at_half_the_speed() {
        assert_eq!(after(10, S + 10 - 3600), 5);
        assert_eq!(after(10, S + 10 - 2), 8);
    }

    #[test]
    fn readings_never_go_back() {
        let clock = SteadyClock::new();
        let times: Vec<Timestamp> = (0..1000).map(|_| clock.now()).collect();
        assert!(times.is_sorted());
    }
}
