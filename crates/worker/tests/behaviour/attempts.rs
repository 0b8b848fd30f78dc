//! Attempts of one piece of work: results, retries, defers, failures.

use crate::{BackendKind, Log, World};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use towline::{Clock, Context, Error, Event, Failure, Options, Outcome, Retry, Trace, work};

const SECOND: Duration = Duration::from_secs(1);

pub async fn a_result_is_returned_to_the_submitter(kind: BackendKind) {
    let world = World::new(kind).await;
    let add = work("add", |(a, b): (u32, u32), _| async move { Ok(Outcome::Result(a + b)) });
    let system = world.system().work(&add).start().unwrap();
    let handle = system.submit(add.of((1, 2))).await.unwrap();
    assert_eq!(world.drive(handle.result()).await, Ok(3));
    assert_eq!(world.depth().await, 0);
    let stats = system.stats();
    assert_eq!((stats.submitted, stats.started, stats.completed, stats.failed), (1, 1, 1, 0));
}

pub async fn a_failed_attempt_is_retried_after_growing_pauses(kind: BackendKind) {
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
    let handle = system.submit(flaky.of(())).await.unwrap();
    let error = world.drive(handle.result()).await.unwrap_err();
    assert_eq!(log.read(), ["1 after 0ns", "2 after 1s", "3 after 3s", "4 after 7s"]);
    assert!(matches!(&error, Error::Failed { error, .. } if error.contains("invalid digit")), "{error}");
    let dead = world.dead_letters().await;
    assert_eq!(dead.len(), 1);
    assert!(dead[0].error.contains("invalid digit"));
    assert_eq!(world.depth().await, 0);
}

pub async fn a_fail_is_final_and_a_panic_is_retried(kind: BackendKind) {
    let world = World::new(kind).await;
    let aborts = work("aborts", |(): (), _| async { Err::<Outcome<()>, _>(Failure::fail("never")) });
    let panics = work("panics", |(): (), context: Context| async move {
        assert!(context.attempt() == 2, "not at first");
        Ok(Outcome::Result(context.attempt()))
    });
    let system = world.system().work(&aborts).work(&panics).start().unwrap();
    let error = world.drive(async { system.submit(aborts.of(())).await?.result().await }).await.unwrap_err();
    assert_eq!(error.to_string(), format!("aborts {} failed: never", failed_id(&error)));
    assert_eq!(world.count(|event| matches!(event, Event::Retried { .. })), 0);
    let second = world.drive(async { system.submit(panics.of(())).await?.result().await }).await;
    assert_eq!(second, Ok(2));
    let is_panic = |event: &Event| matches!(event, Event::Retried { error, .. } if error.contains("panicked: not at first"));
    assert_eq!(world.count(is_panic), 1);
}

fn failed_id(error: &Error) -> String {
    match error {
        Error::Failed { id, .. } => id.clone(),
        other => panic!("{other}"),
    }
}

pub async fn a_defer_is_not_an_attempt(kind: BackendKind) {
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
    let handle = system.submit(patient.of(())).await.unwrap();
    assert_eq!(world.drive(handle.result()).await, Ok(1));
    assert_eq!(world.count(|event| matches!(event, Event::Deferred { .. })), 6);
}

pub async fn a_handler_chooses_the_next_start_and_knows_its_last_attempt(kind: BackendKind) {
    let world = World::new(kind).await;
    let (log, clock) = (Log::default(), world.clock.clone());
    let began = clock.now();
    let fails = {
        let log = log.clone();
        work("fails", move |(): (), context: Context| {
            let (now, last) = (clock.now(), context.is_last_attempt());
            // The poll interval is five seconds.
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
    let handle = system.submit(fails.of(()).options(Options::new().retry(retry))).await.unwrap();
    world.drive(handle.result()).await.unwrap_err();
    assert_eq!(log.read(), ["1 after 0", "1 after 100", "2 after 142, the last"]);
}

pub async fn an_item_delivered_early_is_deferred_until_it_is_due(kind: BackendKind) {
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
    .queue(world.queue_with_delay_max("capped", SECOND * 45));
    let system = world.system().work(&when).start().unwrap();
    let handle = system.submit(when.of(()).options(Options::new().delay(SECOND * 120))).await.unwrap();
    let ran = world.drive(handle.result()).await.unwrap();
    assert!(ran >= SECOND * 300 && ran < SECOND * 330, "{ran:?}");
    // Each delay of 120 s is cut to 45 s and deferred twice. The last delay of 60 s is deferred once.
    assert_eq!(world.count(|event| matches!(event, Event::Declined { reason: "not due", .. })), 5);
    assert_eq!(system.stats().started, 3);
}

pub async fn a_context_reports_when_its_attempt_is_over(kind: BackendKind) {
    let world = World::new(kind).await;
    let log = Log::default();
    let begins = {
        let (log, clock) = (log.clone(), world.clock.clone());
        work("begins", move |name: String, context: Context| {
            let (log, spawned, clock) = (log.clone(), context.clone(), clock.clone());
            tokio::spawn(async move {
                assert!(!spawned.is_cancelled());
                spawned.cancelled().await;
                log.add(format!("{name}: {}", spawned.is_cancelled()));
            });
            async move {
                clock.sleep_until(clock.now().after(SECOND * 20)).await;
                Ok(Outcome::Result(context.is_cancelled()))
            }
        })
    };
    let system = world.system().work(&begins).start().unwrap();
    let once = Options::new().retry(Retry::never());
    let ends = system.submit(begins.of("ended".to_owned())).await.unwrap();
    assert_eq!(world.drive(ends.result()).await, Ok(false));
    let late = begins.of("timed out".to_owned()).options(once.clone().timeout(SECOND * 5));
    world.drive(system.submit(late).await.unwrap().result()).await.unwrap_err();
    system.submit(begins.of("stopped".to_owned()).options(once)).await.unwrap();
    world.pass(5).await;
    assert!(!world.drive(system.stop(SECOND)).await);
    world.quiet().await;
    assert_eq!(log.read(), ["ended: true", "timed out: true", "stopped: true"]);
}

pub async fn delayed_work_runs_at_its_time(kind: BackendKind) {
    let world = World::new(kind).await;
    let (clock, began) = (world.clock.clone(), world.clock.now());
    let when = work("when", move |(): (), _| {
        let at = clock.now().since(began);
        async move { Ok(Outcome::Result(at)) }
    });
    let system = world.system().work(&when).start().unwrap();
    let day = Duration::from_secs(24 * 3600);
    let later = system.submit(when.of(()).options(Options::new().delay(SECOND * 90))).await.unwrap();
    let far = system.submit(when.of(()).options(Options::new().run_at(began.after(day * 30)))).await.unwrap();
    assert_eq!(world.drive(later.result()).await, Ok(SECOND * 90));
    world.pass(10).await;
    world.clock.advance_to(began.after(day * 30 - SECOND));
    assert_eq!(world.drive(far.result()).await, Ok(day * 30));
}

pub async fn a_timeout_limits_an_attempt_and_a_deadline_limits_the_work(kind: BackendKind) {
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
    // It runs longer than the visibility timeout, so its lease must be renewed.
    assert_eq!(world.drive(async { system.submit(slow.of(100)).await?.result().await }).await, Ok(100));
    let timed = slow.of(100).options(Options::new().timeout(SECOND * 40).retry(Retry::attempts(2)));
    let error = world.drive(async { system.submit(timed).await?.result().await }).await.unwrap_err();
    assert!(error.to_string().ends_with("the attempt took longer than 40s"), "{error}");
    assert_eq!(world.count(|event| matches!(event, Event::Retried { .. })), 1);
    let late = slow.of(5).options(Options::new().delay(SECOND * 60).deadline(SECOND * 30));
    let error = world.drive(async { system.submit(late).await?.result().await }).await.unwrap_err();
    assert!(error.to_string().ends_with("the deadline passed before the work ran"), "{error}");
    // A redriven dead letter has no deadline any more.
    assert_eq!(system.redrive(10).await, Ok(2));
    let before = system.stats().completed;
    world.pass(200).await;
    assert_eq!(system.stats().completed, before + 1, "{:?}", world.events);
}

pub async fn work_that_kills_its_workers_fails_after_its_attempts(kind: BackendKind) {
    let world = World::new(kind).await;
    let deadly = work("deadly", |(): (), _| std::future::pending::<Result<Outcome<()>, Failure>>());
    // Each system is stopped in the middle of the attempt, like a worker that dies.
    let started = |world: &World| world.count(|event| matches!(event, Event::Started { .. }));
    let submitter = world.system().start().unwrap();
    let handle = submitter.submit(deadly.of(())).await.unwrap();
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
    assert!(error.to_string().contains("all 3 attempts ended without an outcome"), "{error}");
    assert_eq!(started(&world), 3);
    assert_eq!(world.dead_letters().await.len(), 1);
}

pub async fn options_of_the_job_override_those_of_the_kind(kind: BackendKind) {
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
        let handle = system.submit(job).await.unwrap();
        world.drive(handle.done()).await.unwrap_err();
    }
    assert_eq!(log.read(), ["two", "two", "three", "three", "three", "three"]);
}

pub async fn both_submitters_of_one_idempotency_key_get_the_result(kind: BackendKind) {
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
    let keyed = |amount| charge.of(amount).options(Options::new().idempotency_key("order 7"));
    let (first, second) = (system.submit(keyed(10)).await.unwrap(), system.submit(keyed(10)).await.unwrap());
    assert_eq!(world.drive(first.result()).await, Ok(10));
    assert_eq!(world.drive(second.result()).await, Ok(10));
    world.drive(second.group_done()).await.unwrap();
    assert_eq!(log.read(), ["10"]);
}

pub async fn work_that_skips_the_queue_is_retried_through_the_queue(kind: BackendKind) {
    let world = World::new(kind).await;
    let log = Log::default();
    // The first attempt runs until the test has seen that the queue is empty.
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
    let handle = system.submit(local.of(()).options(Options::new().skip_queue(true))).await.unwrap();
    assert_eq!(world.depth().await, 0);
    gate.add_permits(1);
    assert_eq!(world.drive(handle.result()).await.as_deref(), Ok("done"));
    assert_eq!(log.read().len(), 2);
}

pub async fn a_trace_is_inherited_by_retries_and_children(kind: BackendKind) {
    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    const OTHER: &str = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01";
    let trace = |parent: &str, state: Option<&str>| Trace {
        parent: parent.parse().unwrap(),
        state: state.map(|state| state.parse().unwrap()),
    };
    let world = World::new(kind).await;
    let log = Log::default();
    let log_trace = |log: &Log, context: &Context| {
        let trace = context.trace().map(|trace| (trace.parent.to_string(), trace.state.clone()));
        log.add(format!("{} {} {trace:?}", context.kind(), context.attempt()));
    };
    let child = {
        let log = log.clone();
        work("child", move |(): (), context: Context| {
            log_trace(&log, &context);
            async { Ok(Outcome::<()>::Void) }
        })
    };
    let root = {
        let (log, child) = (log.clone(), child.clone());
        work("root", move |(): (), context: Context| {
            log_trace(&log, &context);
            let own = child.of(()).options(Options::new().trace(trace(OTHER, None)));
            let (first, children) = (context.attempt() == 1, [child.of(()), own]);
            async move { if first { Err(Failure::retry("again")) } else { Ok(Outcome::<()>::submit(children)) } }
        })
    };
    let system = world.system().work(&root).work(&child).start().unwrap();
    let traced = root.of(()).options(Options::new().trace(trace(PARENT, Some("vendor=1"))));
    let handle = system.submit(traced).await.unwrap();
    world.drive(handle.group_done()).await.unwrap();
    let handle = system.submit(child.of(())).await.unwrap();
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
