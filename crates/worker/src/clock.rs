//! The clock: the machine's, or a virtual one that a test moves.

use futures::future::BoxFuture;
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;
use tokio::sync::oneshot;

/// Milliseconds since 1970.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, serde::Serialize, serde::Deserialize,
)]
#[serde(transparent)]
pub struct Time(pub u64);

impl Time {
    #[must_use]
    pub fn after(self, span: Duration) -> Time {
        Time(self.0.saturating_add(u64::try_from(span.as_millis()).unwrap_or(u64::MAX)))
    }

    /// The time since `earlier`; zero if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Time) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }

    /// The calendar time, if it is in the range of calendars.
    #[must_use]
    pub fn timestamp(self) -> Option<jiff::Timestamp> {
        jiff::Timestamp::from_millisecond(i64::try_from(self.0).ok()?).ok()
    }
}

impl From<jiff::Timestamp> for Time {
    fn from(time: jiff::Timestamp) -> Time {
        Time(u64::try_from(time.as_millisecond()).unwrap_or_default())
    }
}

pub trait Clock: Send + Sync + fmt::Debug {
    fn now(&self) -> Time;

    /// Returns at that time, or at once if it has passed.
    fn sleep_until(&self, at: Time) -> BoxFuture<'static, ()>;
}

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the only place that reads the time")]
    fn now(&self) -> Time {
        let since_1970 = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Time::default().after(since_1970.unwrap_or_default())
    }

    fn sleep_until(&self, at: Time) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(at.since(self.now())))
    }
}

/// A clock that stands still until a test advances it. Advancing it wakes the sleepers whose time has come.
#[derive(Debug)]
pub struct VirtualClock(Mutex<Sleepers>);

#[derive(Debug)]
struct Sleepers {
    now: Time,
    serial: u64,
    asleep: BTreeMap<(Time, u64), oneshot::Sender<()>>,
}

impl VirtualClock {
    #[must_use]
    pub fn new(now: Time) -> VirtualClock {
        VirtualClock(Mutex::new(Sleepers { now, serial: 0, asleep: BTreeMap::new() }))
    }

    pub fn advance(&self, span: Duration) {
        let to = self.now().after(span);
        self.advance_to(to);
    }

    /// A time in the past does nothing.
    pub fn advance_to(&self, to: Time) {
        let mut sleepers = self.lock();
        sleepers.now = sleepers.now.max(to);
        let later = sleepers.now.after(Duration::from_millis(1));
        let asleep = sleepers.asleep.split_off(&(later, 0));
        let woken = std::mem::replace(&mut sleepers.asleep, asleep);
        drop(sleepers);
        for waker in woken.into_values() {
            // A sleeper that was dropped needs no wake-up.
            let _ = waker.send(());
        }
    }

    /// The time at which the next sleeper wakes.
    #[must_use]
    pub fn next_wake(&self) -> Option<Time> {
        let mut sleepers = self.lock();
        sleepers.asleep.retain(|_, waker| !waker.is_closed());
        sleepers.asleep.first_key_value().map(|((at, _), _)| *at)
    }

    fn lock(&self) -> MutexGuard<'_, Sleepers> {
        self.0.lock()
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Time {
        self.lock().now
    }

    fn sleep_until(&self, at: Time) -> BoxFuture<'static, ()> {
        let mut sleepers = self.lock();
        if at <= sleepers.now {
            return Box::pin(std::future::ready(()));
        }
        let (waker, woken) = oneshot::channel();
        sleepers.serial += 1;
        let serial = sleepers.serial;
        sleepers.asleep.insert((at, serial), waker);
        Box::pin(async move {
            if woken.await.is_err() {
                // The clock was dropped, so its time never comes.
                std::future::pending::<()>().await;
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_sleeper_wakes_when_the_clock_reaches_its_time() {
        let clock = VirtualClock::new(Time(1000));
        let (early, late) = (clock.sleep_until(Time(1500)), clock.sleep_until(Time(1501)));
        assert_eq!(clock.next_wake(), Some(Time(1500)));
        clock.advance(Duration::from_millis(500));
        early.await;
        assert_eq!(clock.next_wake(), Some(Time(1501)));
        drop(late);
        assert_eq!(clock.next_wake(), None);
        clock.sleep_until(Time(1)).await;
        clock.advance_to(Time(3));
        assert_eq!(clock.now(), Time(1500));
    }
}
