//! What the engine promises, in memory, on a clock that moves when nobody has anything to do.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod attempts;
mod batches;
mod dependents;
mod faults;
mod fleet;
mod groups;
mod schedules;

use std::sync::{Arc, Mutex};
use towline::{Builder, Event, Memory, System, VirtualClock, testing};

/// A backend that is shared by as many systems as are started on it.
struct World {
    clock: Arc<VirtualClock>,
    memory: Memory,
    events: Arc<Mutex<Vec<Event>>>,
}

impl World {
    fn new() -> World {
        let clock = testing::clock();
        World { memory: Memory::with_clock(clock.clone()), clock, events: Arc::default() }
    }

    /// A system that tells what happens.
    fn system(&self) -> Builder {
        let events = Arc::clone(&self.events);
        System::on(self.memory.clone())
            .clock(self.clock.clone())
            .poll_interval(std::time::Duration::from_secs(5))
            .on_event(move |event| events.lock().unwrap().push(event.clone()))
    }

    async fn drive<T>(&self, future: impl Future<Output = T>) -> T {
        testing::drive(&self.clock, future).await
    }

    async fn pass(&self, seconds: u64) {
        testing::pass(&self.clock, std::time::Duration::from_secs(seconds)).await;
    }

    fn count(&self, which: impl Fn(&Event) -> bool) -> usize {
        self.events.lock().unwrap().iter().filter(|event| which(event)).count()
    }
}

/// Things in the order they came.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn add(&self, what: impl Into<String>) {
        self.0.lock().unwrap().push(what.into());
    }

    fn read(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}
