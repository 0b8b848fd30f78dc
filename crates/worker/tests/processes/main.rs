//! Several processes on one backend: they share work, each thing happens once, and a killed process loses no work.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod address;
#[path = "../backends/mod.rs"]
mod backends;
#[path = "../../../postgres/tests/store/server.rs"]
mod postgres;
mod worker;

use address::BackendAddress;
use std::collections::BTreeSet;
use std::time::Duration;
use towline::ports::{Increment, Store};
use towline::{Backend, Error, Options, Retry, System};
use worker::{Kinds, Worker};

/// The time limit of everything that a test waits for.
const WAIT_MAX: Duration = Duration::from_secs(120);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// Waits for a condition.
async fn wait_until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(WAIT_MAX, waiting).await.unwrap_or_else(|_| panic!("{what}: not in {WAIT_MAX:?}"));
}

async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(WAIT_MAX, future).await.unwrap_or_else(|_| panic!("{what}: not in {WAIT_MAX:?}"))
}

async fn number(store: &dyn Store, key: &str) -> i64 {
    store.increment(key, Increment { by: 0, once: None }, DAY).await.unwrap()
}

/// A system that submits and waits, and runs no work.
fn submitter(backend: &Backend) -> System {
    System::on(backend.clone()).start().unwrap()
}

/// Runs each case on each backend that processes can share.
macro_rules! shared {
    ($($case:ident)*) => {
        mod on_a_server {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
                async fn $case() {
                    crate::$case(crate::BackendAddress::server().await).await;
                }
            )*
        }
        mod on_postgres {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
                async fn $case() {
                    crate::$case(crate::BackendAddress::postgres().await).await;
                }
            )*
        }
    };
}

shared! {
    processes_share_work_and_results_come_back
    a_killed_process_loses_no_work
    an_occurrence_runs_once
    work_that_kills_its_workers_fails
}

async fn processes_share_work_and_results_come_back(address: BackendAddress) {
    let workers = [Worker::start(&address, "a"), Worker::start(&address, "b")];
    let (backend, kinds) = (address.backend().await, Kinds::remote());
    let system = submitter(&backend);
    let mut handles = Vec::new();
    for _ in 0..40 {
        handles.push(system.submit(kinds.whoami.of(())).await.unwrap());
    }
    let mut processes = BTreeSet::new();
    for handle in &handles {
        processes.insert(in_time("a result", handle.result()).await.unwrap());
    }
    assert_eq!(processes, BTreeSet::from(["a".to_owned(), "b".to_owned()]), "both processes ran some");
    assert_eq!(number(&*backend.store, "ran").await, 40, "each ran once");
    drop(workers);
}

/// Two processes run the leaves of a tree when one of them is killed.
async fn a_killed_process_loses_no_work(address: BackendAddress) {
    let (killed, stays) = (Worker::start(&address, "a"), Worker::start(&address, "b"));
    let (backend, kinds) = (address.backend().await, Kinds::remote());
    let store = &*backend.store;
    let system = submitter(&backend);
    let handle = system.submit(kinds.tree.of(20)).await.unwrap();
    wait_until("both processes run leaves", async || {
        number(store, "running in a").await > 0 && number(store, "running in b").await > 0
    })
    .await;
    drop(killed);
    store.set("go", "1".to_owned(), DAY).await.unwrap();
    let mut all: Vec<u32> = in_time("the group", handle.group_all()).await.unwrap();
    all.sort_unstable();
    assert_eq!(all, (0..20).collect::<Vec<_>>(), "each leaf is counted once");
    in_time("the tree", handle.done()).await.unwrap();
    // Only the process that ended the last member reports the end of the group.
    wait_until("the end of the group was reported", async || number(store, "groups done").await > 0).await;
    let last = system.submit(kinds.whoami.of(())).await.unwrap();
    assert_eq!(in_time("one more", last.result()).await.unwrap(), "b");
    let reports = number(store, &format!("done {}", handle.group_id())).await;
    assert_eq!(reports, 1, "a group ends once");
    assert_eq!(backend.queue.dead_letters(10).await.unwrap(), []);
    drop(stays);
}

async fn an_occurrence_runs_once(address: BackendAddress) {
    let workers = [Worker::start(&address, "a"), Worker::start(&address, "b")];
    let backend = address.backend().await;
    let store = &*backend.store;
    wait_until("some occurrences", async || number(store, "ticks").await >= 3).await;
    let count = number(store, "ticks").await;
    let mut times = BTreeSet::new();
    for n in 1..=count {
        wait_until("the time of the occurrence is stored", async || {
            store.get(&format!("tick {n}")).await.unwrap().is_some()
        })
        .await;
        let at = store.get(&format!("tick {n}")).await.unwrap().unwrap();
        assert!(times.insert(at.clone()), "the occurrence at {at} ran twice");
    }
    let times: Vec<u64> = times.iter().map(|at| at.parse().unwrap()).collect();
    assert!(times.iter().all(|at| at % 1000 == 0), "{times:?}");
    drop(workers);
}

async fn work_that_kills_its_workers_fails(address: BackendAddress) {
    let (backend, kinds) = (address.backend().await, Kinds::remote());
    let system = submitter(&backend);
    let job = kinds.deadly.of(()).options(Options::new().retry(Retry::attempts(2)));
    let handle = system.submit(job).await.unwrap();
    let mut worker = Worker::start(&address, "a");
    let mut deaths = 0;
    let error = loop {
        tokio::select! {
            ended = handle.done() => break ended.unwrap_err(),
            () = worker.died() => {
                deaths += 1;
                assert!(deaths <= 2, "the work must not be retried for ever");
                worker = Worker::start(&address, "a");
            }
        }
    };
    assert!(
        matches!(&error, Error::Failed { error, .. } if error.contains("all 2 attempts ended without an outcome")),
        "{error}"
    );
    assert_eq!(deaths, 2);
    // The last process goes on with other work.
    let next = system.submit(kinds.whoami.of(())).await.unwrap();
    assert_eq!(in_time("what comes after", next.result()).await.unwrap(), "a");
    assert_eq!(backend.queue.dead_letters(10).await.unwrap().len(), 1);
}

/// One process at a time. The next one runs the work of the killed one, as its second attempt.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_next_process_on_an_embedded_store_continues_the_work() {
    let address = BackendAddress::embedded();
    let killed = Worker::start_with(&address, "a", "tree 5");
    wait_until("all leaves run", async || killed.printed("running") >= 5).await;
    drop(killed);
    let stays = Worker::start_with(&address, "b", "let go");
    wait_until("the group has ended", async || stays.printed("group done") == 1).await;
    assert_eq!(stays.printed("leaf at attempt 2"), 5, "{stays:?}");
}

/// The main function of the worker processes.
#[test]
#[ignore = "started by the other tests"]
fn worker_process() {
    worker::run();
}
