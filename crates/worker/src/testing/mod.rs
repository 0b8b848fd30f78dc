//! For tests of programs that use this library: a clock that advances when all tasks wait, and a backend whose calls fail.

mod faulty;

pub use faulty::{FaultTiming, FaultyBackend};

use crate::clock::{Clock, Time, VirtualClock};
use crate::error::Error;
use crate::system::System;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

/// A virtual clock that starts at 2027-01-15 08:00 UTC.
#[must_use]
pub fn clock() -> Arc<VirtualClock> {
    Arc::new(VirtualClock::new(Time(1_800_000_000_000)))
}

/// How often the other tasks are polled before the clock advances.
const YIELDS: usize = 50;
/// The virtual time after which a future is taken to hang.
const TIME_MAX: Duration = Duration::from_secs(400 * 24 * 3600);

/// Runs a future to its end. Advances the clock to the next sleeper whenever all tasks wait. Needs a runtime with one thread.
///
/// # Panics
/// If the future has not ended after 400 days of virtual time.
pub async fn drive<T>(clock: &VirtualClock, future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let end = clock.now().after(TIME_MAX);
    loop {
        for _ in 0..YIELDS {
            let polled = std::future::poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await;
            if let Poll::Ready(output) = polled {
                return output;
            }
            tokio::task::yield_now().await;
        }
        match clock.next_wake() {
            Some(at) if at <= end => clock.advance_to(at),
            Some(_) => panic!("the future did not end in {TIME_MAX:?} of virtual time"),
            // No task sleeps: they wait for a file or for another process.
            None => tokio::time::sleep(Duration::from_millis(1)).await,
        }
    }
}

/// Runs all work of the system, and advances the clock to work that is due later, until no work is left. Needs a runtime with
/// one thread.
///
/// ```
/// use std::time::Duration;
/// use towline::{Clock, Memory, Options, Outcome, System, testing, work};
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let clock = testing::clock();
/// let note = work("note", |(): (), _| async { Ok(Outcome::<()>::Void) });
/// let system = System::on(Memory::with_clock(clock.clone())).clock(clock.clone()).work(&note).start()?;
/// system.submit(note.of(()).options(Options::new().delay(Duration::from_secs(3600)))).await?;
/// testing::run_until_idle(&clock, &system).await?;
/// assert_eq!(system.stats().completed, 1);
/// # Ok::<(), towline::Error>(())
/// # }).unwrap();
/// ```
///
/// # Panics
/// Like [`drive`].
pub async fn run_until_idle(clock: &VirtualClock, system: &System) -> Result<(), Error> {
    drive(clock, system.idle()).await
}

/// Advances the clock by `span`, and runs every task that wakes meanwhile.
pub async fn pass(clock: &VirtualClock, span: Duration) {
    let end = clock.now().after(span);
    let sleep = clock.sleep_until(end);
    drive(clock, sleep).await;
    for _ in 0..YIELDS {
        tokio::task::yield_now().await;
    }
}
