//! Several processes on one backend: work fans out, waiters are told, each thing happens once, and who is killed takes
//! nothing with it.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod place;
#[path = "../../../postgres/tests/store/server.rs"]
mod postgres;
#[path = "../rig/mod.rs"]
mod rig;
mod worker;

use place::Place;
use std::collections::BTreeSet;
use std::time::Duration;
use towline::ports::{Count, Store};
use towline::{Backend, Error, Options, Retry, System};
use worker::{Worker, Works};

/// Longer than anything takes; what is not there by then never comes.
const NEVER: Duration = Duration::from_secs(120);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// Looks until it is so.
async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let looking = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(NEVER, looking).await.unwrap_or_else(|_| panic!("{what}: not in {NEVER:?}"));
}

async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(NEVER, future).await.unwrap_or_else(|_| panic!("{what}: not in {NEVER:?}"))
}

async fn number(store: &dyn Store, key: &str) -> i64 {
    store.increment(key, Count { by: 0, once: None }, DAY).await.unwrap()
}

/// Somebody who queues and waits, and works nowhere.
fn asks(backend: &Backend) -> System {
    System::on(backend.clone()).start().unwrap()
}

/// Each case on each backend that processes can share.
macro_rules! shared {
    ($($case:ident)*) => {
        mod on_a_server {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
                async fn $case() {
                    crate::$case(crate::Place::server().await).await;
                }
            )*
        }
        mod on_postgres {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
                async fn $case() {
                    crate::$case(crate::Place::postgres().await).await;
                }
            )*
        }
    };
}

shared! {
    work_fans_out_and_its_results_come_back
    who_is_killed_takes_nothing_with_it
    an_occurrence_is_done_once
    what_always_kills_its_worker_ends
}

async fn work_fans_out_and_its_results_come_back(place: Place) {
    let workers = [Worker::start(&place, "a"), Worker::start(&place, "b")];
    let (backend, works) = (place.backend().await, Works::elsewhere());
    let system = asks(&backend);
    let mut handles = Vec::new();
    for _ in 0..40 {
        handles.push(system.queue(works.who.of(())).await.unwrap());
    }
    let mut who = BTreeSet::new();
    for handle in &handles {
        who.insert(in_time("a result", handle.result()).await.unwrap());
    }
    assert_eq!(who, BTreeSet::from(["a".to_owned(), "b".to_owned()]), "both had some");
    assert_eq!(number(&*backend.store, "ran").await, 40, "each ran once");
    drop(workers);
}

/// A tree whose leaves are held by two processes when one of them is killed.
async fn who_is_killed_takes_nothing_with_it(place: Place) {
    let (killed, stays) = (Worker::start(&place, "a"), Worker::start(&place, "b"));
    let (backend, works) = (place.backend().await, Works::elsewhere());
    let store = &*backend.store;
    let system = asks(&backend);
    let handle = system.queue(works.tree.of(20)).await.unwrap();
    until("both hold some", async || {
        number(store, "held by a").await > 0 && number(store, "held by b").await > 0
    })
    .await;
    drop(killed);
    store.set("go", "1".to_owned(), DAY).await.unwrap();
    let mut all: Vec<u32> = in_time("the group", handle.group_all()).await.unwrap();
    all.sort_unstable();
    assert_eq!(all, (0..20).collect::<Vec<_>>(), "each leaf counts once");
    in_time("the tree", handle.done()).await.unwrap();
    // Whoever ended the last one told of it; nobody else did.
    until("the group's end was told", async || number(store, "groups done").await > 0).await;
    let last = system.queue(works.who.of(())).await.unwrap();
    assert_eq!(in_time("one more", last.result()).await.unwrap(), "b");
    let told = number(store, &format!("done {}", handle.group_id())).await;
    assert_eq!(told, 1, "a group settles once");
    assert_eq!(backend.queue.letters(10).await.unwrap(), []);
    drop(stays);
}

async fn an_occurrence_is_done_once(place: Place) {
    let workers = [Worker::start(&place, "a"), Worker::start(&place, "b")];
    let backend = place.backend().await;
    let store = &*backend.store;
    until("some occurrences", async || number(store, "ticks").await >= 3).await;
    let count = number(store, "ticks").await;
    let mut times = BTreeSet::new();
    for n in 1..=count {
        until("its time is written", async || store.get(&format!("tick {n}")).await.unwrap().is_some()).await;
        let at = store.get(&format!("tick {n}")).await.unwrap().unwrap();
        assert!(times.insert(at.clone()), "{at} was done twice");
    }
    let times: Vec<u64> = times.iter().map(|at| at.parse().unwrap()).collect();
    assert!(times.iter().all(|at| at % 1000 == 0), "{times:?}");
    drop(workers);
}

async fn what_always_kills_its_worker_ends(place: Place) {
    let (backend, works) = (place.backend().await, Works::elsewhere());
    let system = asks(&backend);
    let job = works.deadly.of(()).options(Options::new().retry(Retry::attempts(2)));
    let handle = system.queue(job).await.unwrap();
    let mut worker = Worker::start(&place, "a");
    let mut deaths = 0;
    let error = loop {
        tokio::select! {
            ended = handle.done() => break ended.unwrap_err(),
            () = worker.died() => {
                deaths += 1;
                assert!(deaths <= 2, "it does not loop");
                worker = Worker::start(&place, "a");
            }
        }
    };
    assert!(
        matches!(&error, Error::Failed { error, .. } if error.contains("all 2 attempts ended without a word")),
        "{error}"
    );
    assert_eq!(deaths, 2);
    // Whoever survived goes on.
    let next = system.queue(works.who.of(())).await.unwrap();
    assert_eq!(in_time("what comes after", next.result()).await.unwrap(), "a");
    assert_eq!(backend.queue.letters(10).await.unwrap().len(), 1);
}

/// One process at a time: what a killed one had is done by the next, one attempt on.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn on_an_embedded_store_the_next_process_goes_on() {
    let place = Place::embedded();
    let killed = Worker::start_with(&place, "a", "tree 5");
    until("it holds all of them", async || killed.said("holds") >= 5).await;
    drop(killed);
    let stays = Worker::start_with(&place, "b", "let go");
    until("the group has ended", async || stays.said("group done") == 1).await;
    assert_eq!(stays.said("leaf at attempt 2"), 5, "{stays:?}");
}

/// What other tests start as a process of its own.
#[test]
#[ignore = "started by the others"]
fn worker_process() {
    worker::run();
}
