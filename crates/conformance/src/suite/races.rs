//! Parallel threads on one store.

use super::Harness;
use super::operations::*;
use super::rig::*;
use futures::executor::block_on;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use towline_domain::kv::{KvAnswer, KvCommand};
use towline_domain::{Adjust, EventKind, ItemId, ItemState, LeaseToken, Millis, Policy, TokenSeed};
use towline_store::{EventsFrom, Operation, Reply, Store};

const THREADS: usize = 8;

/// Runs a function in parallel threads, and returns their results.
pub(super) fn race<T: Send>(rig: &Rig, run: impl Fn(usize, &dyn Store) -> T + Sync) -> Vec<T> {
    let store = &*rig.store;
    let run = &run;
    let results = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || run(thread, store))).collect();
        threads.into_iter().map(|thread| thread.join().expect("the thread does not panic")).collect()
    });
    rig.check();
    results
}

fn seed(thread: usize, round: usize) -> TokenSeed {
    let mut bytes = [0xee; 32];
    bytes[..8].copy_from_slice(&thread.to_le_bytes());
    bytes[8..16].copy_from_slice(&round.to_le_bytes());
    TokenSeed(bytes)
}

fn one(store: &dyn Store, operation: Operation) -> towline_store::Answered {
    let mut answers = block_on(store.update(vec![operation])).expect("the store answers").answers;
    assert_eq!(answers.len(), 1);
    answers.remove(0)
}

fn receive(rig: &Rig, store: &dyn Store, max: u32, seed: TokenSeed) -> Vec<(ItemId, LeaseToken)> {
    let call = towline_store::ReceiveCall { seed, ..rig.receive_call("jobs", max) };
    match one(store, Operation::Receive(Box::new(call))) {
        Ok(Reply::Received(received)) => {
            let pair =
                |item: &towline_domain::Item| (item.head.id, item.head.lease().expect("a lease").token);
            received.items.iter().map(pair).collect()
        }
        other => panic!("a receive was answered with {other:?}"),
    }
}

pub(super) fn events_of_parallel_writers_are_complete_and_in_order(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, Policy { max_retries: 1000, ..plain() });
    let begin = rig.current_end();
    let running = AtomicUsize::new(THREADS - 1);
    let each = 30;
    // One thread reads while the others write.
    let events = race(&rig, |thread, store| {
        if thread == 0 {
            let (mut seen, mut cursor) = (Vec::new(), begin.clone());
            loop {
                let over = running.load(Ordering::SeqCst) == 0;
                let (events, next) = rig.read_events(EventsFrom::After(cursor), 50);
                cursor = next;
                let nothing = events.is_empty();
                seen.extend(events);
                if over && nothing {
                    return seen;
                }
            }
        }
        for n in 0..each {
            submitted(&one(store, submit("jobs", payload("work"))));
            for (id, token) in receive(&rig, store, 3, seed(thread, n)) {
                let verb = if n % 3 == 0 { release() } else { commit() };
                one(store, lease_call(id, token, verb, Adjust::default()))
                    .expect("this thread holds the lease");
            }
        }
        running.fetch_sub(1, Ordering::SeqCst);
        Vec::new()
    });
    let mut changes: BTreeMap<ItemId, Vec<_>> = BTreeMap::new();
    for event in events.into_iter().flatten() {
        let item = event.item.expect("an event of an item");
        changes.entry(item.id).or_default().push((event.kind, item.after.expect("no item is removed")));
    }
    assert_eq!(changes.len(), (THREADS - 1) * each);
    for (id, history) in changes {
        let head = rig.item(id).head;
        let mut expected = vec![EventKind::Submitted];
        for delivery in 1..=head.deliveries {
            expected.push(EventKind::Received);
            let last = delivery == head.deliveries;
            let given_back = !(last && head.is_terminal());
            expected.push(if given_back { EventKind::Released } else { EventKind::Completed });
        }
        let kinds: Vec<_> = history.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(kinds, expected, "{id}");
        assert!(history.is_sorted_by_key(|(_, after)| after.deliveries), "{id}");
    }
}

pub(super) fn every_item_is_committed_exactly_once(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, Policy { max_retries: 1000, ..plain() });
    let each = 40;
    let committed = AtomicUsize::new(0);
    let commits = race(&rig, |thread, store| {
        for n in 0..each {
            let key = format!("{thread}/{n}");
            let (_, created) = submitted(&one(store, submit("jobs", keyed(&key, key.clone()))));
            assert!(created);
        }
        let mut mine = Vec::new();
        let mut round = 0;
        while committed.load(Ordering::SeqCst) < THREADS * each {
            round += 1;
            let batch = receive(&rig, store, 5, seed(thread, round));
            let settle = |(n, (id, token)): (usize, &(ItemId, LeaseToken))| {
                let verb = if (n + round).is_multiple_of(4) { release() } else { commit() };
                lease_call(*id, *token, verb, Adjust::default())
            };
            let calls: Vec<_> = batch.iter().enumerate().map(settle).collect();
            for (answer, (id, _)) in
                block_on(store.update(calls)).expect("the store answers").answers.iter().zip(&batch)
            {
                if *answer == left(ItemState::Completed) {
                    mine.push(*id);
                    committed.fetch_add(1, Ordering::SeqCst);
                } else {
                    assert_eq!(*answer, left(ItemState::Pending), "this thread holds the lease");
                }
            }
        }
        mine
    });
    let all: Vec<ItemId> = commits.into_iter().flatten().collect();
    let once: BTreeSet<_> = all.iter().collect();
    assert_eq!((all.len(), once.len()), (THREADS * each, THREADS * each));
    assert_eq!(rig.counts("jobs").completed as usize, THREADS * each);
    assert_eq!(rig.counts("jobs").total() as usize, THREADS * each);
}

pub(super) fn one_of_many_parallel_settles_succeeds(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    for _ in 0..20 {
        let held = rig.hold("jobs");
        let verbs = [commit(), fail("e"), retry("e"), release(), defer(1), fail("f"), retry("f"), defer(2)];
        let answers = race(&rig, |thread, store| one(store, held.call(verbs[thread].clone())));
        let won = answers.iter().filter(|answer| answer.is_ok()).count();
        assert_eq!(won, 1, "{answers:?}");
        let lost = answers.iter().filter(|answer| code(answer) == "already_settled").count();
        assert_eq!(lost, THREADS - 1);
        rig.delete(held.id);
    }
}

pub(super) fn one_of_many_parallel_receivers_gets_an_item(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    for round in 0..20 {
        let id = rig.submit("jobs", payload("work"));
        let got = race(&rig, |thread, store| receive(&rig, store, 3, seed(thread, round)));
        let got: Vec<_> = got.into_iter().flatten().collect();
        assert_eq!(got.len(), 1);
        assert_eq!(got[0].0, id);
        assert_eq!(rig.item(id).head.deliveries, 1);
    }
}

pub(super) fn parallel_submits_with_one_key_create_one_item(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    for round in 0..20 {
        let key = format!("key {round}");
        let answers = race(&rig, |thread, store| {
            let content = if thread == 0 { "other" } else { "work" };
            one(store, submit("jobs", keyed(&key, content)))
        });
        let created = answers.iter().filter(|answer| answer.is_ok() && submitted(answer).1);
        assert_eq!(created.count(), 1, "{answers:?}");
        let known: BTreeSet<_> =
            answers.iter().filter(|answer| answer.is_ok()).map(|answer| submitted(answer).0).collect();
        assert_eq!(known.len(), 1, "all threads got the same item");
        let conflicts = answers.iter().filter(|answer| code(answer) == "key_conflict").count();
        assert!(conflicts == 1 || conflicts == THREADS - 1, "{answers:?}");
        assert_eq!(rig.counts("jobs").total(), round + 1);
    }
}

pub(super) fn parallel_submits_with_one_id_create_one_item(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    for round in 0..20 {
        let id = chosen(round);
        let answers = race(&rig, |_, store| {
            let submission = towline_domain::Submission { id: Some(id), ..payload("work") };
            code(&one(store, submit("jobs", submission)))
        });
        let created = answers.iter().filter(|code| **code == "ok").count();
        let taken = answers.iter().filter(|code| **code == "id_taken").count();
        assert_eq!((created, taken), (1, THREADS - 1));
    }
}

pub(super) fn the_depth_limit_holds_with_parallel_submits(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, Policy { depth_limit: Some(50), ..plain() });
    let accepted = race(&rig, |_, store| {
        let mut accepted = 0;
        for _ in 0..10 {
            let batch = vec![submit("jobs", payload("work")), submit("jobs", payload("work"))];
            let answers = block_on(store.update(batch)).expect("the store answers").answers;
            accepted += answers.iter().filter(|answer| answer.is_ok()).count();
        }
        accepted
    });
    assert_eq!(accepted.iter().sum::<usize>(), 50);
    assert_eq!(rig.counts("jobs").pending, 50);
}

pub(super) fn one_of_many_parallel_set_if_absent_wins(harness: &dyn Harness) {
    let rig = Rig::open(harness);
    for round in 0..20 {
        let key = format!("key {round}");
        let won = race(&rig, |thread, store| {
            let command = KvCommand::SetIfAbsent { value: thread.to_string().into(), ttl: None };
            let key = key.clone();
            one(store, Operation::Kv { key, command }) == Ok(Reply::Kv(KvAnswer::Won(true)))
        });
        let winners: Vec<_> = (0..THREADS).filter(|&thread| won[thread]).collect();
        assert_eq!(winners.len(), 1);
        let value = rig.kv_get(&key).map(|record| record.value);
        assert_eq!(value, Some(winners[0].to_string().into()));
    }
}

pub(super) fn parallel_increments_add_up(harness: &dyn Harness) {
    let rig = Rig::open(harness);
    let seen = race(&rig, |_, store| {
        let add =
            || Operation::Kv { key: "n".to_owned(), command: KvCommand::Increment { by: 1, ttl: None } };
        let mut seen = Vec::new();
        for _ in 0..30 {
            let answers = block_on(store.update(vec![add(), add()])).expect("the store answers").answers;
            for answer in answers {
                match answer {
                    Ok(Reply::Kv(KvAnswer::Number(number))) => seen.push(number),
                    other => panic!("an increment was answered with {other:?}"),
                }
            }
        }
        assert!(seen.is_sorted(), "the increments of one thread are in order");
        seen
    });
    let mut all: Vec<i64> = seen.into_iter().flatten().collect();
    all.sort_unstable();
    assert!(all.into_iter().eq(1..=8 * 60), "each number appears once");
}

pub(super) fn parallel_increment_once_counts_each_thing_once(harness: &dyn Harness) {
    let rig = Rig::open(harness);
    let seen = race(&rig, |thread, store| {
        let count = |n: usize| {
            let command = KvCommand::IncrementOnce { by: 1, once: n.to_string(), ttl: Millis(60_000) };
            (n, one(store, Operation::Kv { key: "n".to_owned(), command }))
        };
        // Each thread starts with another thing.
        (0..20).map(|n| count((n + thread * 3) % 20)).collect::<BTreeMap<_, _>>()
    });
    assert!(seen.iter().all(|others| *others == seen[0]), "all threads got the reply of the first: {seen:?}");
    assert_eq!(rig.kv_get("n").map(|record| record.value), Some("20".into()));
}

pub(super) fn readers_see_consistent_counts_during_writes(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    rig.submit_many("jobs", 30);
    race(&rig, |thread, store| {
        for round in 0..30 {
            if thread < 4 {
                for (id, token) in receive(&rig, store, 3, seed(thread, round)) {
                    let call = lease_call(id, token, defer(0), Adjust::default());
                    assert_eq!(one(store, call), left(ItemState::Pending));
                }
            } else {
                let view = block_on(store.queue(name("jobs"))).expect("the store answers");
                let counts = view.expect("the queue exists").counts;
                assert_eq!(counts.total(), 30, "an item is always in one state: {counts:?}");
            }
        }
    });
    assert_eq!(rig.counts("jobs").pending, 30);
}
