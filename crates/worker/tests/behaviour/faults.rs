//! Whatever call of the backend goes wrong, and whether it was carried out or not: what was queued is done, and all that
//! must happen once happens once.

use crate::{Kind, Log, World};
use std::time::Duration;
use towline::testing::{Fault, Faulty};
use towline::{Context, Failure, Options, Outcome, Retry, System, When, work};

/// A parent with three children, one of which fails at first, and something that follows them.
async fn scenario(kind: Kind, nth: u64, fault: Fault) -> u64 {
    let world = World::new(kind).await;
    let faulty = Faulty::new(world.backend.clone(), nth, fault);
    let log = Log::default();
    let child = work("child", |n: u32, context: Context| async move {
        if n == 1 && context.attempt() == 1 {
            return Err(Failure::retry("not at first"));
        }
        Ok(Outcome::Append(n))
    });
    let last = {
        let log = log.clone();
        work("last", move |(): (), _| {
            log.add("last");
            async { Ok(Outcome::Result("end".to_owned())) }
        })
    };
    let parent = {
        let (child, last) = (child.clone(), last.clone());
        work("parent", move |(): (), _| {
            let (child, last) = (child.clone(), last.clone());
            async move {
                Ok(Outcome::<()>::queue_then((0..3).map(|n| child.of(n)), When::AllSuccess, last.of(())))
            }
        })
    };
    let retry = Retry { attempts: 5, ..Retry::default() };
    let system = System::on(faulty.clone())
        .clock(world.clock.clone())
        .defaults(Options::new().retry(retry))
        .work(&child)
        .work(&last)
        .work(&parent)
        .start()
        .unwrap();
    // Whoever queues it asks again until it is told that it is queued.
    let handle = loop {
        let job = parent.of(()).options(Options::new().dedupe_key("the one"));
        if let Ok(handle) = system.queue(job).await {
            break handle;
        }
    };
    let what = format!("call {nth}, {fault:?}");
    let result = loop {
        match world.drive(handle.group::<String>()).await {
            Ok(result) => break result,
            Err(towline::Error::Port(_)) => {}
            Err(error) => panic!("{what}: {error}"),
        }
    };
    assert_eq!(result.as_deref(), Some("end"), "{what}");
    let mut all: Vec<u32> = loop {
        if let Ok(all) = handle.group_all().await {
            break all;
        }
    };
    all.sort_unstable();
    assert_eq!(all, [0, 1, 2], "{what}");
    // Longer than a lease.
    world.pass(if kind == Kind::Memory { 600 } else { 60 }).await;
    // Four were counted in, and they and the root out, each once: one too many would have ended the group before its time.
    let open = world.backend.store.get(&format!("work:group:{}:open", handle.group_id())).await;
    assert_eq!(open.unwrap().as_deref(), Some("-1"), "{what}");
    assert!(!log.read().is_empty(), "{what}");
    assert_eq!((world.waiting().await, world.letters().await), (0, Vec::new()), "{what}");
    system.stop(Duration::ZERO).await;
    faulty.calls()
}

pub async fn every_call_may_fail(kind: Kind) {
    let calls = scenario(kind, u64::MAX, Fault::Before).await;
    let calls = usize::try_from(calls).unwrap();
    assert!(calls > 40, "{calls}");
    // In memory every one of them; elsewhere some, spread over those that matter, since each takes a backend of its own.
    let (step, last): (usize, usize) = if kind == Kind::Memory { (1, calls + 20) } else { (47, 150) };
    for (first, fault) in [(1, Fault::Before), (step.div_ceil(2), Fault::After)] {
        for nth in (first..last).step_by(step) {
            scenario(kind, u64::try_from(nth).unwrap(), fault).await;
        }
    }
}
