//! Groups: everything that came of one piece of work.

use crate::{Kind, Log, World};
use futures::FutureExt;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use towline::{Clock, Context, Error, Event, Failure, Outcome, When, elsewhere, work};

pub async fn a_group_ends_with_the_last_of_its_descendants(kind: Kind) {
    let world = World::new(kind).await;
    let leaf = work("leaf", |n: u32, _| async move { Ok(Outcome::Append(n)) });
    let branch = {
        let leaf = leaf.clone();
        work("branch", move |n: u32, _| {
            let leaf = leaf.clone();
            async move { Ok(Outcome::<()>::queue((0..3).map(|m| leaf.of(n * 10 + m)))) }
        })
    };
    let root = {
        let branch = branch.clone();
        work("root", move |(): (), _| {
            let branch = branch.clone();
            async move { Ok(Outcome::<()>::queue((1..=3).map(|n| branch.of(n)))) }
        })
    };
    let system = world.system().work(&leaf).work(&branch).work(&root).start().unwrap();
    let handle = system.queue(root.of(())).await.unwrap();
    let mut all: Vec<u32> = world.drive(handle.group_all()).await.unwrap();
    all.sort_unstable();
    assert_eq!(all, [10, 11, 12, 20, 21, 22, 30, 31, 32]);
    assert_eq!(world.count(|event| matches!(event, Event::GroupDone { .. })), 1);
    assert_eq!(handle.result().await, Err(Error::NoResult { id: handle.id().to_owned() }));
    handle.done().await.unwrap();
}

/// In memory: elsewhere the message is on its way while time is moved.
#[tokio::test]
async fn who_waits_for_the_group_of_one_that_is_alone_is_told() {
    let world = World::new(Kind::Memory).await;
    let (go, held) = tokio::sync::watch::channel(false);
    let alone = work("alone", move |(): (), _| {
        let mut held = held.clone();
        async move {
            drop(held.wait_for(|go| *go).await);
            Ok(Outcome::Result(7))
        }
    });
    let system = world.system().work(&alone).start().unwrap();
    let handle = system.queue(alone.of(())).await.unwrap();
    let mut waits = pin!(handle.group::<u32>());
    assert!(waits.as_mut().now_or_never().is_none());
    world.quiet().await;
    let began = world.clock.now();
    go.send_replace(true);
    assert_eq!(world.drive(waits).await, Ok(Some(7)));
    assert_eq!(world.clock.now(), began, "it was told, and did not look by itself");
}

pub async fn fan_out_and_fan_in(kind: Kind) {
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
                Ok(Outcome::<()>::queue_then((1..=n).map(|n| square.of(n)), When::AllSuccess, sum.of(())))
            }
        })
    };
    let system = world.system().work(&square).work(&sum).work(&start).start().unwrap();
    let handle = system.queue(start.of(20)).await.unwrap();
    let told: Option<String> = world.drive(handle.group()).await.unwrap();
    assert_eq!(told.as_deref(), Some("all of true are there"));
    let all: Vec<u64> = handle.group_all().await.unwrap();
    assert_eq!(all.iter().sum::<u64>(), 2870);
}

pub async fn what_follows_children_that_fail(kind: Kind) {
    let world = World::new(kind).await;
    let log = Log::default();
    let child = work("child", |well: bool, _| async move {
        if well { Ok(Outcome::Result(1)) } else { Err(Failure::abort("no")) }
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
        work("parent", move |(name, when, children): (String, When, Vec<bool>), _| {
            let (child, next) = (child.clone(), next.clone());
            async move {
                Ok(Outcome::<()>::queue_then(
                    children.into_iter().map(|well| child.of(well)),
                    when,
                    next.of(name),
                ))
            }
        })
    };
    let system = world.system().work(&child).work(&next).work(&parent).start().unwrap();
    for (name, when, children) in [
        ("done: yes", When::AllDone, vec![true, false, false]),
        ("success: no", When::AllSuccess, vec![true, false]),
        ("success: yes", When::AllSuccess, vec![true, true]),
        ("two of three: yes", When::Count(2), vec![true, false, true]),
        ("two of three: no", When::Count(2), vec![true, false, false]),
        ("none: yes", When::AllSuccess, vec![]),
    ] {
        let handle = system.queue(parent.of((name.to_owned(), when, children))).await.unwrap();
        world.drive(handle.group_done()).await.unwrap();
    }
    assert_eq!(log.read(), ["done: yes", "success: yes", "two of three: yes", "none: yes"]);
}

pub async fn a_group_that_nobody_waits_for_is_told_once_in_the_fleet(kind: Kind) {
    let world = World::new(kind).await;
    let echo = work("echo", |text: String, _| async move { Ok(Outcome::Result(text)) });
    let orphans: Arc<Mutex<Vec<String>>> = Arc::default();
    let start = || {
        let orphans = Arc::clone(&orphans);
        let told = move |group: towline::OrphanedGroup| orphans.lock().unwrap().push(group.result.unwrap());
        world.system().work(&echo).on_orphan(told).start().unwrap()
    };
    let (one, _two) = (start(), start());
    // Later, so that whoever waits is there first.
    let later = towline::Options::new().delay(Duration::from_secs(5));
    let waited = one.queue(echo.of("waited for".to_owned()).options(later)).await.unwrap();
    world.drive(waited.result()).await.unwrap();
    // One that is done before anybody could ask.
    let quick = one.queue(echo.of("quick".to_owned())).await.unwrap();
    world.drive(quick.result()).await.unwrap();
    one.queue(echo.of("alone".to_owned())).await.unwrap();
    world.pass(10).await;
    assert_eq!(*orphans.lock().unwrap(), ["\"alone\""]);
}

pub async fn a_push_that_fails_leaves_no_group_open(kind: Kind) {
    use towline::testing::{Fault, Faulty};
    let world = World::new(kind).await;
    let gone = elsewhere::<(), ()>("gone");
    let faulty = Faulty::new(world.backend.clone(), 1, Fault::Before);
    let system = towline::System::on(faulty).clock(world.clock.clone()).start().unwrap();
    let job = gone.of(()).options(towline::Options::new().group("g"));
    system.queue(job).await.unwrap_err();
    let other = work("other", |(): (), _| async { Ok(Outcome::Result(7)) });
    let worker = world.system().work(&other).start().unwrap();
    let handle = worker.queue(other.of(()).options(towline::Options::new().group("g"))).await.unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(20), world.drive(handle.group::<u32>())).await;
    assert_eq!(ended.unwrap(), Ok(Some(7)));
}

pub async fn a_claim_is_one_pieces_and_stays_its_own(kind: Kind) {
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
        let handle = system.queue(claims.of(name.to_owned())).await.unwrap();
        world.drive(handle.result()).await.unwrap();
    }
    assert_eq!(log.read(), ["first true", "first true", "second false", "second false"]);
}
