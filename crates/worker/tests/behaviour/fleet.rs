//! Several systems on one backend, several kinds on one system.

use crate::{Kind, Log, World};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use towline::ports::{Answer, Count, DeadLetter, Store};
use towline::testing::{Fault, Faulty};
use towline::{
    Backend, Clock, Context, Doer, Error, Event, Failure, Options, Outcome, System, Work, elsewhere, work,
};

pub async fn work_fans_out_and_whoever_waits_is_told_wherever_it_was_done(kind: Kind) {
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
        .doer(Doer::balanced(2))
    };
    let (a, b) = (named("a"), named("b"));
    let _pods = [world.system().work(&a).start().unwrap(), world.system().work(&b).start().unwrap()];
    let asks = world.system().start().unwrap();
    let job = elsewhere::<u32, u32>("job");
    let mut handles = Vec::new();
    for n in 0..20 {
        handles.push(asks.queue(job.of(n)).await.unwrap());
    }
    for (n, handle) in (0..).zip(&handles) {
        assert_eq!(world.drive(handle.result()).await, Ok(n));
    }
    let done = |name: &str| log.read().iter().filter(|who| *who == name).count();
    assert_eq!(done("a") + done("b"), 20);
    assert!(done("a") > 3 && done("b") > 3, "{:?}", log.read());
}

pub async fn what_one_does_not_take_or_know_another_does(kind: Kind) {
    let world = World::new(kind).await;
    let (red, blue) = (
        work("red", |(): (), _| async { Ok(Outcome::Result("red")) }),
        work("blue", |(): (), _| async { Ok(Outcome::Result("blue")) }),
    );
    let only_red = world.system().work(&red).work(&blue).accept(|kind| kind == "red").start().unwrap();
    let handle = only_red.queue(blue.of(())).await.unwrap();
    world.pass(30).await;
    assert!(world.count(|event| matches!(event, Event::PutBack { why: "not accepted", .. })) > 0);
    only_red.stop(Duration::ZERO).await;
    let knows_none = {
        let other = work("other", |(): (), _| async { Ok(Outcome::Result(())) });
        world.system().work(&other).start().unwrap()
    };
    world.pass(30).await;
    assert!(world.count(|event| matches!(event, Event::PutBack { why: "unknown", .. })) > 0);
    let _blue = world.system().work(&blue).start().unwrap();
    world.drive(handle.done()).await.unwrap();
    assert_eq!(world.count(|event| matches!(event, Event::Started { attempt, .. } if *attempt > 1)), 0);
    drop(knows_none);
}

pub async fn a_full_doer_puts_back_without_counting_and_never_runs_more(kind: Kind) {
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
    .doer(Doer::priority(3));
    let idle = work("idle", |(): (), _| async { Ok(Outcome::Result(0)) });
    let system = world.system().work(&busy).work(&idle).start().unwrap();
    let mut handles = Vec::new();
    for _ in 0..20 {
        handles.push(system.queue(busy.of(())).await.unwrap());
    }
    for handle in &handles {
        assert_eq!(world.drive(handle.result()).await, Ok(1));
    }
    assert_eq!(most.load(Ordering::SeqCst), 3);
    assert!(world.count(|event| matches!(event, Event::PutBack { why: "no room", .. })) > 0);
}

/// Noted when it begins, and over after so many seconds.
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

pub async fn what_is_waited_for_finds_room_when_it_comes(kind: Kind) {
    let world = World::new(kind).await;
    let long = lasting(&world, &Log::default(), "long", 600);
    let asks = world.system().start().unwrap();
    for _ in 0..3 {
        asks.queue(long.of(())).await.unwrap();
    }
    // Two run and one is the next. There is room for one more, and not for all those that come together.
    let _works = world.system().work(&long).doer(Doer::balanced(2)).start().unwrap();
    world.pass(1).await;
    assert_eq!(world.waiting().await, 0);
    for _ in 0..3 {
        asks.queue(long.of(())).await.unwrap();
    }
    world.pass(20).await;
    assert_eq!(world.count(|event| matches!(event, Event::PutBack { .. })), 0);
    assert_eq!(world.waiting().await, 2, "one was taken, two are left to others");
}

pub async fn a_queue_that_is_waited_for_keeps_its_room_while_another_is_flooded(kind: Kind) {
    let world = World::new(kind).await;
    let log = Log::default();
    let flood = lasting(&world, &log, "flood", 60).queue(world.queue("other"));
    let calm = lasting(&world, &log, "calm", 60);
    let system = world.system().work(&flood).work(&calm).doer(Doer::balanced(2)).start().unwrap();
    world.pass(1).await;
    for _ in 0..10 {
        system.queue(flood.of(())).await.unwrap();
    }
    world.pass(20).await;
    for _ in 0..2 {
        system.queue(calm.of(())).await.unwrap();
    }
    world.pass(20).await;
    assert_eq!(world.count(|event| matches!(event, Event::PutBack { .. })), 0);
    assert_eq!(log.read(), ["flood", "flood"]);
    world.pass(30).await;
    assert_eq!(log.read()[2..], ["calm", "flood"], "of its kind none ran");
}

pub async fn where_one_runs_at_a_time_every_queue_is_waited_for(kind: Kind) {
    let world = World::new(kind).await;
    let log = Log::default();
    let kinds = ["a", "b", "c"].map(|name| lasting(&world, &log, name, 0).queue(world.queue(name)));
    let system = kinds.iter().fold(world.system(), |system, kind| system.work(kind));
    let system = system.doer(Doer::balanced(1)).start().unwrap();
    world.pass(1).await;
    for (n, kind) in [2, 0, 1, 1, 0, 2].into_iter().enumerate() {
        system.queue(kinds[kind].of(())).await.unwrap();
        // No time passes: it is not found by the next look.
        world.quiet().await;
        assert_eq!(log.read().len(), n + 1);
    }
    assert_eq!(log.read().concat(), "cabbac");
}

pub async fn where_one_runs_at_a_time_and_no_wait_is_answered_every_queue_has_its_turn(kind: Kind) {
    let world = World::new(kind).await;
    let log = Log::default();
    let lasts = |name| lasting(&world, &log, name, 1).queue(world.queue_without_wait(name));
    let (flood, other, calm) = (lasts("flood"), lasts("other"), lasts("calm"));
    let asks = world.system().start().unwrap();
    for _ in 0..20 {
        asks.queue(flood.of(())).await.unwrap();
        asks.queue(other.of(())).await.unwrap();
    }
    let system = world.system().work(&flood).work(&other).work(&calm).doer(Doer::balanced(1));
    let system = system.start().unwrap();
    world.pass(5).await;
    let handle = system.queue(calm.of(())).await.unwrap();
    world.drive(handle.result()).await.unwrap();
    let done = log.read();
    let count = |name: &str| done.iter().filter(|done| *done == name).count();
    // The first round may have had one more of one of them.
    assert!(count("flood").abs_diff(count("other")) <= 2 && done.len() < 15, "{done:?}");
    assert_eq!(world.count(|event| matches!(event, Event::PutBack { .. })), 0);
}

pub async fn a_kind_that_floods_its_own_queue_does_not_starve_the_others(kind: Kind) {
    let world = World::new(kind).await;
    let log = Log::default();
    let queue = world.queue("other");
    let noted = |name: &'static str| {
        let log = log.clone();
        work(name, move |(): (), _| {
            log.add(name);
            async { Ok(Outcome::Result(())) }
        })
    };
    let (flood, calm) = (noted("flood").queue(queue), noted("calm"));
    let asks = world.system().start().unwrap();
    for _ in 0..2000 {
        asks.queue(flood.of(())).await.unwrap();
    }
    let mut handles = Vec::new();
    for _ in 0..10 {
        handles.push(asks.queue(calm.of(())).await.unwrap());
    }
    let _works = world.system().work(&flood).work(&calm).doer(Doer::balanced(4)).start().unwrap();
    for handle in &handles {
        world.drive(handle.result()).await.unwrap();
    }
    let before = log.read().iter().rposition(|name| name == "calm").unwrap();
    assert!(before < 200, "{before} came before the last of the calm ones was done");
}

pub async fn stopping_waits_for_what_runs_and_takes_no_more(kind: Kind) {
    let world = World::new(kind).await;
    let slow = lasting(&world, &Log::default(), "slow", 3);
    let system = world.system().work(&slow).start().unwrap();
    let first = system.queue(slow.of(())).await.unwrap();
    world.pass(1).await;
    assert!(world.drive(system.stop(Duration::from_secs(60))).await);
    first.result().await.unwrap();
    let second = system.queue(slow.of(())).await.unwrap();
    world.pass(60).await;
    assert_eq!((system.stats().started, world.waiting().await), (1, 1));
    let _next = world.system().work(&slow).start().unwrap();
    world.drive(second.result()).await.unwrap();
}

pub async fn a_backlog_is_told(kind: Kind) {
    let world = World::new(kind).await;
    let none = work("none", |(): (), _| async { Ok(Outcome::Result(())) });
    let system = world.system().work(&none).backlog_alarm(10).start().unwrap();
    for _ in 0..11 {
        system.queue(none.of(()).options(Options::new().delay(Duration::from_secs(60)))).await.unwrap();
    }
    world.pass(5).await;
    assert!(world.count(|event| *event == Event::Backlog { depth: 11 }) > 0);
}

pub async fn trouble_is_told_and_tried_again(kind: Kind) {
    let world = World::new(kind).await;
    let echo = work("echo", |n: u32, _| async move { Ok(Outcome::Result(n)) });
    let events = Arc::clone(&world.events);
    let system = System::on(Faulty::new(world.backend.clone(), 1, Fault::Before))
        .clock(world.clock.clone())
        .on_event(move |event| events.lock().unwrap().push(event.clone()))
        .work(&echo)
        .start()
        .unwrap();
    world.pass(1).await;
    let told = Event::Trouble {
        doing: "taking from a queue",
        error: "the backend cannot be reached: as planned".to_owned(),
    };
    assert_eq!(world.count(|event| *event == told), 1);
    let handle = system.queue(echo.of(7)).await.unwrap();
    assert_eq!(world.drive(handle.result()).await, Ok(7));
}

pub async fn dead_letters_of_all_queues_can_be_looked_at_and_tried_again(kind: Kind) {
    let world = World::new(kind).await;
    let well = Arc::new(AtomicUsize::new(0));
    let bad = |name: &'static str| {
        let well = Arc::clone(&well);
        work(name, move |(): (), _| {
            let well = well.load(Ordering::SeqCst) > 0;
            async move { if well { Ok(Outcome::Result(name)) } else { Err(Failure::abort(name)) } }
        })
    };
    let (here, there) = (bad("here"), bad("there").queue(world.queue("other")));
    let system = world.system().work(&here).work(&there).start().unwrap();
    let mut handles = Vec::new();
    for work in [&here, &there, &here] {
        handles.push(system.queue(work.of(())).await.unwrap());
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
    assert!(letters.iter().all(|letter| letter.body.contains(&letter.error)), "{letters:?}");
    assert_eq!(errors(letters), ["here", "here", "there"]);
    assert_eq!(errors(system.dead_letters(1).await.unwrap()), ["here", "there"], "one of each queue");
    well.store(1, Ordering::SeqCst);
    assert_eq!(system.redrive(10).await, Ok(3));
    world.drive(system.idle()).await.unwrap();
    assert_eq!(system.dead_letters(10).await, Ok(Vec::new()));
    for handle in &handles {
        handle.done().await.unwrap();
    }
}

pub async fn a_queue_that_cannot_be_waited_for_is_looked_at_as_often_as_it_is_worth(kind: Kind) {
    let world = World::new(kind).await;
    let clock = world.clock.clone();
    let when = work("when", move |queued_at: u64, _| {
        let late = clock.now().0 - queued_at;
        async move { Ok(Outcome::Result(late)) }
    })
    .queue(world.queue_without_wait("asked"));
    let system = world.system().poll_interval(Duration::from_secs(16)).work(&when).start().unwrap();
    let mut handles = Vec::new();
    for _ in 0..60 {
        world.pass(2).await;
        handles.push(system.queue(when.of(world.clock.now().0)).await.unwrap());
    }
    let mut late = Vec::new();
    for handle in &handles {
        late.push(world.drive(handle.result()).await.unwrap());
    }
    assert!(late[0] > 2000, "at first it is looked at every sixteen seconds: {late:?}");
    assert!(late[30..].iter().all(|late| *late <= 4000), "{late:?}");
}

/// As a store that has no counter of its own.
struct Alone(Arc<dyn Store>);

impl Store for Alone {
    fn get<'a>(&'a self, key: &'a str) -> Answer<'a, Option<String>> {
        self.0.get(key)
    }

    fn set<'a>(&'a self, key: &'a str, value: String, ttl: Duration) -> Answer<'a, ()> {
        self.0.set(key, value, ttl)
    }

    fn delete<'a>(&'a self, key: &'a str) -> Answer<'a, ()> {
        self.0.delete(key)
    }

    fn set_if_absent<'a>(&'a self, key: &'a str, value: String, ttl: Duration) -> Answer<'a, bool> {
        self.0.set_if_absent(key, value, ttl)
    }

    fn increment<'a>(&'a self, key: &'a str, count: Count<'a>, ttl: Duration) -> Answer<'a, i64> {
        self.0.increment(key, count, ttl)
    }

    fn is_shared(&self) -> bool {
        false
    }
}

#[tokio::test]
async fn a_store_whose_counters_hold_in_one_process_is_for_who_says_it_is_alone() {
    let world = World::new(Kind::Memory).await;
    let echo = work("echo", |n: u32, _| async move { Ok(Outcome::Result(n)) });
    let backend =
        Backend { store: Arc::new(Alone(Arc::clone(&world.backend.store))), ..world.backend.clone() };
    let builder = || System::on(backend.clone()).clock(world.clock.clone()).work(&echo);
    let error = builder().start().unwrap_err().to_string();
    assert!(error.contains("do not hold against other processes") && error.contains("`alone`"), "{error}");
    let system = builder().alone().start().unwrap();
    assert_eq!(world.drive(system.queue(echo.of(7)).await.unwrap().result()).await, Ok(7));
}

pub async fn two_systems_with_different_prefixes_do_not_meet_in_the_store(kind: Kind) {
    let world = World::new(kind).await;
    let echo = work("echo", |n: u32, _| async move { Ok(Outcome::Result(n)) });
    let mut backend = world.backend.clone();
    backend.queue = world.queue("other");
    let one = world.system().work(&echo).start().unwrap();
    let two = System::on(backend).clock(world.clock.clone()).prefix("other:").work(&echo).start().unwrap();
    let job = |system: &System, n| {
        let job = echo.of(n).options(Options::new().dedupe_key("same"));
        let system = system.clone();
        async move { system.queue(job).await.unwrap() }
    };
    let (a, b) = (job(&one, 1).await, job(&two, 2).await);
    assert_eq!(a.id(), b.id());
    assert_eq!(world.drive(a.result()).await, Ok(1));
    assert_eq!(world.drive(b.result()).await, Ok(2));
}

pub async fn what_cannot_work_is_said_at_the_start(kind: Kind) {
    let world = World::new(kind).await;
    let (a, b) = (
        work("same", |(): (), _| async { Ok(Outcome::Result(())) }),
        work("same", |(): (), _| async { Ok(Outcome::Result(())) }),
    );
    let error = world.system().work(&a).work(&b).start().unwrap_err();
    assert_eq!(error.to_string(), "two kinds of work are named \"same\"; give one of them another name");
    let error = world.system().visibility(Duration::ZERO).start().unwrap_err();
    assert!(matches!(error, Error::Configuration(_)));
}
