//! Whatever call of the backend goes wrong, and whether it was carried out or not: what was queued is done, and all that
//! must happen once happens once.

use crate::Log;
use std::time::Duration;
use towline::testing::{self, Fault, Faulty};
use towline::{Context, Failure, Memory, Options, Outcome, Retry, System, When, work};

/// A parent with three children, one of which fails at first, and something that follows them.
async fn scenario(nth: u64, fault: Fault) -> u64 {
    let clock = testing::clock();
    let memory = Memory::with_clock(clock.clone());
    let faulty = Faulty::new(memory.clone(), nth, fault);
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
        .clock(clock.clone())
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
        match testing::drive(&clock, handle.group::<String>()).await {
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
    testing::pass(&clock, Duration::from_secs(600)).await;
    // Five were counted in and five out, each once: one too many would have ended the group before its time.
    let open =
        towline::ports::Store::get(&*memory.store, &format!("work:group:{}:open", handle.group_id())).await;
    assert_eq!(open.unwrap().as_deref(), Some("0"), "{what}");
    assert!(!log.read().is_empty(), "{what}");
    assert_eq!((memory.queue.size(), memory.queue.dead().len()), (0, 0), "{what}: {:?}", memory.queue.dead());
    system.stop(Duration::ZERO).await;
    faulty.calls()
}

#[tokio::test]
async fn every_call_may_fail() {
    let calls = scenario(u64::MAX, Fault::Before).await;
    assert!(calls > 40, "{calls}");
    for fault in [Fault::Before, Fault::After] {
        for nth in 1..calls + 20 {
            scenario(nth, fault).await;
        }
    }
}
