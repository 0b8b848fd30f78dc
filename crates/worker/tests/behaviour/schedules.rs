//! Schedules.

use crate::{BackendKind, Log, World};
use std::time::Duration;
use towline::{Clock, Event, Outcome, Schedule, Time, Work, work};

fn logging(log: &Log) -> Work<u64, ()> {
    let log = log.clone();
    work("tick", move |at: u64, _| {
        log.add(at.to_string());
        async { Ok(Outcome::Void) }
    })
}

pub async fn an_occurrence_runs_once_in_the_whole_fleet(kind: BackendKind) {
    let world = World::new(kind).await;
    let log = Log::default();
    let tick = logging(&log);
    let start = || {
        let tick = tick.clone();
        let schedule = Schedule::every("minutely", Duration::from_secs(60), move |at: Time| tick.of(at.0));
        world.system().work(&logging(&log)).schedule(schedule).start().unwrap()
    };
    let (one, two) = (start(), start());
    let began = world.clock.now().0;
    world.pass(600).await;
    let expected: Vec<String> = (1..=10).map(|n| (began + n * 60_000).to_string()).collect();
    assert_eq!(log.read(), expected);
    // The other system submits the occurrences after one has stopped.
    one.stop(Duration::ZERO).await;
    world.pass(60).await;
    assert_eq!(log.read().len(), 11);
    two.stop(Duration::ZERO).await;
    world.pass(60).await;
    assert_eq!(log.read().len(), 11);
    assert!(world.count(|event| matches!(event, Event::ScheduleFired { .. })) >= 11);
}

pub async fn a_schedule_by_function_ends_when_the_function_returns_none(kind: BackendKind) {
    let world = World::new(kind).await;
    let log = Log::default();
    let tick = logging(&log);
    let began = world.clock.now();
    let times = [7, 8, 90].map(|seconds| began.after(Duration::from_secs(seconds)));
    let schedule = Schedule::new("thrice", move |after| times.into_iter().find(|at| *at > after), {
        let tick = tick.clone();
        move |at: Time| tick.of(at.0)
    });
    let _system = world.system().work(&tick).schedule(schedule).start().unwrap();
    world.pass(300).await;
    assert_eq!(log.read(), times.map(|at| at.0.to_string()));
}

pub async fn a_cron_schedule_uses_its_time_zone(kind: BackendKind) {
    let world = World::new(kind).await;
    let log = Log::default();
    let tick = logging(&log);
    let job = |tick: &Work<u64, ()>| {
        let tick = tick.clone();
        move |at: Time| tick.of(at.0)
    };
    // The clock starts at 2027-01-15 08:00 UTC, a Friday.
    let at = |text: &str| Time::from(text.parse::<jiff::Timestamp>().unwrap()).0.to_string();
    let daily = Schedule::cron("daily", "30 9 * * *", "Europe/Zurich", job(&tick)).unwrap();
    let system = world.system().work(&tick).schedule(daily).start().unwrap();
    for _ in 0..3 {
        // In one step to a minute before the occurrence.
        let day = Duration::from_secs(24 * 3600);
        let next = (world.clock.now().0 / 86_400_000) * 86_400_000 + (8 * 3600 + 29 * 60) * 1000;
        let next = Time(next);
        world.clock.advance_to(if next > world.clock.now() { next } else { next.after(day) });
        world.pass(120).await;
    }
    system.stop(Duration::ZERO).await;
    assert_eq!(
        log.read(),
        [at("2027-01-15T08:30:00Z"), at("2027-01-16T08:30:00Z"), at("2027-01-17T08:30:00Z")]
    );
    for (expression, zone) in [("61 * * * *", "UTC"), ("* * *", "UTC"), ("* * * * *", "Middle/Earth")] {
        Schedule::cron("wrong", expression, zone, job(&tick)).unwrap_err();
    }
    // A step without a range is refused, not read as a single minute. Day 7 is Sunday.
    let error = Schedule::cron("wrong", "5/15 * * * *", "UTC", job(&tick)).unwrap_err().to_string();
    assert!(error.contains("5/15"), "{error}");
    for (expression, hours) in [("5-59/15 * * * *", 1), ("0 0 * * 7", 0)] {
        let log = Log::default();
        let tick = logging(&log);
        let schedule = Schedule::cron(expression, expression, "UTC", job(&tick)).unwrap();
        let world = World::new(kind).await;
        let _system = world.system().work(&tick).schedule(schedule).start().unwrap();
        world.pass(3600).await;
        assert_eq!(log.read().len(), hours * 4, "{expression}");
    }
}
