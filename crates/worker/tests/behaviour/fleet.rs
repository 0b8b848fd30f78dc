//! Several systems on one backend, and several kinds of work in one system.

use crate::{BackendKind, Log, World};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use towline::ports::{DeadLetter, Increment, PortFuture, Store};
use towline::testing::{FaultTiming, FaultyBackend};
use towline::{
    Backend, Clock, ConcurrencyLimiter, Context, Error, Event, Failure, Options, Outcome, System, Work,
    remote, work,
};

pub async fn a_fleet_shares_work_and_results_reach_the_submitter(kind: BackendKind) {
    let world = World::new(kind).await;
    let log = Log::default();
    let named = |name: &'static str| {
        let (log, clock) = (log.clone(), world.clock.clone());
        work("job", move |n: u32, _| {
            log.add(name);
            let slept = clock.sleep_until(clock.now().after(Duration::from_secs(1)));
            async move {
                slept.await;
                Ok(Outcome::Result(n))
            }
        })
        .concurrency(ConcurrencyLimiter::balanced(2))
    };
    let (a, b) = (named("a"), named("b"));
    let _fleet = [world.system().work(&a).start().unwrap(), world.system().work(&b).start().unwrap()];
    let submitter = world.system().start().unwrap();
    let job = remote::<u32, u32>("job");
    let mut handles = Vec::new();
    for n in 0..20 {
        handles.push(submitter.submit(job.of(n)).await.unwrap());
    }
    for (n, handle) in (0..).zip(&handles) {
        assert_eq!(world.drive(handle.result()).await, Ok(n));
    }
    let done = |name: &str| log.read().iter().filter(|logged| *logged == name).count();
    assert_eq!(done("a") + done("b"), 20);
    assert!(done("a") > 3 && done("b") > 3, "{:?}", log.read());
}

pub async fn a_declined_item_runs_in_another_system(kind: BackendKind) {
    let world = World::new(kind).await;
    let (red, blue) = (
        work("red", |(): (), _| async { Ok(Outcome::Result("red")) }),
        work("blue", |(): (), _| async { Ok(Outcome::Result("blue")) }),
    );
    let only_red = world.system().work(&red).work(&blue).accept(|kind| kind == "red").start().unwrap();
    let handle = only_red.submit(blue.of(())).await.unwrap();
    world.pass(30).await;
    assert!(world.count(|event| matches!(event, Event::Declined { reason: "not accepted", .. })) > 0);
    only_red.stop(Duration::ZERO).await;
    let knows_none = {
        let other = work("other", |(): (), _| async { Ok(Outcome::Result(())) });
        world.system().work(&other).start().unwrap()
    };
    world.pass(30).await;
    assert!(world.count(|event| matches!(event, Event::Declined { reason: "unknown kind", .. })) > 0);
    let _blue = world.system().work(&blue).start().unwrap();
    world.drive(handle.done()).await.unwrap();
    assert_eq!(world.count(|event| matches!(event, Event::Started { attempt, .. } if *attempt > 1)), 0);
    drop(knows_none);
}

pub async fn a_full_limiter_declines_items_and_never_exceeds_its_slots(kind: BackendKind) {
    let world = World::new(kind).await;
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let busy = {
        let (now, most, clock) = (Arc::clone(&now), Arc::clone(&most), world.clock.clone());
        work("busy", move |(): (), context: Context| {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            let (now, clock) = (Arc::clone(&now), clock.clone());
            async move {
                clock.sleep_until(clock.now().after(Duration::from_secs(5))).await;
                now.fetch_sub(1, Ordering::SeqCst);
                Ok(Outcome::Result(context.attempt()))
            }
        })
    }
    .concurrency(ConcurrencyLimiter::priority(3));
    let idle = work("idle", |(): (), _| async { Ok(Outcome::Result(0)) });
    let system = world.system().work(&busy).work(&idle).start().unwrap();
    let mut handles = Vec::new();
    for _ in 0..20 {
        handles.push(system.submit(busy.of(())).await.unwrap());
    }
    for handle in &handles {
        assert_eq!(world.drive(handle.result()).await, Ok(1));
    }
    assert_eq!(most.load(Ordering::SeqCst), 3);
    assert!(world.count(|event| matches!(event, Event::Declined { reason: "no free slot", .. })) > 0);
}

/// Work that logs its start and takes this many seconds.
fn lasting(world: &World, log: &Log, name: &'static str, seconds: u64) -> Work<(), ()> {
    let (log, clock) = (log.clone(), world.clock.clone());
    work(name, move |(): (), _| {
        log.add(name);
        let slept = clock.sleep_until(clock.now().after(Duration::from_secs(seconds)));
        async move {
            slept.await;
            Ok(Outcome::Result(()))
        }
    })
}

pub async fn a_long_poll_receives_only_what_it_has_room_for(kind: BackendKind) {
    let world = World::new(kind).await;
    let long = lasting(&world, &Log::default(), "long", 600);
    let submitter = world.system().start().unwrap();
    for _ in 0..3 {
        submitter.submit(long.of(())).await.unwrap();
    }
    // Two attempts run and one waits for a slot. There is one more place, and three items are submitted at once.
    let _worker = world.system().work(&long).concurrency(ConcurrencyLimiter::balanced(2)).start().unwrap();
    world.pass(1).await;
    assert_eq!(world.depth().await, 0);
    for _ in 0..3 {
        submitter.submit(long.of(())).await.unwrap();
    }
    world.pass(20).await;
    assert_eq!(world.count(|event| matches!(event, Event::Declined { .. })), 0);
    assert_eq!(world.depth().await, 2, "one item was received, two are left");
}

pub async fn a_flooded_queue_does_not_take_the_places_of_another_long_poll(kind: BackendKind) {
    let world = World::new(kind).await;
    let log = Log::default();
    let flood = lasting(&world, &log, "flood", 60).queue(world.queue("other"));
    let calm = lasting(&world, &log, "calm", 60);
    let system =
        world.system().work(&flood).work(&calm).concurrency(ConcurrencyLimiter::balanced(2)).start().unwrap();
    world.pass(1).await;
    for _ in 0..10 {
        system.submit(flood.of(())).await.unwrap();
    }
    world.pass(20).await;
    for _ in 0..2 {
        system.submit(calm.of(())).await.unwrap();
    }
    world.pass(20).await;
    assert_eq!(world.count(|event| matches!(event, Event::Declined { .. })), 0);
    assert_eq!(log.read(), ["flood", "flood"]);
    world.pass(30).await;
    assert_eq!(log.read()[2..], ["calm", "flood"], "no work of kind calm ran before");
}

pub async fn with_one_slot_every_queue_has_a_long_poll(kind: BackendKind) {
    let world = World::new(kind).await;
    let log = Log::default();
    let kinds = ["a", "b", "c"].map(|name| lasting(&world, &log, name, 0).queue(world.queue(name)));
    let system = kinds.iter().fold(world.system(), |system, kind| system.work(kind));
    let system = system.concurrency(ConcurrencyLimiter::balanced(1)).start().unwrap();
    world.pass(1).await;
    for (n, kind) in [2, 0, 1, 1, 0, 2].into_iter().enumerate() {
        system.submit(kinds[kind].of(())).await.unwrap();
        // The clock stands still, so the next poll does not find it.
        world.quiet().await;
        assert_eq!(log.read().len(), n + 1);
    }
    assert_eq!(log.read().concat(), "cabbac");
}

pub async fn with_one_slot_and_no_long_polls_every_queue_is_served_in_turn(kind: BackendKind) {
    let world = World::new(kind).await;
    let log = Log::default();
    let lasts = |name| lasting(&world, &log, name, 1).queue(world.queue_without_long_polls(name));
    let (flood, other, calm) = (lasts("flood"), lasts("other"), lasts("calm"));
    let submitter = world.system().start().unwrap();
    for _ in 0..20 {
        submitter.submit(flood.of(())).await.unwrap();
        submitter.submit(other.of(())).await.unwrap();
    }
    let system =
        world.system().work(&flood).work(&other).work(&calm).concurrency(ConcurrencyLimiter::balanced(1));
    let system = system.start().unwrap();
    world.pass(5).await;
    let handle = system.submit(calm.of(())).await.unwrap();
    world.drive(handle.result()).await.unwrap();
    let done = log.read();
    let count = |name: &str| done.iter().filter(|done| *done == name).count();
    // The first round may have received one more item from one of the queues.
    assert!(count("flood").abs_diff(count("other")) <= 2 && done.len() < 15, "{done:?}");
    assert_eq!(world.count(|event| matches!(event, Event::Declined { .. })), 0);
}

pub async fn a_flooded_queue_does_not_starve_other_queues(kind: BackendKind) {
    let world = World::new(kind).await;
    let log = Log::default();
    let queue = world.queue("other");
    let logging = |name: &'static str| {
        let log = log.clone();
        work(name, move |(): (), _| {
            log.add(name);
            async { Ok(Outcome::Result(())) }
        })
    };
    let (flood, calm) = (logging("flood").queue(queue), logging("calm"));
    let submitter = world.system().start().unwrap();
    for _ in 0..2000 {
        submitter.submit(flood.of(())).await.unwrap();
    }
    let mut handles = Vec::new();
    for _ in 0..10 {
        handles.push(submitter.submit(calm.of(())).await.unwrap());
    }
    let _worker =
        world.system().work(&flood).work(&calm).concurrency(ConcurrencyLimiter::balanced(4)).start().unwrap();
    for handle in &handles {
        world.drive(handle.result()).await.unwrap();
    }
    let before = log.read().iter().rposition(|name| name == "calm").unwrap();
    assert!(before < 200, "{before} came before the last of the calm ones was done");
}

pub async fn stopping_waits_for_running_attempts_and_receives_no_more(kind: BackendKind) {
    let world = World::new(kind).await;
    let slow = lasting(&world, &Log::default(), "slow", 3);
    let system = world.system().work(&slow).start().unwrap();
    let first = system.submit(slow.of(())).await.unwrap();
    world.pass(1).await;
    assert!(world.drive(system.stop(Duration::from_secs(60))).await);
    first.result().await.unwrap();
    let second = system.submit(slow.of(())).await.unwrap();
    world.pass(60).await;
    assert_eq!((system.stats().started, world.depth().await), (1, 1));
    let _next = world.system().work(&slow).start().unwrap();
    world.drive(second.result()).await.unwrap();
}

pub async fn a_backlog_is_reported(kind: BackendKind) {
    let world = World::new(kind).await;
    let none = work("none", |(): (), _| async { Ok(Outcome::Result(())) });
    let system = world.system().work(&none).backlog_alarm(10).start().unwrap();
    for _ in 0..11 {
        system.submit(none.of(()).options(Options::new().delay(Duration::from_secs(60)))).await.unwrap();
    }
    world.pass(5).await;
    assert!(world.count(|event| *event == Event::Backlog { depth: 11 }) > 0);
}

pub async fn a_backend_error_is_reported_and_the_call_repeated(kind: BackendKind) {
    let world = World::new(kind).await;
    let echo = work("echo", |n: u32, _| async move { Ok(Outcome::Result(n)) });
    let events = Arc::clone(&world.events);
    let system = System::on(FaultyBackend::new(world.backend.clone(), 1, FaultTiming::BeforeCall))
        .clock(world.clock.clone())
        .on_event(move |event| events.lock().unwrap().push(event.clone()))
        .work(&echo)
        .start()
        .unwrap();
    world.pass(1).await;
    let reported = Event::BackendError {
        operation: "receive from a queue",
        error: "the backend is unavailable: a planned fault".to_owned(),
    };
    assert_eq!(world.count(|event| *event == reported), 1);
    let handle = system.submit(echo.of(7)).await.unwrap();
    assert_eq!(world.drive(handle.result()).await, Ok(7));
}

pub async fn dead_letters_of_all_queues_are_listed_and_redriven(kind: BackendKind) {
    let world = World::new(kind).await;
    let succeeds = Arc::new(AtomicUsize::new(0));
    let bad = |name: &'static str| {
        let succeeds = Arc::clone(&succeeds);
        work(name, move |(): (), _| {
            let succeeds = succeeds.load(Ordering::SeqCst) > 0;
            async move { if succeeds { Ok(Outcome::Result(name)) } else { Err(Failure::fail(name)) } }
        })
    };
    let (here, there) = (bad("here"), bad("there").queue(world.queue("other")));
    let system = world.system().work(&here).work(&there).start().unwrap();
    let mut handles = Vec::new();
    for work in [&here, &there, &here] {
        handles.push(system.submit(work.of(())).await.unwrap());
    }
    for handle in &handles {
        world.drive(handle.done()).await.unwrap_err();
    }
    let errors = |letters: Vec<DeadLetter>| {
        let mut errors: Vec<String> = letters.into_iter().map(|letter| letter.error).collect();
        errors.sort_unstable();
        errors
    };
    let letters = system.dead_letters(10).await.unwrap();
    assert!(letters.iter().all(|letter| letter.payload.contains(&letter.error)), "{letters:?}");
    assert_eq!(errors(letters), ["here", "here", "there"]);
    assert_eq!(errors(system.dead_letters(1).await.unwrap()), ["here", "there"], "one of each queue");
    succeeds.store(1, Ordering::SeqCst);
    assert_eq!(system.redrive(10).await, Ok(3));
    world.drive(system.idle()).await.unwrap();
    assert_eq!(system.dead_letters(10).await, Ok(Vec::new()));
    for handle in &handles {
        handle.done().await.unwrap();
    }
}

pub async fn the_poll_interval_adapts_to_a_queue_without_long_polls(kind: BackendKind) {
    let world = World::new(kind).await;
    let clock = world.clock.clone();
    let when = work("when", move |queued_at: u64, _| {
        let late = clock.now().0 - queued_at;
        async move { Ok(Outcome::Result(late)) }
    })
    .queue(world.queue_without_long_polls("asked"));
    let system = world.system().poll_interval(Duration::from_secs(16)).work(&when).start().unwrap();
    let mut handles = Vec::new();
    for _ in 0..60 {
        world.pass(2).await;
        handles.push(system.submit(when.of(world.clock.now().0)).await.unwrap());
    }
    let mut late = Vec::new();
    for handle in &handles {
        late.push(world.drive(handle.result()).await.unwrap());
    }
    assert!(late[0] > 2000, "the first poll interval is 16 s: {late:?}");
    assert!(late[30..].iter().all(|late| *late <= 4000), "{late:?}");
}

/// A store whose counters are not atomic across processes.
struct LocalCounters(Arc<dyn Store>);

impl Store for LocalCounters {
    fn get<'a>(&'a self, key: &'a str) -> PortFuture<'a, Option<String>> {
        self.0.get(key)
    }

    fn set<'a>(&'a self, key: &'a str, value: String, ttl: Duration) -> PortFuture<'a, ()> {
        self.0.set(key, value, ttl)
    }

    fn delete<'a>(&'a self, key: &'a str) -> PortFuture<'a, ()> {
        self.0.delete(key)
    }

    fn set_if_absent<'a>(&'a self, key: &'a str, value: String, ttl: Duration) -> PortFuture<'a, bool> {
        self.0.set_if_absent(key, value, ttl)
    }

    fn increment<'a>(&'a self, key: &'a str, increment: Increment<'a>, ttl: Duration) -> PortFuture<'a, i64> {
        self.0.increment(key, increment, ttl)
    }

    fn is_shared(&self) -> bool {
        false
    }
}

#[tokio::test]
async fn a_store_with_local_counters_needs_the_single_process_setting() {
    let world = World::new(BackendKind::Memory).await;
    let echo = work("echo", |n: u32, _| async move { Ok(Outcome::Result(n)) });
    let backend =
        Backend { store: Arc::new(LocalCounters(Arc::clone(&world.backend.store))), ..world.backend.clone() };
    let builder = || System::on(backend.clone()).clock(world.clock.clone()).work(&echo);
    let error = builder().start().unwrap_err().to_string();
    assert!(error.contains("not atomic across processes") && error.contains("single_process"), "{error}");
    let system = builder().single_process().start().unwrap();
    assert_eq!(world.drive(system.submit(echo.of(7)).await.unwrap().result()).await, Ok(7));
}

pub async fn systems_with_different_prefixes_do_not_share_records(kind: BackendKind) {
    let world = World::new(kind).await;
    let echo = work("echo", |n: u32, _| async move { Ok(Outcome::Result(n)) });
    let mut backend = world.backend.clone();
    backend.queue = world.queue("other");
    let one = world.system().work(&echo).start().unwrap();
    let two = System::on(backend).clock(world.clock.clone()).prefix("other:").work(&echo).start().unwrap();
    let job = |system: &System, n| {
        let job = echo.of(n).options(Options::new().idempotency_key("same"));
        let system = system.clone();
        async move { system.submit(job).await.unwrap() }
    };
    let (a, b) = (job(&one, 1).await, job(&two, 2).await);
    assert_eq!(a.id(), b.id());
    assert_eq!(world.drive(a.result()).await, Ok(1));
    assert_eq!(world.drive(b.result()).await, Ok(2));
}

pub async fn start_refuses_settings_that_cannot_work(kind: BackendKind) {
    let world = World::new(kind).await;
    let (a, b) = (
        work("same", |(): (), _| async { Ok(Outcome::Result(())) }),
        work("same", |(): (), _| async { Ok(Outcome::Result(())) }),
    );
    let error = world.system().work(&a).work(&b).start().unwrap_err();
    assert_eq!(error.to_string(), "two kinds of work are named \"same\"; rename one of them");
    let error = world.system().visibility_timeout(Duration::ZERO).start().unwrap_err();
    assert!(matches!(error, Error::Configuration(_)));
}
