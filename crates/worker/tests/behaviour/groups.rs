//! Groups: a piece of work and everything that comes of it.

use crate::{BackendKind, Log, World};
use futures::FutureExt;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use towline::{Clock, Condition, Context, Error, Event, Failure, Outcome, remote, work};

pub async fn a_group_ends_with_the_last_of_its_descendants(kind: BackendKind) {
    let world = World::new(kind).await;
    let leaf = work("leaf", |n: u32, _| async move { Ok(Outcome::Append(n)) });
    let branch = {
        let leaf = leaf.clone();
        work("branch", move |n: u32, _| {
            let leaf = leaf.clone();
            async move { Ok(Outcome::<()>::submit((0..3).map(|m| leaf.of(n * 10 + m)))) }
        })
    };
    let root = {
        let branch = branch.clone();
        work("root", move |(): (), _| {
            let branch = branch.clone();
            async move { Ok(Outcome::<()>::submit((1..=3).map(|n| branch.of(n)))) }
        })
    };
    let system = world.system().work(&leaf).work(&branch).work(&root).start().unwrap();
    let handle = system.submit(root.of(())).await.unwrap();
    let mut all: Vec<u32> = world.drive(handle.group_all()).await.unwrap();
    all.sort_unstable();
    assert_eq!(all, [10, 11, 12, 20, 21, 22, 30, 31, 32]);
    assert_eq!(world.count(|event| matches!(event, Event::GroupDone { .. })), 1);
    assert_eq!(handle.result().await, Err(Error::NoResult { id: handle.id().to_owned() }));
    handle.done().await.unwrap();
}

/// In memory only: on other backends the clock would advance while the message is on its way.
#[tokio::test]
async fn a_waiter_for_the_group_of_a_lone_root_is_woken() {
    let world = World::new(BackendKind::Memory).await;
    let (start, waiting) = tokio::sync::watch::channel(false);
    let alone = work("alone", move |(): (), _| {
        let mut waiting = waiting.clone();
        async move {
            drop(waiting.wait_for(|started| *started).await);
            Ok(Outcome::Result(7))
        }
    });
    let system = world.system().work(&alone).start().unwrap();
    let handle = system.submit(alone.of(())).await.unwrap();
    let mut waits = pin!(handle.group::<u32>());
    assert!(waits.as_mut().now_or_never().is_none());
    world.quiet().await;
    let began = world.clock.now();
    start.send_replace(true);
    assert_eq!(world.drive(waits).await, Ok(Some(7)));
    assert_eq!(world.clock.now(), began, "the message woke the waiter, not the timer");
}

pub async fn fan_out_and_fan_in(kind: BackendKind) {
    let world = World::new(kind).await;
    let square = work("square", |n: u64, _| async move { Ok(Outcome::Append(n * n)) });
    let sum = work("sum", |(): (), context: Context| async move {
        Ok(Outcome::Result(format!("all of {} are there", context.parent().is_some())))
    });
    let start = {
        let (square, sum) = (square.clone(), sum.clone());
        work("start", move |n: u64, _| {
            let (square, sum) = (square.clone(), sum.clone());
            async move {
                Ok(Outcome::<()>::submit_then(
                    (1..=n).map(|n| square.of(n)),
                    Condition::AllSuccess,
                    sum.of(()),
                ))
            }
        })
    };
    let system = world.system().work(&square).work(&sum).work(&start).start().unwrap();
    let handle = system.submit(start.of(20)).await.unwrap();
    let result: Option<String> = world.drive(handle.group()).await.unwrap();
    assert_eq!(result.as_deref(), Some("all of true are there"));
    let all: Vec<u64> = handle.group_all().await.unwrap();
    assert_eq!(all.iter().sum::<u64>(), 2870);
}

pub async fn the_next_job_runs_or_fails_by_its_condition(kind: BackendKind) {
    let world = World::new(kind).await;
    let log = Log::default();
    let child = work("child", |succeeds: bool, _| async move {
        if succeeds { Ok(Outcome::Result(1)) } else { Err(Failure::fail("no")) }
    });
    let next = {
        let log = log.clone();
        work("next", move |name: String, _| {
            log.add(name);
            async { Ok(Outcome::<()>::Void) }
        })
    };
    let parent = {
        let (child, next) = (child.clone(), next.clone());
        work("parent", move |(name, when, children): (String, Condition, Vec<bool>), _| {
            let (child, next) = (child.clone(), next.clone());
            async move {
                Ok(Outcome::<()>::submit_then(
                    children.into_iter().map(|succeeds| child.of(succeeds)),
                    when,
                    next.of(name),
                ))
            }
        })
    };
    let system = world.system().work(&child).work(&next).work(&parent).start().unwrap();
    for (name, when, children) in [
        ("done: yes", Condition::AllDone, vec![true, false, false]),
        ("success: no", Condition::AllSuccess, vec![true, false]),
        ("success: yes", Condition::AllSuccess, vec![true, true]),
        ("two of three: yes", Condition::CountOf(2), vec![true, false, true]),
        ("two of three: no", Condition::CountOf(2), vec![true, false, false]),
        ("none: yes", Condition::AllSuccess, vec![]),
    ] {
        let handle = system.submit(parent.of((name.to_owned(), when, children))).await.unwrap();
        world.drive(handle.group_done()).await.unwrap();
    }
    assert_eq!(log.read(), ["done: yes", "success: yes", "two of three: yes", "none: yes"]);
}

pub async fn an_orphaned_group_is_reported_once_in_the_fleet(kind: BackendKind) {
    let world = World::new(kind).await;
    let echo = work("echo", |text: String, _| async move { Ok(Outcome::Result(text)) });
    let orphans: Arc<Mutex<Vec<String>>> = Arc::default();
    let start = || {
        let orphans = Arc::clone(&orphans);
        let on_orphan =
            move |group: towline::OrphanedGroup| orphans.lock().unwrap().push(group.result.unwrap());
        world.system().work(&echo).on_orphan(on_orphan).start().unwrap()
    };
    let (one, _two) = (start(), start());
    // Delayed, so that the waiter waits before the work runs.
    let later = towline::Options::new().delay(Duration::from_secs(5));
    let waited = one.submit(echo.of("waited for".to_owned()).options(later)).await.unwrap();
    world.drive(waited.result()).await.unwrap();
    // This work may end before the waiter waits.
    let quick = one.submit(echo.of("quick".to_owned())).await.unwrap();
    world.drive(quick.result()).await.unwrap();
    one.submit(echo.of("alone".to_owned())).await.unwrap();
    world.pass(10).await;
    assert_eq!(*orphans.lock().unwrap(), ["\"alone\""]);
}

pub async fn a_failed_submit_leaves_no_group_unfinished(kind: BackendKind) {
    use towline::testing::{FaultTiming, FaultyBackend};
    let world = World::new(kind).await;
    let gone = remote::<(), ()>("gone");
    let faulty = FaultyBackend::new(world.backend.clone(), 1, FaultTiming::BeforeCall);
    let system = towline::System::on(faulty).clock(world.clock.clone()).start().unwrap();
    let job = gone.of(()).options(towline::Options::new().group("g"));
    system.submit(job).await.unwrap_err();
    let other = work("other", |(): (), _| async { Ok(Outcome::Result(7)) });
    let worker = world.system().work(&other).start().unwrap();
    let handle = worker.submit(other.of(()).options(towline::Options::new().group("g"))).await.unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(20), world.drive(handle.group::<u32>())).await;
    assert_eq!(ended.unwrap(), Ok(Some(7)));
}

pub async fn a_claim_is_won_once_and_kept_across_attempts(kind: BackendKind) {
    let world = World::new(kind).await;
    let log = Log::default();
    let claims = {
        let log = log.clone();
        work("claims", move |name: String, context: Context| {
            let log = log.clone();
            async move {
                let won = context.claim("the one").await?;
                log.add(format!("{name} {won}"));
                if context.attempt() == 1 {
                    return Err(Failure::retry("again"));
                }
                Ok(Outcome::Result(won))
            }
        })
    };
    let system = world.system().work(&claims).start().unwrap();
    for name in ["first", "second"] {
        let handle = system.submit(claims.of(name.to_owned())).await.unwrap();
        world.drive(handle.result()).await.unwrap();
    }
    assert_eq!(log.read(), ["first true", "first true", "second false", "second false"]);
}
