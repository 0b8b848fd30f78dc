//! One call of the backend fails, carried out or not. The submitted work still runs, and nothing is counted twice.

use crate::{BackendKind, Log, World};
use std::time::Duration;
use towline::testing::{FaultTiming, FaultyBackend};
use towline::{Condition, Context, Failure, Options, Outcome, Retry, System, work};

/// A parent with three children and a next job. One child fails at its first attempt. Returns the number of calls.
async fn scenario(kind: BackendKind, nth: u64, timing: FaultTiming) -> u64 {
    let world = World::new(kind).await;
    let faulty = FaultyBackend::new(world.backend.clone(), nth, timing);
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
                Ok(Outcome::<()>::submit_then(
                    (0..3).map(|n| child.of(n)),
                    Condition::AllSuccess,
                    last.of(()),
                ))
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
    // The submitter repeats the submit until it succeeds.
    let handle = loop {
        let job = parent.of(()).options(Options::new().idempotency_key("the one"));
        if let Ok(handle) = system.submit(job).await {
            break handle;
        }
    };
    let what = format!("call {nth}, {timing:?}");
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
    // Longer than the visibility timeout.
    world.pass(if kind == BackendKind::Memory { 600 } else { 60 }).await;
    // Four members were counted in; they and the root were counted out. A member that is counted twice would end the group
    // too early.
    let unfinished = world.backend.store.get(&format!("work:group:{}:open", handle.group_id())).await;
    assert_eq!(unfinished.unwrap().as_deref(), Some("-1"), "{what}");
    assert!(!log.read().is_empty(), "{what}");
    assert_eq!((world.depth().await, world.dead_letters().await), (0, Vec::new()), "{what}");
    system.stop(Duration::ZERO).await;
    faulty.calls()
}

pub async fn any_single_backend_call_may_fail(kind: BackendKind) {
    let calls = scenario(kind, u64::MAX, FaultTiming::BeforeCall).await;
    let calls = usize::try_from(calls).unwrap();
    assert!(calls > 40, "{calls}");
    // In memory every call fails once. On the other backends a sample does, since each run opens a new backend.
    let (step, last): (usize, usize) = if kind == BackendKind::Memory { (1, calls + 20) } else { (47, 150) };
    for (first, timing) in [(1, FaultTiming::BeforeCall), (step.div_ceil(2), FaultTiming::AfterCall)] {
        for nth in (first..last).step_by(step) {
            scenario(kind, u64::try_from(nth).unwrap(), timing).await;
        }
    }
}
