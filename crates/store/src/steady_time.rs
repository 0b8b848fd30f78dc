//! A clock without its jumps: the arithmetic, without any clock, so that tests and the simulation run it too.

use std::fmt;
use std::time::Duration;
use towline_domain::{Millis, Timestamp};

/// A jump ahead of more than this is taken at once: schedules would be late for too long otherwise.
const JUMP_MAX: Duration = Duration::from_secs(600);
/// The longest step ahead. A single wrong reading must not put the store's time years ahead, because that time never goes back.
const STEP_MAX: Duration = Duration::from_secs(30 * 86_400);
/// How long after a step of that length the next one is taken, if the clock is still ahead.
const STEP_PAUSE: Duration = Duration::from_secs(60);

/// A difference below this is not reported.
const AGREES_MS: u64 = 1000;

/// The time of a store, given readings of a clock that may be set.
///
/// Leases are lengths of time: when the clock is set ahead by minutes, they must not all lapse at that moment, and when it is
/// set back, time must not stand still until the clock has caught up. **Invariant:** the time never goes back.
#[derive(Debug, Clone, Copy)]
pub struct SteadyTime {
    /// Since 1970.
    time: Duration,
    state: ClockState,
    /// Since the last step that was cut short; `None`: the clock is not that far ahead.
    since_step: Option<Duration>,
    /// Whether a caller has read the time since it was made.
    was_read: bool,
    agrees: bool,
    notice: Option<ClockNotice>,
}

/// How a store's time and the clock that it comes from differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClockState {
    /// How far the store's time is ahead of the clock. Negative: it is behind.
    pub ahead_ms: i64,
    /// Steps that were cut short because the clock was too far ahead.
    pub steps_cut: u64,
}

impl ClockState {
    /// Of two stores, the one that differs more.
    #[must_use]
    pub fn worse(self, other: ClockState) -> ClockState {
        let ahead_ms =
            [self.ahead_ms, other.ahead_ms].into_iter().max_by_key(|ahead| ahead.unsigned_abs()).unwrap_or(0);
        ClockState { ahead_ms, steps_cut: self.steps_cut + other.steps_cut }
    }
}

/// What an operator should know about the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClockNotice {
    /// The clock is behind the store's time by this much.
    Behind(Millis),
    /// The clock is ahead of the store's time by this much.
    Ahead(Millis),
    /// The clock is ahead by more than the longest step.
    FarAhead(Millis),
    Agrees,
}

impl fmt::Display for ClockNotice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClockNotice::Behind(by) => write!(
                f,
                "the clock is {by} behind the store's time, which runs at half speed until both agree; check the clock"
            ),
            ClockNotice::Ahead(by) => {
                write!(
                    f,
                    "the clock is {by} ahead of the store's time, which runs at double speed until both agree"
                )
            }
            ClockNotice::FarAhead(by) => write!(
                f,
                "the clock is {by} ahead of the store's time, which follows by 30 days a minute; check the clock"
            ),
            ClockNotice::Agrees => f.write_str("the clock and the store's time agree again"),
        }
    }
}

impl SteadyTime {
    #[must_use]
    pub fn new(wall: Duration) -> SteadyTime {
        let state = ClockState::default();
        SteadyTime { time: wall, state, since_step: None, was_read: false, agrees: true, notice: None }
    }

    /// Goes on from the latest time of a store, if the clock is behind it. A clock that is far ahead of it is followed in
    /// steps.
    pub fn resume(&mut self, latest: Timestamp) {
        let (wall, latest) = (self.time, Duration::from_millis(latest.0));
        // A time that a caller has read must not be taken back, and a new store has no latest time.
        let far_ahead = !self.was_read && !latest.is_zero() && wall.saturating_sub(latest) > STEP_MAX;
        if latest > wall || far_ahead {
            self.time = latest;
        }
        if far_ahead {
            self.step(wall);
        }
        self.compare(wall);
    }

    /// The time `elapsed` after the last one, when the machine's clock says `wall`. It runs at twice the speed, or at half of
    /// it, until the two agree: a worker that sends a heartbeat at a third of its lease keeps it.
    pub fn advance(&mut self, elapsed: Duration, wall: Duration) -> Timestamp {
        self.begin(elapsed);
        let steady = self.time.saturating_add(elapsed);
        match wall.checked_sub(steady) {
            Some(behind) if behind > JUMP_MAX && self.may_step() => self.step(wall),
            Some(behind) => self.time = steady + behind.min(elapsed),
            None => self.time = steady - (steady - wall).min(elapsed / 2),
        }
        self.compare(wall);
        self.latest()
    }

    /// The same for a clock that several servers share: they take its readings as they are, so that they agree. While it is
    /// behind, the time runs at half speed.
    pub fn follow(&mut self, elapsed: Duration, wall: Duration) -> Timestamp {
        self.begin(elapsed);
        match wall.checked_sub(self.time) {
            Some(behind) if behind > STEP_MAX && !self.may_step() => self.time += elapsed,
            Some(_) => self.step(wall),
            None => self.time += elapsed / 2,
        }
        self.compare(wall);
        self.latest()
    }

    /// The last time that it returned.
    #[must_use]
    pub fn latest(&self) -> Timestamp {
        Timestamp(u64::try_from(self.time.as_millis()).unwrap_or(u64::MAX)).min(Timestamp::MAX)
    }

    #[must_use]
    pub fn state(&self) -> ClockState {
        self.state
    }

    /// What to log since the last call.
    pub fn take_notice(&mut self) -> Option<ClockNotice> {
        self.notice.take()
    }

    fn begin(&mut self, elapsed: Duration) {
        self.was_read = true;
        self.since_step = self.since_step.map(|since| since.saturating_add(elapsed));
    }

    fn may_step(&self) -> bool {
        self.since_step.is_none_or(|since| since >= STEP_PAUSE)
    }

    /// Takes the reading, or as much of it as a step allows.
    fn step(&mut self, wall: Duration) {
        let behind = wall.saturating_sub(self.time);
        self.time += behind.min(STEP_MAX);
        self.since_step = None;
        if behind > STEP_MAX {
            self.since_step = Some(Duration::ZERO);
            self.state.steps_cut += 1;
            self.notice = Some(ClockNotice::FarAhead(Millis(millis(behind).unsigned_abs())));
        }
    }

    fn compare(&mut self, wall: Duration) {
        self.state.ahead_ms = millis(self.time.saturating_sub(wall)) - millis(wall.saturating_sub(self.time));
        let by = self.state.ahead_ms.unsigned_abs();
        if std::mem::replace(&mut self.agrees, by < AGREES_MS) == self.agrees {
            return;
        }
        let notice = match self.state.ahead_ms {
            _ if self.agrees => ClockNotice::Agrees,
            1.. => ClockNotice::Behind(Millis(by)),
            _ => ClockNotice::Ahead(Millis(by)),
        };
        self.notice.get_or_insert(notice);
    }
}

fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;
    const DAY: u64 = 86_400;
    const YEAR: u64 = 365 * DAY;

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    fn at(time: Timestamp) -> u64 {
        time.0 / 1000
    }

    fn after(elapsed: u64, wall: u64) -> u64 {
        at(SteadyTime::new(seconds(S)).advance(seconds(elapsed), seconds(wall))) - S
    }

    #[test]
    fn it_tells_the_clock_s_time() {
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
    fn a_great_jump_is_taken_at_once() {
        assert_eq!(after(10, S + 10 + 600), 20);
        assert_eq!(after(10, S + 10 + 601), 611);
        assert_eq!(after(10, S + 29 * DAY), 29 * DAY);
    }

    #[test]
    fn set_back_it_goes_on_at_half_the_speed() {
        assert_eq!(after(10, S + 10 - 3600), 5);
        assert_eq!(after(10, S + 10 - 2), 8);
    }

    #[test]
    fn a_clock_behind_the_latest_time_of_the_store_does_not_stop_the_time() {
        let mut time = SteadyTime::new(seconds(S));
        time.resume(Timestamp((S + 3600) * 1000));
        assert_eq!(time.take_notice(), Some(ClockNotice::Behind(Millis::hours(1))));
        assert_eq!((time.state().ahead_ms, time.take_notice()), (3_600_000, None));
        assert_eq!(at(time.advance(seconds(10), seconds(S + 10))), S + 3605);
        assert_eq!(at(time.advance(seconds(7200), seconds(S + 7210))), S + 7210, "they agree again");
        assert_eq!((time.state().ahead_ms, time.take_notice()), (0, Some(ClockNotice::Agrees)));
    }

    #[test]
    fn one_reading_years_ahead_costs_a_step() {
        let mut time = SteadyTime::new(seconds(S));
        assert_eq!(at(time.advance(seconds(1), seconds(S + 10 * YEAR))), S + 30 * DAY);
        assert!(time.state().steps_cut == 1 && time.state().ahead_ms < 0, "{:?}", time.state());
        assert!(matches!(time.take_notice(), Some(ClockNotice::FarAhead(_))));
        // The next reading is right again.
        assert_eq!(at(time.advance(seconds(2), seconds(S + 3))), S + 30 * DAY + 1);
        assert_eq!(time.state().steps_cut, 1);
        let mut shared = SteadyTime::new(seconds(S));
        assert_eq!(at(shared.follow(seconds(1), seconds(S + 10 * YEAR))), S + 30 * DAY);
        assert_eq!(at(shared.follow(seconds(2), seconds(S + 3))), S + 30 * DAY + 1);
    }

    #[test]
    fn a_clock_that_stays_ahead_is_followed_in_steps() {
        let mut time = SteadyTime::new(seconds(S + YEAR));
        time.resume(Timestamp(S * 1000));
        assert_eq!(time.take_notice(), Some(ClockNotice::FarAhead(Millis(YEAR * 1000))));
        let (mut elapsed, mut told) = (0, 0);
        while told < S + YEAR {
            elapsed += 1;
            told = at(time.advance(seconds(1), seconds(S + YEAR + elapsed)));
        }
        assert_eq!((elapsed.div_ceil(60), time.state().steps_cut), (12, 12));
        let mut shared = SteadyTime::new(seconds(S));
        let (mut elapsed, mut told) = (0, 0);
        while told < S + YEAR {
            elapsed += 1;
            told = at(shared.follow(seconds(1), seconds(S + YEAR + elapsed)));
        }
        assert_eq!(elapsed.div_ceil(60), 12);
    }

    #[test]
    fn a_new_store_takes_the_clock_as_it_is() {
        let mut time = SteadyTime::new(seconds(S));
        time.resume(Timestamp(0));
        assert_eq!(time.take_notice(), None);
        assert_eq!(at(time.advance(seconds(1), seconds(S + 1))), S + 1);
    }

    #[test]
    fn a_shared_clock_is_taken_as_it_is_and_never_stops_the_time() {
        let mut time = SteadyTime::new(Duration::ZERO);
        assert_eq!(at(time.follow(seconds(0), seconds(20 * DAY))), 20 * DAY);
        assert_eq!(at(time.follow(seconds(1), seconds(20 * DAY + 500))), 20 * DAY + 500);
        assert_eq!(at(time.follow(seconds(10), seconds(20 * DAY - 3600))), 20 * DAY + 505);
        assert_eq!(at(time.follow(seconds(10), seconds(20 * DAY + 506))), 20 * DAY + 506);
        assert_eq!(at(time.follow(seconds(10), seconds(20 * DAY + 511))), 20 * DAY + 511);
    }
}
