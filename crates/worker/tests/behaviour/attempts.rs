//! One piece of work: results, retries, deferral, giving up.

use crate::{Kind, Log, World};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use towline::{Clock, Context, Error, Event, Failure, Options, Outcome, Retry, Trace, work};

const SECOND: Duration = Duration::from_secs(1);

pub async fn a_result_comes_back(kind: Kind) {
    let world = World::new(kind).await;
    let add = work("add", |(a, b): (u32, u32), _| async move { Ok(Outcome::Result(a + b)) });
    let system = world.system().work(&add).start().unwrap();
    let handle = system.queue(add.of((1, 2))).await.unwrap();
    assert_eq!(world.drive(handle.result()).await, Ok(3));
    assert_eq!(world.waiting().await, 0);
    let stats = system.stats();
    assert_eq!((stats.queued, stats.started, stats.completed, stats.failed), (1, 1, 1, 0));
}

pub async fn a_failure_is_tried_again_after_a_pause_that_grows(kind: Kind) {
    let world = World::new(kind).await;
    let (log, clock) = (Log::default(), world.clock.clone());
    let began = clock.now();
    let flaky = {
        let log = log.clone();
        work("flaky", move |(): (), context: Context| {
            log.add(format!("{} after {:?}", context.attempt(), clock.now().since(began)));
            async move {
                let _: u32 = "not a number".parse()?;
                Ok(Outcome::<u32>::Void)
            }
        })
    };
    let retry = Retry { attempts: 4, jitter: 0.0, ..Retry::default() };
    let system = world.system().work(&flaky).defaults(Options::new().retry(retry)).start().unwrap();
    let handle = system.queue(flaky.of(())).await.unwrap();
    let error = world.drive(handle.result()).await.unwrap_err();
    assert_eq!(log.read(), ["1 after 0ns", "2 after 1s", "3 after 3s", "4 after 7s"]);
    assert!(matches!(&error, Error::Failed { error, .. } if error.contains("invalid digit")), "{error}");
    let dead = world.letters().await;
    assert_eq!(dead.len(), 1);
    assert!(dead[0].error.contains("invalid digit"));
    assert_eq!(world.waiting().await, 0);
}

pub async fn an_abort_is_final_and_a_panic_is_not(kind: Kind) {
    let world = World::new(kind).await;
    let aborts = work("aborts", |(): (), _| async { Err::<Outcome<()>, _>(Failure::abort("never")) });
    let panics = work("panics", |(): (), context: Context| async move {
        assert!(context.attempt() == 2, "not at first");
        Ok(Outcome::Result(context.attempt()))
    });
    let system = world.system().work(&aborts).work(&panics).start().unwrap();
    let error = world.drive(async { system.queue(aborts.of(())).await?.result().await }).await.unwrap_err();
    assert_eq!(error.to_string(), format!("aborts {} failed: never", failed_id(&error)));
    assert_eq!(world.count(|event| matches!(event, Event::Retried { .. })), 0);
    let second = world.drive(async { system.queue(panics.of(())).await?.result().await }).await;
    assert_eq!(second, Ok(2));
    let told = |event: &Event| matches!(event, Event::Retried { error, .. } if error.contains("panicked: not at first"));
    assert_eq!(world.count(told), 1);
}

fn failed_id(error: &Error) -> String {
    match error {
        Error::Failed { id, .. } => id.clone(),
        other => panic!("{other}"),
    }
}

pub async fn a_deferral_is_no_attempt(kind: Kind) {
    let world = World::new(kind).await;
    let (clock, began) = (world.clock.clone(), world.clock.now());
    let patient = work("patient", move |(): (), context: Context| {
        let waited = clock.now().since(began);
        async move {
            if waited < Duration::from_secs(360) {
                return Err(Failure::defer(Duration::from_secs(60)));
            }
            Ok(Outcome::Result(context.attempt()))
        }
    });
    let system = world.system().work(&patient).start().unwrap();
    let handle = system.queue(patient.of(())).await.unwrap();
    assert_eq!(world.drive(handle.result()).await, Ok(1));
    assert_eq!(world.count(|event| matches!(event, Event::Deferred { .. })), 6);
}

pub async fn who_fails_or_defers_says_until_when_and_knows_its_last_attempt(kind: Kind) {
    let world = World::new(kind).await;
    let (log, clock) = (Log::default(), world.clock.clone());
    let began = clock.now();
    let fails = {
        let log = log.clone();
        work("fails", move |(): (), context: Context| {
            let (now, last) = (clock.now(), context.is_last_attempt());
            // A queue is looked at every five seconds.
            let at = match now.since(began).as_secs() {
                100..106 => 100,
                142..154 => 142,
                other => other,
            };
            log.add(format!("{} after {at}{}", context.attempt(), if last { ", the last" } else { "" }));
            async move {
                match context.attempt() {
                    1 if now == began => Err(Failure::defer_until(began.after(SECOND * 100))),
                    1 => Err(Failure::retry_after("later", SECOND * 42)),
                    _ => Err::<Outcome<()>, _>(Failure::retry_after("never", SECOND)),
                }
            }
        })
    };
    let retry = Retry { attempts: 2, base: SECOND * 500, ..Retry::default() };
    let system = world.system().work(&fails).start().unwrap();
    let handle = system.queue(fails.of(()).options(Options::new().retry(retry))).await.unwrap();
    world.drive(handle.result()).await.unwrap_err();
    assert_eq!(log.read(), ["1 after 0", "1 after 100", "2 after 142, the last"]);
}

pub async fn what_comes_early_is_put_back_until_it_is_due(kind: Kind) {
    let world = World::new(kind).await;
    let (clock, began) = (world.clock.clone(), world.clock.now());
    let when = work("when", move |(): (), context: Context| {
        let now = clock.now();
        async move {
            match context.attempt() {
                1 if now.since(began) < SECOND * 150 => Err(Failure::defer(SECOND * 120)),
                1 => Err(Failure::retry_after("once more", SECOND * 60)),
                _ => Ok(Outcome::Result(now.since(began))),
            }
        }
    })
    .queue(world.queue_that_delays("capped", SECOND * 45));
    let system = world.system().work(&when).start().unwrap();
    let handle = system.queue(when.of(()).options(Options::new().delay(SECOND * 120))).await.unwrap();
    let ran = world.drive(handle.result()).await.unwrap();
    assert!(ran >= SECOND * 300 && ran < SECOND * 330, "{ran:?}");
    // Two of each two minutes, and one of the last.
    assert_eq!(world.count(|event| matches!(event, Event::PutBack { why: "not due", .. })), 5);
    assert_eq!(system.stats().started, 3);
}

pub async fn what_a_handler_began_is_told_when_its_answer_is_not_taken_any_more(kind: Kind) {
    let world = World::new(kind).await;
    let log = Log::default();
    let begins = {
        let (log, clock) = (log.clone(), world.clock.clone());
        work("begins", move |name: String, context: Context| {
            let (log, told, clock) = (log.clone(), context.clone(), clock.clone());
            tokio::spawn(async move {
                assert!(!told.is_cancelled());
                told.cancelled().await;
                log.add(format!("{name}: {}", told.is_cancelled()));
            });
            async move {
                clock.sleep_until(clock.now().after(SECOND * 20)).await;
                Ok(Outcome::Result(context.is_cancelled()))
            }
        })
    };
    let system = world.system().work(&begins).start().unwrap();
    let once = Options::new().retry(Retry::never());
    let ends = system.queue(begins.of("ended".to_owned())).await.unwrap();
    assert_eq!(world.drive(ends.result()).await, Ok(false));
    let late = begins.of("timed out".to_owned()).options(once.clone().timeout(SECOND * 5));
    world.drive(system.queue(late).await.unwrap().result()).await.unwrap_err();
    system.queue(begins.of("stopped".to_owned()).options(once)).await.unwrap();
    world.pass(5).await;
    assert!(!world.drive(system.stop(SECOND)).await);
    world.quiet().await;
    assert_eq!(log.read(), ["ended: true", "timed out: true", "stopped: true"]);
}

pub async fn what_is_to_run_later_runs_then(kind: Kind) {
    let world = World::new(kind).await;
    let (clock, began) = (world.clock.clone(), world.clock.now());
    let when = work("when", move |(): (), _| {
        let at = clock.now().since(began);
        async move { Ok(Outcome::Result(at)) }
    });
    let system = world.system().work(&when).start().unwrap();
    let day = Duration::from_secs(24 * 3600);
    let later = system.queue(when.of(()).options(Options::new().delay(SECOND * 90))).await.unwrap();
    let far = system.queue(when.of(()).options(Options::new().run_at(began.after(day * 30)))).await.unwrap();
    assert_eq!(world.drive(later.result()).await, Ok(SECOND * 90));
    world.pass(10).await;
    world.clock.advance_to(began.after(day * 30 - SECOND));
    assert_eq!(world.drive(far.result()).await, Ok(day * 30));
}

pub async fn an_attempt_and_the_whole_have_their_time(kind: Kind) {
    let world = World::new(kind).await;
    let slow = {
        let clock = world.clock.clone();
        work("slow", move |seconds: u64, _| {
            let slept = clock.sleep_until(clock.now().after(SECOND * u32::try_from(seconds).unwrap()));
            async move {
                slept.await;
                Ok(Outcome::Result(seconds))
            }
        })
    };
    let system = world.system().work(&slow).start().unwrap();
    // Longer than a lease: it is kept.
    assert_eq!(world.drive(async { system.queue(slow.of(100)).await?.result().await }).await, Ok(100));
    let timed = slow.of(100).options(Options::new().timeout(SECOND * 40).retry(Retry::attempts(2)));
    let error = world.drive(async { system.queue(timed).await?.result().await }).await.unwrap_err();
    assert!(error.to_string().ends_with("it took longer than 40s"), "{error}");
    assert_eq!(world.count(|event| matches!(event, Event::Retried { .. })), 1);
    let late = slow.of(5).options(Options::new().delay(SECOND * 60).deadline(SECOND * 30));
    let error = world.drive(async { system.queue(late).await?.result().await }).await.unwrap_err();
    assert!(error.to_string().ends_with("its deadline passed before it ran"), "{error}");
    // A dead letter that is redriven is not dead again at once.
    assert_eq!(system.redrive(10).await, Ok(2));
    let before = system.stats().completed;
    world.pass(200).await;
    assert_eq!(system.stats().completed, before + 1, "{:?}", world.events);
}

pub async fn what_its_workers_do_not_survive_ends(kind: Kind) {
    let world = World::new(kind).await;
    let deadly = work("deadly", |(): (), _| std::future::pending::<Result<Outcome<()>, Failure>>());
    // Nobody is there to answer, attempt after attempt.
    let started = |world: &World| world.count(|event| matches!(event, Event::Started { .. }));
    let queued = world.system().start().unwrap();
    let handle = queued.queue(deadly.of(())).await.unwrap();
    for n in 1..=3 {
        let doomed = world.system().work(&deadly).start().unwrap();
        while started(&world) < n {
            world.pass(1).await;
        }
        assert!(!doomed.stop(Duration::ZERO).await);
        world.pass(40).await;
    }
    let _last = world.system().work(&deadly).start().unwrap();
    let error = world.drive(handle.result()).await.unwrap_err();
    assert!(error.to_string().contains("all 3 attempts ended without a word"), "{error}");
    assert_eq!(started(&world), 3);
    assert_eq!(world.letters().await.len(), 1);
}

pub async fn what_is_said_when_it_is_queued_wins(kind: Kind) {
    let world = World::new(kind).await;
    let log = Log::default();
    let fails = {
        let log = log.clone();
        work("fails", move |input: String, _| {
            log.add(input);
            async { Err::<Outcome<()>, _>(Failure::retry("no")) }
        })
    };
    let fails =
        fails.options(Options::new().retry(Retry::attempts(2))).options_by_input(
            |input: &String| match input.as_str() {
                "three" => Options::new().retry(Retry::attempts(3)),
                _ => Options::new(),
            },
        );
    let system =
        world.system().work(&fails).defaults(Options::new().retry(Retry::attempts(9))).start().unwrap();
    for job in [
        fails.of("two".to_owned()),
        fails.of("three".to_owned()),
        fails.of("three".to_owned()).options(Options::new().retry(Retry::never())),
    ] {
        let handle = system.queue(job).await.unwrap();
        world.drive(handle.done()).await.unwrap_err();
    }
    assert_eq!(log.read(), ["two", "two", "three", "three", "three", "three"]);
}

pub async fn a_key_is_queued_once_and_both_who_queued_it_get_the_result(kind: Kind) {
    let world = World::new(kind).await;
    let log = Log::default();
    let charge = {
        let log = log.clone();
        work("charge", move |amount: u32, _| {
            log.add(amount.to_string());
            async move { Ok(Outcome::Result(amount)) }
        })
    };
    let system = world.system().work(&charge).start().unwrap();
    let keyed = |amount| charge.of(amount).options(Options::new().dedupe_key("order 7"));
    let (first, second) = (system.queue(keyed(10)).await.unwrap(), system.queue(keyed(10)).await.unwrap());
    assert_eq!(world.drive(first.result()).await, Ok(10));
    assert_eq!(world.drive(second.result()).await, Ok(10));
    world.drive(second.group_done()).await.unwrap();
    assert_eq!(log.read(), ["10"]);
}

pub async fn what_skips_the_queue_runs_here_and_is_queued_when_it_fails(kind: Kind) {
    let world = World::new(kind).await;
    let log = Log::default();
    // The first attempt lasts until it was seen that nothing waits.
    let gate = Arc::new(Semaphore::new(0));
    let local = {
        let (log, gate) = (log.clone(), Arc::clone(&gate));
        work("local", move |(): (), context: Context| {
            log.add(context.attempt().to_string());
            let first = log.read().len() == 1;
            let gate = Arc::clone(&gate);
            async move {
                if first {
                    let _open = gate.acquire().await;
                    return Err(Failure::retry("not at first"));
                }
                Ok(Outcome::Result("done".to_owned()))
            }
        })
    };
    let system = world.system().work(&local).start().unwrap();
    let handle = system.queue(local.of(()).options(Options::new().skip_queue(true))).await.unwrap();
    assert_eq!(world.waiting().await, 0);
    gate.add_permits(1);
    assert_eq!(world.drive(handle.result()).await.as_deref(), Ok("done"));
    assert_eq!(log.read().len(), 2);
}

pub async fn a_trace_goes_on_with_work_and_what_comes_of_it(kind: Kind) {
    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    const OTHER: &str = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01";
    let trace = |parent: &str, state: Option<&str>| Trace {
        parent: parent.parse().unwrap(),
        state: state.map(|state| state.parse().unwrap()),
    };
    let world = World::new(kind).await;
    let log = Log::default();
    let told = |log: &Log, context: &Context| {
        let trace = context.trace().map(|trace| (trace.parent.to_string(), trace.state.clone()));
        log.add(format!("{} {} {trace:?}", context.kind(), context.attempt()));
    };
    let child = {
        let log = log.clone();
        work("child", move |(): (), context: Context| {
            told(&log, &context);
            async { Ok(Outcome::<()>::Void) }
        })
    };
    let root = {
        let (log, child) = (log.clone(), child.clone());
        work("root", move |(): (), context: Context| {
            told(&log, &context);
            let own = child.of(()).options(Options::new().trace(trace(OTHER, None)));
            let (first, children) = (context.attempt() == 1, [child.of(()), own]);
            async move { if first { Err(Failure::retry("again")) } else { Ok(Outcome::<()>::queue(children)) } }
        })
    };
    let system = world.system().work(&root).work(&child).start().unwrap();
    let traced = root.of(()).options(Options::new().trace(trace(PARENT, Some("vendor=1"))));
    let handle = system.queue(traced).await.unwrap();
    world.drive(handle.group_done()).await.unwrap();
    let handle = system.queue(child.of(())).await.unwrap();
    world.drive(handle.done()).await.unwrap();
    let mut log = log.read();
    log[2..4].sort();
    let own = format!("Some(({PARENT:?}, Some(TraceState(\"vendor=1\"))))");
    let expected = [
        format!("root 1 {own}"),
        format!("root 2 {own}"),
        format!("child 1 Some(({OTHER:?}, None))"),
        format!("child 1 {own}"),
        "child 1 None".to_owned(),
    ];
    assert_eq!(log, expected);
}
