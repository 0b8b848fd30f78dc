//! Ids and idempotency keys: repeated submits, prefixes, long chains.

use crate::{BackendKind, Log, World};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use towline::{Condition, Context, Error, Failure, Options, Outcome, Schedule, System, Time, Work, work};

fn logging(log: &Log) -> Work<String, ()> {
    let log = log.clone();
    work("note", move |text: String, _| {
        log.add(text);
        async { Ok(Outcome::Void) }
    })
}

pub async fn a_key_used_in_two_groups_delays_neither(kind: BackendKind) {
    let world = World::new(kind).await;
    let log = Log::default();
    let note = logging(&log);
    let system = world.system().work(&note).start().unwrap();
    let mut handles = Vec::new();
    for group in ["a", "b"] {
        let own = note.of(group.to_owned()).options(Options::new().group(group));
        handles.push(system.submit(own).await.unwrap());
        let shared =
            note.of("shared".to_owned()).options(Options::new().group(group).idempotency_key("same"));
        system.submit(shared).await.unwrap();
    }
    for handle in handles {
        world.drive(handle.group_done()).await.unwrap();
    }
    let mut log = log.read();
    log.sort();
    assert_eq!(log, ["a", "b", "shared"]);
}

pub async fn an_idempotency_key_applies_to_children(kind: BackendKind) {
    let world = World::new(kind).await;
    let log = Log::default();
    let note = logging(&log);
    let parent = {
        let note = note.clone();
        work("parent", move |(): (), _| {
            let child = note.of("once".to_owned()).options(Options::new().idempotency_key("order 7"));
            async move { Ok(Outcome::<()>::submit([child])) }
        })
    };
    let system = world.system().work(&note).work(&parent).start().unwrap();
    for _ in 0..2 {
        let handle = system.submit(parent.of(())).await.unwrap();
        world.drive(handle.group_done()).await.unwrap();
    }
    world.pass(60).await;
    assert_eq!(log.read(), ["once"]);
}

pub async fn work_with_a_repeatable_id_runs_once_even_if_it_skips_the_queue(kind: BackendKind) {
    let world = World::new(kind).await;
    let log = Log::default();
    let note = logging(&log);
    let start = || {
        let note = note.clone();
        let skipping = move |at: Time| note.of(at.0.to_string()).options(Options::new().skip_queue(true));
        let schedule = Schedule::every("minutely", Duration::from_secs(60), skipping);
        world.system().work(&logging(&log)).schedule(schedule).start().unwrap()
    };
    let (one, two) = (start(), start());
    for system in [&one, &two] {
        let keyed = Options::new().skip_queue(true).idempotency_key("k");
        let handle = system.submit(note.of("keyed".to_owned()).options(keyed)).await.unwrap();
        world.drive(handle.done()).await.unwrap();
    }
    world.pass(70).await;
    assert_eq!(log.read().len(), 2, "{:?}", log.read());
}

pub async fn systems_that_share_a_queue_ignore_each_others_work(kind: BackendKind) {
    let world = World::new(kind).await;
    let (mail, shop) = (Log::default(), Log::default());
    let one = world.system().work(&logging(&mail)).start().unwrap();
    let two = System::on(world.backend.clone())
        .clock(world.clock.clone())
        .prefix("shop:")
        .work(&logging(&shop))
        .start()
        .unwrap();
    let note = logging(&Log::default());
    let (a, b) = (one.submit(note.of("mail".to_owned())).await, two.submit(note.of("shop".to_owned())).await);
    world.drive(a.unwrap().done()).await.unwrap();
    world.drive(b.unwrap().done()).await.unwrap();
    assert_eq!((mail.read(), shop.read()), (vec!["mail".to_owned()], vec!["shop".to_owned()]));
}

/// More than a record of any backend but memory can hold.
const TOO_MUCH: usize = 2 << 20;

pub async fn a_result_that_the_backend_refuses_fails_the_work_at_once(kind: BackendKind) {
    let world = World::new(kind).await;
    let runs = Arc::new(Mutex::new(0));
    let big = {
        let runs = Arc::clone(&runs);
        work("big", move |(): (), _| {
            *runs.lock().unwrap() += 1;
            async move { Ok(Outcome::Result("x".repeat(TOO_MUCH))) }
        })
    };
    let system = world.system().work(&big).start().unwrap();
    let handle = system.submit(big.of(())).await.unwrap();
    let ended = world.drive(handle.done()).await;
    match (kind, ended) {
        (BackendKind::Memory, ended) => ended.unwrap(),
        (_, Err(Error::Failed { error, .. })) => assert!(error.contains("at most 1048576"), "{error}"),
        (_, other) => panic!("{other:?}"),
    }
    assert_eq!(*runs.lock().unwrap(), 1);
}

/// Each piece of work submits the next. Their ids must stay short.
pub async fn a_chain_of_work_may_have_any_length(kind: BackendKind) {
    const LINKS: u32 = 130;
    let world = World::new(kind).await;
    let link: Arc<Mutex<Option<Work<u32, u32>>>> = Arc::default();
    let work = {
        let link = Arc::clone(&link);
        work("link", move |n: u32, _| {
            let next = link.lock().unwrap().clone().unwrap();
            async move { if n == LINKS { Ok(Outcome::Result(n)) } else { Ok(Outcome::submit([next.of(n + 1)])) } }
        })
    };
    *link.lock().unwrap() = Some(work.clone());
    let system = world.system().work(&work).start().unwrap();
    let handle = system.submit(work.of(0)).await.unwrap();
    assert_eq!(world.drive(handle.group()).await, Ok(Some(LINKS)));
}

pub async fn a_redriven_dependency_is_counted_once(kind: BackendKind) {
    let world = World::new(kind).await;
    let log = Log::default();
    let note = logging(&log);
    let tried = Arc::new(Mutex::new(0));
    let fails = {
        let tried = Arc::clone(&tried);
        work("fails", move |(): (), _| {
            *tried.lock().unwrap() += 1;
            let first = *tried.lock().unwrap() == 1;
            async move { if first { Err(Failure::fail("not yet")) } else { Ok(Outcome::<()>::Void) } }
        })
    };
    let system = world.system().work(&note).work(&fails).start().unwrap();
    let a = system.submit(fails.of(())).await.unwrap();
    let later = Options::new().delay(Duration::from_secs(120));
    let b = system.submit(note.of("b".to_owned()).options(later)).await.unwrap();
    let ids = [a.id().to_owned(), b.id().to_owned()];
    let c = system.submit_after(note.of("c".to_owned()), &ids, Condition::AllDone).await.unwrap();
    world.drive(a.done()).await.unwrap_err();
    assert_eq!(system.redrive(10).await, Ok(1));
    world.drive(c.done()).await.unwrap();
    assert_eq!(log.read(), ["b", "c"]);
    assert_eq!(*tried.lock().unwrap(), 2);
}

/// The store must retain the dependent until its dependency ends. The dependency can list its dependents.
pub async fn a_dependent_that_waits_for_days_still_runs(kind: BackendKind) {
    let world = World::new(kind).await;
    let log = Log::default();
    let note = logging(&log);
    let seen = Log::default();
    let slow = {
        let seen = seen.clone();
        work("slow", move |(): (), context: Context| {
            let seen = seen.clone();
            async move {
                let dependents =
                    context.dependents().await.map_err(|error| Failure::retry(error.to_string()))?;
                dependents.into_iter().for_each(|id| seen.add(id));
                Ok(Outcome::<()>::Void)
            }
        })
    };
    let system = world.system().work(&note).work(&slow).start().unwrap();
    let late = Options::new().delay(Duration::from_secs(3 * 24 * 3600));
    let slow = system.submit(slow.of(()).options(late)).await.unwrap();
    let after = system
        .submit_after(note.of("after".to_owned()), &[slow.id().to_owned()], Condition::AllDone)
        .await
        .unwrap();
    // In one step, so that no waiter looks into the store meanwhile.
    world.clock.advance_to(towline::Clock::now(&*world.clock).after(Duration::from_secs(3 * 24 * 3600 + 1)));
    world.drive(after.done()).await.unwrap();
    assert_eq!((log.read(), seen.read()), (vec!["after".to_owned()], vec![after.id().to_owned()]));
}
