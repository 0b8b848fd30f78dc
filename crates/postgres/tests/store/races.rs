//! Races between servers on one database: each race has one winner, and there is no deadlock.

use crate::calls::*;
use crate::harness::{new_schema, open};
use crate::server::{RUNTIME, SHARED, connect};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use towline_domain::change::Answer;
use towline_domain::command::Verb;
use towline_domain::kv::{KvAnswer, KvCommand};
use towline_domain::{ItemId, ItemState, LeaseToken, Policy, QueueState};
use towline_postgres::{Postgres, Time};
use towline_store::{Operation, Reply};

const SERVERS: usize = 3;
const CALLERS: usize = 4;

/// Runs all callers of all servers at once and returns their results. Checks that there was no deadlock.
fn race<T: Send>(run: impl Fn(usize, &Postgres) -> T + Sync, stores: &[Postgres]) -> Vec<T> {
    let before = deadlocks();
    let results = thread::scope(|scope| {
        let callers: Vec<_> = (0..SERVERS * CALLERS)
            .map(|number| {
                let (run, store) = (&run, &stores[number % SERVERS]);
                scope.spawn(move || run(number, store))
            })
            .collect();
        callers.into_iter().map(|caller| caller.join().unwrap()).collect()
    });
    assert_eq!(deadlocks(), before, "a deadlock happened");
    results
}

fn servers() -> Vec<Postgres> {
    let schema = new_schema();
    (0..SERVERS).map(|_| open(&SHARED.config(), &schema, Time::Database).unwrap()).collect()
}

fn deadlocks() -> i64 {
    RUNTIME.block_on(async {
        let client = connect(&SHARED.config()).await.unwrap();
        let counted = "SELECT sum(deadlocks)::bigint FROM pg_stat_database";
        client.query_one(counted, &[]).await.unwrap().get(0)
    })
}

#[test]
fn each_item_is_committed_once_by_several_servers() {
    let stores = servers();
    let policy = Policy { max_retries: 1000, ..Policy::default() };
    run(&stores[0], create("jobs", policy)).unwrap();
    let (each, committed) = (60, AtomicUsize::new(0));
    let commits = race(
        |number, store| {
            let submits = (0..each).map(|n| submit("jobs", &format!("{number}/{n}"))).collect();
            assert!(update(store, submits).iter().all(Result::is_ok));
            let (mut mine, mut round) = (Vec::new(), 0);
            while committed.load(Ordering::SeqCst) < SERVERS * CALLERS * each {
                round += 1;
                let given = receive(store, "jobs", 7, seed(number, round));
                let settle = |(n, &(id, token)): (usize, &(ItemId, LeaseToken))| {
                    let verb = if (n + round) % 4 == 0 { release() } else { commit() };
                    lease(id, token, verb)
                };
                let settles = given.iter().enumerate().map(settle).collect();
                for (answer, (id, _)) in update(store, settles).iter().zip(&given) {
                    if *answer == left(ItemState::Completed) {
                        mine.push(*id);
                        committed.fetch_add(1, Ordering::SeqCst);
                    } else {
                        assert_eq!(*answer, left(ItemState::Pending), "no other caller has this lease");
                    }
                }
            }
            mine
        },
        &stores,
    );
    let all: Vec<ItemId> = commits.into_iter().flatten().collect();
    let once: BTreeSet<_> = all.iter().collect();
    assert_eq!((all.len(), once.len()), (SERVERS * CALLERS * each, SERVERS * CALLERS * each));
    for store in &stores {
        let counts = counts(store, "jobs");
        assert_eq!((counts.completed, counts.total()), (all.len() as u64, all.len() as u64));
    }
}

#[test]
fn the_last_commit_completes_a_closed_queue_on_any_server() {
    let stores = servers();
    for round in 0..10 {
        let queue = format!("queue-{round}");
        run(&stores[0], create(&queue, Policy::default())).unwrap();
        let submits = (0..24).map(|n| submit(&queue, &n.to_string())).collect();
        assert!(update(&stores[1], submits).iter().all(Result::is_ok));
        let close = Operation::CloseQueue { queue: queue.parse().unwrap() };
        race(
            |number, store| {
                if number == 0 {
                    run(store, close.clone()).unwrap();
                }
                loop {
                    let given = receive(store, &queue, 2, seed(number, round));
                    if given.is_empty() {
                        break;
                    }
                    let settles = given.iter().map(|&(id, token)| lease(id, token, commit())).collect();
                    assert!(
                        update(store, settles).iter().all(|answer| *answer == left(ItemState::Completed))
                    );
                }
            },
            &stores,
        );
        for store in &stores {
            let view = view(store, &queue);
            assert_eq!(view.counts.completed, 24, "{view:?}");
            assert!(matches!(view.queue.state, QueueState::Completed { .. }), "{view:?}");
        }
    }
}

#[test]
fn a_queue_that_one_server_closes_is_closed_on_all() {
    let stores = servers();
    for round in 0..10 {
        let queue = format!("queue-{round}");
        run(&stores[0], create(&queue, Policy::default())).unwrap();
        let accepted = race(
            |number, store| {
                if number == 0 {
                    run(store, Operation::CloseQueue { queue: queue.parse().unwrap() }).unwrap();
                    return 0;
                }
                let submits = (0..10).map(|n| run(store, submit(&queue, &n.to_string())));
                submits.filter(Result::is_ok).count()
            },
            &stores,
        );
        let view = view(&stores[1], &queue);
        assert_eq!(view.counts.pending, accepted.iter().sum::<usize>() as u64);
        let completed = matches!(view.queue.state, QueueState::Completed { .. });
        assert_eq!(completed, view.counts.pending == 0, "{view:?}");
        assert_eq!(code(&run(&stores[2], submit(&queue, "late"))), "queue_closed");
    }
}

#[test]
fn idempotency_keys_and_records_have_one_winner_among_servers() {
    let stores = servers();
    run(&stores[0], create("jobs", Policy::default())).unwrap();
    for round in 0..10 {
        let answers = race(
            |number, store| {
                // In opposite orders, which must not cause a deadlock.
                let mut keys: Vec<_> = (0..6)
                    .map(|n| submit_with_idempotency_key("jobs", &format!("{round}/{n}"), "work"))
                    .collect();
                if number % 2 == 0 {
                    keys.reverse();
                }
                let created = update(store, keys).into_iter().map(|answer| submitted(&answer).1);
                let created = created.filter(|created| *created).count();
                let claim = KvCommand::SetIfAbsent { value: "me".into(), ttl: None };
                let won = run(store, Operation::Kv { key: format!("claim {round}"), command: claim });
                let add = KvCommand::Increment { by: 1, ttl: None };
                run(store, Operation::Kv { key: "sum".to_owned(), command: add }).unwrap();
                (created, won == Ok(Reply::Kv(KvAnswer::Won(true))))
            },
            &stores,
        );
        assert_eq!(answers.iter().map(|(created, _)| created).sum::<usize>(), 6);
        assert_eq!(answers.iter().filter(|(_, won)| *won).count(), 1);
    }
    assert_eq!(counts(&stores[1], "jobs").total(), 60);
    let sum = block_on(towline_store::Store::kv_get(&stores[2], vec!["sum".to_owned()])).unwrap();
    let sum = sum[0].as_ref().map(|record| record.value.clone());
    assert_eq!(sum, Some((10 * SERVERS * CALLERS).to_string().into()));
}

#[test]
fn a_replace_key_has_one_pending_item_among_servers() {
    let stores = servers();
    run(&stores[0], create("jobs", Policy::default())).unwrap();
    let keys = 4;
    let made = race(
        |number, store| {
            let mut made = 0;
            for round in 0..15 {
                // In opposite orders, with receives in between that take items away from their replacement.
                let mut batch: Vec<_> = (0..keys)
                    .map(|key| {
                        submit_with_replace_key("jobs", &format!("k{key}"), &format!("{number}/{round}"))
                    })
                    .collect();
                if number % 2 == 0 {
                    batch.reverse();
                }
                for answer in update(store, batch) {
                    match answer {
                        Ok(Reply::Answer(Answer::Submitted { created: true, .. })) => made += 1,
                        Ok(Reply::Answer(Answer::Replaced { .. })) => {}
                        other => panic!("{other:?}"),
                    }
                }
                if round % 3 == number % 3 {
                    let settles = receive(store, "jobs", 2, seed(number, round));
                    let settles = settles.iter().map(|&(id, token)| lease(id, token, commit())).collect();
                    assert!(
                        update(store, settles).iter().all(|answer| *answer == left(ItemState::Completed))
                    );
                }
            }
            made
        },
        &stores,
    );
    for store in &stores {
        let counts = counts(store, "jobs");
        assert!(counts.pending <= keys, "{counts:?}");
        assert_eq!(counts.total(), made.iter().sum::<u64>(), "each answer `created` stands for one item");
    }
}

#[test]
fn settles_in_any_order_cause_no_deadlock() {
    let stores = servers();
    run(&stores[0], create("jobs", Policy { max_retries: 10_000, ..Policy::default() })).unwrap();
    let submits = (0..40).map(|n| submit("jobs", &n.to_string())).collect();
    let ids: Vec<ItemId> = update(&stores[0], submits).iter().map(|answer| submitted(answer).0).collect();
    race(
        |number, store| {
            for round in 0..15 {
                // All callers change the same items, each in its own order, while receives hold some of them.
                let given = receive(store, "jobs", 5, seed(number, round));
                let mut batch: Vec<Operation> = ids
                    .iter()
                    .enumerate()
                    .map(|(n, &id)| match n % 3 {
                        0 => Operation::Pause { id },
                        1 => Operation::Resume { id },
                        _ => lease(
                            id,
                            foreign_token(),
                            Verb::Release { delay: towline_domain::Millis(0), counted: true },
                        ),
                    })
                    .collect();
                batch.rotate_left((number * 7 + round) % ids.len());
                batch.extend(given.iter().map(|&(id, token)| lease(id, token, release())));
                update(store, batch);
            }
        },
        &stores,
    );
    assert_eq!(counts(&stores[0], "jobs").total(), 40);
}
