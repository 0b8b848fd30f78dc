//! The machine's clock is behind the store's latest time when the store is opened: the store's time goes on.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod rig;

use rig::*;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use towline_domain::{Backoff, Item, Millis, Policy, Timestamp};
use towline_embedded::Embedded;
use towline_store::{Clock, ClockState, Operation, SteadyTime, Store};

/// A machine whose clock the test sets, read like the server reads its own.
struct Machine(Mutex<(Duration, Duration, SteadyTime)>);

impl Machine {
    fn new(wall: Timestamp) -> Arc<Machine> {
        let wall = Duration::from_millis(wall.0);
        Arc::new(Machine(Mutex::new((Duration::ZERO, wall, SteadyTime::new(wall)))))
    }

    fn pass(&self, millis: u64) {
        let mut machine = self.0.lock().unwrap();
        machine.0 += Duration::from_millis(millis);
        machine.1 += Duration::from_millis(millis);
    }
}

impl Clock for Machine {
    fn now(&self) -> Timestamp {
        let mut machine = self.0.lock().unwrap();
        let (elapsed, wall) = (std::mem::take(&mut machine.0), machine.1);
        machine.2.advance(elapsed, wall)
    }

    fn resume(&self, latest: Timestamp) {
        self.0.lock().unwrap().2.resume(latest);
    }

    fn state(&self) -> ClockState {
        self.0.lock().unwrap().2.state()
    }
}

fn receive(store: &Embedded) -> Vec<Item> {
    static SEED: AtomicU8 = AtomicU8::new(1);
    received(run(store, receive_from("jobs", 1, SEED.fetch_add(1, Ordering::Relaxed))))
}

fn leases_of_two_seconds() -> Policy {
    Policy { visibility_timeout: Millis::seconds(2), backoff: Backoff::NONE, ..Policy::default() }
}

#[test]
fn a_lease_lapses_although_the_clock_was_set_back_across_the_restart() {
    let directory = tempfile::tempdir().unwrap();
    let open = |clock: Arc<Machine>| Embedded::open(directory.path(), options(64 << 10), clock).unwrap();
    let store = open(Machine::new(START.after(Millis::hours(1))));
    run(&store, create_with("jobs", leases_of_two_seconds())).unwrap();
    let id = submit(&store, "work");
    drop(store);

    let clock = Machine::new(START);
    let store = open(clock.clone());
    let held = receive(&store).remove(0);
    assert_eq!(held.head.id, id);
    let metrics = futures::executor::block_on(store.metrics()).unwrap();
    assert!(metrics.clock.ahead_ms > 3_500_000, "{:?}", metrics.clock);
    // At half speed, the lease of two seconds lasts for four.
    clock.pass(3900);
    run(&store, Operation::Sweep).unwrap();
    assert!(receive(&store).is_empty());
    clock.pass(200);
    run(&store, Operation::Sweep).unwrap();
    assert_eq!(receive(&store).remove(0).head.deliveries, 2);
    // Both agree after twice the difference, and never go back.
    clock.pass(2 * 3_600_000);
    assert_eq!(clock.now(), START.after(Millis(2 * 3_600_000 + 4100)));
}

#[test]
fn one_start_with_a_clock_that_is_years_ahead_costs_thirty_days() {
    let directory = tempfile::tempdir().unwrap();
    let open = |clock: Arc<Machine>| Embedded::open(directory.path(), options(64 << 10), clock).unwrap();
    let store = open(Machine::new(START));
    run(&store, create_with("jobs", leases_of_two_seconds())).unwrap();
    drop(store);
    let clock = Machine::new(START.after(Millis::days(3650)));
    let store = open(clock.clone());
    let id = submit(&store, "work");
    let days = |clock: &Machine| clock.now().since(START).0 / 86_400_000;
    assert_eq!((days(&clock), clock.state().steps_cut), (30, 1));
    drop(store);
    // The clock is right again, and the time goes on from there.
    let clock = Machine::new(START.after(Millis::minutes(5)));
    let store = open(clock.clone());
    assert_eq!(days(&clock), 30);
    let held = receive(&store).remove(0);
    assert_eq!(held.head.id, id);
    clock.pass(4100);
    run(&store, Operation::Sweep).unwrap();
    assert_eq!(receive(&store).len(), 1, "the lease lapsed");
}
