//! Work by the calendar.

use crate::{Kind, Log, World};
use std::time::Duration;
use towline::{Clock, Event, Outcome, Schedule, Time, Work, work};

fn noted(log: &Log) -> Work<u64, ()> {
    let log = log.clone();
    work("tick", move |at: u64, _| {
        log.add(at.to_string());
        async { Ok(Outcome::Void) }
    })
}

pub async fn an_occurrence_is_done_once_in_the_whole_fleet(kind: Kind) {
    let world = World::new(kind).await;
    let log = Log::default();
    let tick = noted(&log);
    let start = || {
        let tick = tick.clone();
        let schedule = Schedule::every("minutely", Duration::from_secs(60), move |at: Time| tick.of(at.0));
        world.system().work(&noted(&log)).schedule(schedule).start().unwrap()
    };
    let (one, two) = (start(), start());
    let began = world.clock.now().0;
    world.pass(600).await;
    let expected: Vec<String> = (1..=10).map(|n| (began + n * 60_000).to_string()).collect();
    assert_eq!(log.read(), expected);
    // One that dies is not missed.
    one.stop(Duration::ZERO).await;
    world.pass(60).await;
    assert_eq!(log.read().len(), 11);
    two.stop(Duration::ZERO).await;
    world.pass(60).await;
    assert_eq!(log.read().len(), 11);
    assert!(world.count(|event| matches!(event, Event::Fired { .. })) >= 11);
}

pub async fn as_a_function_says_until_it_says_never(kind: Kind) {
    let world = World::new(kind).await;
    let log = Log::default();
    let tick = noted(&log);
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

pub async fn by_cron_and_in_a_time_zone(kind: Kind) {
    let world = World::new(kind).await;
    let log = Log::default();
    let tick = noted(&log);
    let job = |tick: &Work<u64, ()>| {
        let tick = tick.clone();
        move |at: Time| tick.of(at.0)
    };
    // The clock stands at 2027-01-15 08:00 UTC, a Friday.
    let at = |text: &str| Time::from(text.parse::<jiff::Timestamp>().unwrap()).0.to_string();
    let daily = Schedule::cron("daily", "30 9 * * *", "Europe/Zurich", job(&tick)).unwrap();
    let system = world.system().work(&tick).schedule(daily).start().unwrap();
    for _ in 0..3 {
        // To a minute before, in one go.
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
    // A step without a range is said to be wrong, not read as one minute; Sunday is 7 as well.
    let error = Schedule::cron("wrong", "5/15 * * * *", "UTC", job(&tick)).unwrap_err().to_string();
    assert!(error.contains("5/15"), "{error}");
    for (expression, hours) in [("5-59/15 * * * *", 1), ("0 0 * * 7", 0)] {
        let log = Log::default();
        let tick = noted(&log);
        let schedule = Schedule::cron(expression, expression, "UTC", job(&tick)).unwrap();
        let world = World::new(kind).await;
        let _system = world.system().work(&tick).schedule(schedule).start().unwrap();
        world.pass(3600).await;
        assert_eq!(log.read().len(), hours * 4, "{expression}");
    }
}
