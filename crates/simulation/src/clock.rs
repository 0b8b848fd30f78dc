//! The clock of a simulated machine: virtual, and it may be set back.

use parking_lot::{Mutex, MutexGuard};
use std::time::Duration;
use towline_domain::Timestamp;
use towline_store::{Clock, SteadyTime};

/// The machine's clock, read like the server reads it.
#[derive(Debug)]
pub struct SimClock(Mutex<Machine>);

#[derive(Debug)]
struct Machine {
    /// What the machine's clock says, since 1970.
    wall: Duration,
    /// How much time has passed since the last reading.
    elapsed: Duration,
    time: SteadyTime,
}

impl SimClock {
    pub fn new(wall_ms: u64) -> SimClock {
        let wall = Duration::from_millis(wall_ms);
        SimClock(Mutex::new(Machine { wall, elapsed: Duration::ZERO, time: SteadyTime::new(wall) }))
    }

    fn lock(&self) -> MutexGuard<'_, Machine> {
        self.0.lock()
    }

    pub fn pass(&self, millis: u64) {
        let mut machine = self.lock();
        machine.wall += Duration::from_millis(millis);
        machine.elapsed += Duration::from_millis(millis);
    }

    pub fn set_back(&self, millis: u64) {
        let mut machine = self.lock();
        machine.wall = machine.wall.saturating_sub(Duration::from_millis(millis));
    }

    /// A new process reads the machine's clock, and knows nothing of earlier readings.
    pub fn restart(&self) {
        let mut machine = self.lock();
        machine.elapsed = Duration::ZERO;
        machine.time = SteadyTime::new(machine.wall);
    }
}

impl Clock for SimClock {
    fn now(&self) -> Timestamp {
        let mut machine = self.lock();
        let (elapsed, wall) = (std::mem::take(&mut machine.elapsed), machine.wall);
        machine.time.advance(elapsed, wall)
    }

    fn resume(&self, latest: Timestamp) {
        self.lock().time.resume(latest);
    }
}
