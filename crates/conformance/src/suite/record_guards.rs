//! Submits with a record guard.

use super::Harness;
use super::operations::*;
use super::rig::*;
use futures::executor::block_on;
use std::sync::atomic::{AtomicU32, Ordering};
use towline_domain::command::RecordGuard;
use towline_domain::kv::KvCommand;
use towline_domain::{Millis, Submission, Timestamp};
use towline_store::{Operation, Reply};

const KEY: &str = "guarded record";

fn guarded(seen: &str, next: &str, not_before: Timestamp) -> Submission {
    let (seen, next) = (seen.to_owned().into(), next.to_owned().into());
    let once = RecordGuard { key: KEY.to_owned(), seen, next, not_before };
    Submission { record_guard: Some(Box::new(once)), ..payload(format!("guarded by {KEY}")) }
}

fn with_record(harness: &dyn Harness) -> Rig {
    let rig = Rig::with_queue(harness, plain());
    rig.kv(KEY, KvCommand::Set { value: "0".into(), ttl: None }).expect("set");
    rig
}

#[track_caller]
fn holds(rig: &Rig, value: &str, items: usize) {
    let record = rig.kv_get(KEY).expect("the record exists");
    assert_eq!((&record.value[..], record.expires_at), (value.as_bytes(), None));
    assert_eq!(rig.list_ids(&towline_store::Filter::default()).len(), items);
    rig.check();
}

pub(super) fn an_item_and_its_guarded_record_change_together(harness: &dyn Harness) {
    let rig = with_record(harness);
    assert_eq!(code(&rig.run(submit("jobs", guarded("1", "2", START)))), "record_changed");
    holds(&rig, "0", 0);
    let (_, created) = submitted(&rig.run(submit("jobs", guarded("0", "1", START))));
    assert!(created);
    holds(&rig, "1", 1);
    assert_eq!(code(&rig.run(submit("jobs", guarded("0", "1", START)))), "record_changed", "a repeat");
    holds(&rig, "1", 1);
    // Within a batch, each submit sees the effects of earlier ones.
    let batch =
        [("1", "2"), ("1", "3"), ("2", "4")].map(|(seen, next)| submit("jobs", guarded(seen, next, START)));
    let answers = rig.update(batch.to_vec());
    assert_eq!(answers.iter().map(code).collect::<Vec<_>>(), ["ok", "record_changed", "ok"]);
    holds(&rig, "4", 3);
    rig.kv(KEY, KvCommand::Delete).expect("deleted");
    assert_eq!(code(&rig.run(submit("jobs", guarded("4", "5", START)))), "record_changed");
    assert_eq!(rig.kv_get(KEY), None);
}

pub(super) fn only_one_of_many_submits_with_the_same_record_guard_succeeds(harness: &dyn Harness) {
    let rig = with_record(harness);
    for round in 0..20 {
        let (seen, next) = (round.to_string(), (round + 1).to_string());
        let won = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let operation = submit("jobs", guarded(&seen, &next, START));
                    let mut answers = block_on(rig.store.update(vec![operation])).expect("the store answers");
                    let answer = answers.answers.remove(0);
                    assert!(matches!(code(&answer), "ok" | "record_changed"), "{answer:?}");
                    won.fetch_add(u32::from(answer.is_ok()), Ordering::SeqCst);
                });
            }
        });
        assert_eq!(won.load(Ordering::SeqCst), 1);
        holds(&rig, &next, round + 1);
    }
}

pub(super) fn a_refused_submit_does_not_change_its_record(harness: &dyn Harness) {
    let rig = with_record(harness);
    assert_eq!(code(&rig.run(submit("nowhere", guarded("0", "1", START)))), "queue_not_found");
    holds(&rig, "0", 0);
    let long = "x".repeat(towline_domain::limits::KV_VALUE_BYTES_MAX + 1);
    assert_eq!(code(&rig.run(submit("jobs", guarded("0", &long, START)))), "too_large");
    holds(&rig, "0", 0);
    rig.run(Operation::CloseQueue { queue: name("jobs") }).expect("closed");
    assert_eq!(code(&rig.run(submit("jobs", guarded("0", "1", START)))), "queue_closed");
    holds(&rig, "0", 0);
}

pub(super) fn a_guarded_submit_is_refused_before_its_time(harness: &dyn Harness) {
    let rig = with_record(harness);
    let at = START.after(Millis(500));
    rig.clock.advance(499);
    assert_eq!(code(&rig.run(submit("jobs", guarded("0", "1", at)))), "not_due");
    holds(&rig, "0", 0);
    rig.clock.advance(1);
    assert!(matches!(rig.run(submit("jobs", guarded("0", "1", at))), Ok(Reply::Answer(_))));
    holds(&rig, "1", 1);
}

pub(super) fn item_and_record_survive_a_reopen(harness: &dyn Harness) {
    let mut rig = with_record(harness);
    for number in 0..10 {
        let (seen, next) = (format!("{number}"), format!("{}", number + 1));
        assert!(submitted(&rig.run(submit("jobs", guarded(&seen, &next, START)))).1);
        let Some(reopened) = rig.reopen(harness) else { return };
        rig = reopened;
        holds(&rig, &next, number + 1);
    }
}
