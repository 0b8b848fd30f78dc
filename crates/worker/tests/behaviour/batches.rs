//! Work that runs in batches.

use crate::{BackendKind, Log, World};
use std::time::Duration;
use towline::{BatchEntry, Failure, Outcome, Work, batch};

fn insert(log: &Log, size: usize) -> Work<u32, u32> {
    let log = log.clone();
    batch("insert", size, Duration::from_secs(2), move |entries: Vec<BatchEntry<u32>>| {
        log.add(entries.len().to_string());
        async move {
            let outcome = |entry: BatchEntry<u32>| match entry.input {
                7 if entry.context.attempt() == 1 => Err(Failure::retry("seven is late")),
                n => Ok(Outcome::Result(n * 10)),
            };
            entries.into_iter().map(outcome).collect()
        }
    })
}

pub async fn a_batch_starts_when_it_is_full_or_has_waited_and_each_entry_has_its_outcome(kind: BackendKind) {
    let world = World::new(kind).await;
    let log = Log::default();
    let insert = insert(&log, 5);
    let system = world.system().work(&insert).start().unwrap();
    let mut handles = Vec::new();
    for n in 0..12 {
        handles.push(system.submit(insert.of(n)).await.unwrap());
    }
    for (n, handle) in (0..).zip(&handles) {
        assert_eq!(world.drive(handle.result()).await, Ok(n * 10));
    }
    assert_eq!(log.read()[..2], ["5", "5"]);
    let total: usize = log.read().iter().map(|count| count.parse::<usize>().unwrap()).sum();
    assert_eq!(total, 13, "{:?}", log.read());
}

pub async fn stopping_starts_a_partial_batch(kind: BackendKind) {
    let world = World::new(kind).await;
    let log = Log::default();
    let insert = insert(&log, 100);
    let system = world.system().work(&insert).start().unwrap();
    let handle = system.submit(insert.of(1)).await.unwrap();
    world.pass(1).await;
    assert_eq!(log.read().len(), 0);
    assert!(world.drive(system.stop(Duration::from_secs(1))).await);
    assert_eq!(handle.result().await, Ok(10));
}

pub async fn a_batch_handler_that_returns_too_few_outcomes_or_panics_is_retried(kind: BackendKind) {
    let world = World::new(kind).await;
    let log = Log::default();
    let wrong = {
        let log = log.clone();
        batch("wrong", 2, Duration::from_secs(1), move |entries: Vec<BatchEntry<u32>>| {
            log.add(entries[0].context.attempt().to_string());
            let attempt = entries[0].context.attempt();
            async move {
                match attempt {
                    1 => Vec::new(),
                    2 => panic!("the second time"),
                    _ => entries.into_iter().map(|entry| Ok(Outcome::Result(entry.input))).collect(),
                }
            }
        })
    };
    let system = world.system().work(&wrong).start().unwrap();
    let handle = system.submit(wrong.of(4)).await.unwrap();
    assert_eq!(world.drive(handle.result()).await, Ok(4));
    let events = format!("{:?}", world.events.lock().unwrap());
    assert!(
        events.contains("returned 0 outcomes for 1 entries") && events.contains("panicked: the second time"),
        "{events}"
    );
}
