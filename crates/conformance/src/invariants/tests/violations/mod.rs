//! One history for every way to break a promise. Each starts true, on the reference store, and is then falsified.

use crate::ReferenceStore;
use crate::invariants::{Checker, Snapshot, snapshot};
use bytes::Bytes;
use futures::executor::block_on;
use std::sync::Arc;
use towline_domain::change::Answer;
use towline_domain::command::{Adjust, Verb, When};
use towline_domain::item::Claim;
use towline_domain::refusal::LostWhy;
use towline_domain::{
    Body, Field, FieldEdits, FieldSet, Fields, Flow, Item, ItemId, Json, LeaseCall, LeaseToken, Millis,
    Order, Outcome, Overrides, Policy, PolicyPatch, QueueId, QueueName, QueueState, Refusal, Schema, State,
    Submission, Timestamp, TokenSeed,
};
use towline_store::{Answered, ManualClock, Operation, ReceiveCall, Received, Reply, Store};
use uuid::Uuid;

struct History {
    checker: Checker,
    store: ReferenceStore,
    clock: Arc<ManualClock>,
    calls: u64,
}

fn q() -> QueueName {
    "q".parse().unwrap()
}

impl History {
    /// A queue with a lease of 1 s, two retries, and 5 s for what has ended.
    fn new() -> History {
        History::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut Policy)) -> History {
        let mut policy = Policy {
            visibility_timeout: Millis(1000),
            max_retries: 2,
            completed_ttl: Some(Millis(5000)),
            failed_ttl: Some(Millis(5000)),
            ..Policy::default()
        };
        change(&mut policy);
        let clock = Arc::new(ManualClock::new(Timestamp(1_000_000)));
        let mut history = History {
            checker: Checker::new(),
            store: ReferenceStore::new(clock.clone(), 7),
            clock,
            calls: 0,
        };
        history
            .done(Operation::CreateQueue {
                queue: q(),
                schema: Box::new(Schema::default()),
                policy: Box::new(policy),
            })
            .unwrap();
        history
    }

    fn now(&self) -> Timestamp {
        use towline_store::Clock;
        self.clock.now()
    }

    fn invoke(&mut self, operation: &Operation) -> u64 {
        self.calls += 1;
        self.checker.invoked(self.calls, std::slice::from_ref(operation), self.now());
        self.calls
    }

    fn answer(&mut self, call: u64, answer: Answered) {
        self.checker.answered(call, &[answer], self.now());
    }

    fn happen(&mut self, operation: Operation) -> Answered {
        block_on(self.store.update(vec![operation])).unwrap().remove(0)
    }

    /// Asked, carried out, answered.
    fn done(&mut self, operation: Operation) -> Answered {
        let call = self.invoke(&operation);
        let answer = self.happen(operation);
        self.answer(call, answer.clone());
        answer
    }

    /// Asked and answered, whatever the store would have said.
    fn told(&mut self, operation: Operation, answer: Answered) {
        let call = self.invoke(&operation);
        self.answer(call, answer);
    }

    fn submit(&mut self, blob: &'static str) -> ItemId {
        submitted(&self.done(submit(blob, |_| {})))
    }

    fn receive(&mut self, max: u32) -> Vec<Item> {
        let operation = receive(max, self.calls);
        match self.done(operation) {
            Ok(Reply::Received(received)) => received.items,
            other => panic!("{other:?}"),
        }
    }

    fn received(&mut self, items: Vec<Item>) {
        let queue = QueueState::Open;
        let operation = receive(10, self.calls);
        self.told(operation, Ok(Reply::Received(Received { queue, items, throttle: None, more: 0 })));
    }

    fn snapshot(&self) -> Snapshot {
        block_on(snapshot(&self.store, self.now())).unwrap()
    }

    fn observe(&mut self, falsify: impl FnOnce(&mut Snapshot)) {
        let mut seen = self.snapshot();
        falsify(&mut seen);
        self.checker.observed(&seen);
    }

    fn numbers(&self) -> Vec<u8> {
        self.checker.violations().iter().map(|violation| violation.invariant).collect()
    }

    #[track_caller]
    fn breaks(&self, invariant: u8) {
        assert!(!self.numbers().is_empty(), "nothing was reported");
        assert!(self.numbers().contains(&invariant), "{:#?}", self.checker.violations());
    }

    #[track_caller]
    fn keeps(&self) {
        assert_eq!(self.checker.violations(), []);
    }
}

fn submit(blob: &'static str, change: impl FnOnce(&mut Submission)) -> Operation {
    let mut submission = Submission {
        body: Body { params: [("p".to_owned(), Json::string("v"))].into(), ..Body::default() },
        fields: Fields { blob: Some(Bytes::from(blob)), ..Fields::default() },
        ..Submission::default()
    };
    change(&mut submission);
    Operation::Submit { queue: q(), submission: Box::new(submission) }
}

fn keyed(blob: &'static str, key: &str) -> Operation {
    submit(blob, |submission| submission.body.idempotency_key = Some(key.to_owned()))
}

fn submitted(answer: &Answered) -> ItemId {
    match answer {
        Ok(Reply::Answer(Answer::Submitted { id, .. })) => *id,
        other => panic!("{other:?}"),
    }
}

fn created(id: ItemId, created: bool) -> Answered {
    Ok(Reply::Answer(Answer::Submitted { id, created }))
}

fn state(name: &'static str) -> Answered {
    Ok(Reply::Answer(Answer::State(name)))
}

fn receive(max: u32, seed: u64) -> Operation {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    Operation::Receive(Box::new(ReceiveCall {
        queue: q(),
        max,
        visibility: None,
        assigned: false,
        seed: TokenSeed(bytes),
        fields: FieldSet::ALL,
        make_buffers: false,
    }))
}

fn token(item: &Item) -> LeaseToken {
    item.head.lease().unwrap().token
}

fn lease(id: ItemId, token: LeaseToken, verb: Verb) -> Operation {
    let adjust = Adjust::default();
    Operation::Lease { id, call: Box::new(LeaseCall { token, verb, adjust }) }
}

fn by(item: &Item, verb: Verb) -> Operation {
    lease(item.head.id, token(item), verb)
}

fn commit() -> Verb {
    Verb::Commit(Outcome {
        output_params: [("r".to_owned(), Json::string("done"))].into(),
        ..Outcome::default()
    })
}

fn fail() -> Verb {
    Verb::Fail { reason: "no".to_owned() }
}

fn release() -> Verb {
    Verb::Release { delay: Millis::ZERO }
}

/// The same item, given out once more under another lease.
fn again(item: &Item, now: Timestamp) -> Item {
    let mut next = item.clone();
    next.head.deliveries += 1;
    next.head.retries += 1;
    next.head.revision += 2;
    if let State::Processing(lease) = &mut next.head.state {
        lease.token = LeaseToken(Uuid::from_u128(99));
        lease.deadline = now.after(Millis(1000));
    }
    next
}

mod submits {
    use super::*;

    #[test]
    fn an_acknowledged_submit_is_gone() {
        let mut history = History::new();
        history.submit("a");
        history.observe(|seen| {
            seen.items.clear();
            seen.queues[0].counts.pending = 0;
        });
        history.breaks(1);
    }

    #[test]
    fn an_acknowledged_submit_is_not_found() {
        let mut history = History::new();
        let id = history.submit("a");
        history.told(Operation::Pause { id }, Err(Refusal::ItemNotFound { id }));
        history.breaks(1);
    }

    #[test]
    fn an_unanswered_submit_appears_twice() {
        let mut history = History::new();
        let call = history.invoke(&submit("a", |_| {}));
        history.checker.lost(call);
        history.happen(submit("a", |_| {})).unwrap();
        history.observe(|_| {});
        history.keeps();
        history.happen(submit("a", |_| {})).unwrap();
        history.observe(|_| {});
        history.breaks(1);
    }

    #[test]
    fn an_unanswered_submit_may_appear_or_not_until_it_had_its_chance() {
        let mut history = History::new();
        let call = history.invoke(&submit("a", |_| {}));
        history.checker.lost(call);
        history.observe(|_| {});
        history.checker.restarted();
        history.observe(|_| {});
        history.keeps();
        history.happen(submit("a", |_| {})).unwrap();
        history.observe(|_| {});
        history.breaks(2);
    }

    #[test]
    fn a_change_that_was_answered_is_undone() {
        let mut history = History::new();
        history.submit("a");
        let before = history.snapshot();
        history.receive(1);
        history.observe(|seen| *seen = before);
        history.breaks(1);
    }

    #[test]
    fn an_item_that_nobody_submitted() {
        let mut history = History::new();
        history.happen(submit("a", |_| {})).unwrap();
        history.observe(|_| {});
        history.breaks(2);
    }

    #[test]
    fn an_item_that_nobody_submitted_is_received() {
        let mut history = History::new();
        history.happen(submit("a", |_| {})).unwrap();
        history.receive(1);
        history.breaks(2);
    }

    #[test]
    fn a_payload_is_not_the_one_submitted() {
        let mut history = History::new();
        history.submit("a");
        history.observe(|seen| seen.items[0].item.fields.blob = Some(Bytes::from("b")));
        history.breaks(2);
    }

    #[test]
    fn a_parameter_is_not_the_one_submitted() {
        let mut history = History::new();
        history.submit("a");
        let mut items = history.happen(receive(1, 1)).map(|reply| match reply {
            Reply::Received(received) => received.items,
            _ => Vec::new(),
        });
        items.as_mut().unwrap()[0].item_params().clear();
        history.received(items.unwrap());
        history.breaks(2);
    }

    trait Params {
        fn item_params(&mut self) -> &mut std::collections::BTreeMap<String, Json>;
    }

    impl Params for Item {
        fn item_params(&mut self) -> &mut std::collections::BTreeMap<String, Json> {
            &mut self.body.params
        }
    }

    #[test]
    fn an_edit_that_was_refused_took_effect() {
        let mut history = History::new();
        history.submit("a");
        let item = history.receive(1).remove(0);
        let edits = FieldEdits::default().set(Field::Metadata, Bytes::from("m"));
        let edit = Operation::Lease {
            id: item.head.id,
            call: Box::new(LeaseCall {
                token: LeaseToken(Uuid::from_u128(5)),
                verb: Verb::Edit,
                adjust: Adjust { edits, ..Adjust::default() },
            }),
        };
        assert!(history.done(edit).is_err());
        history.observe(|seen| seen.items[0].item.fields.metadata = Some(Bytes::from("m")));
        history.breaks(2);
    }

    #[test]
    fn a_deleted_item_is_back() {
        let mut history = History::new();
        let id = history.submit("a");
        let before = history.snapshot();
        let delete = Operation::Delete { id, force: false };
        history.done(delete).unwrap();
        history.observe(|_| {});
        history.keeps();
        history.observe(|seen| *seen = before);
        history.breaks(2);
    }
}

mod leases {
    use super::*;

    #[test]
    fn an_item_is_given_out_while_its_lease_is_valid() {
        let mut history = History::new();
        history.submit("a");
        let item = history.receive(1).remove(0);
        history.clock.advance(999);
        history.received(vec![again(&item, history.now())]);
        history.breaks(3);
    }

    #[test]
    fn an_item_is_given_out_again_when_its_lease_is_over() {
        let mut history = History::new();
        history.submit("a");
        history.receive(1);
        history.clock.advance(1000);
        assert_eq!(history.receive(1).len(), 1);
        history.observe(|_| {});
        history.keeps();
    }

    #[test]
    fn a_heartbeat_was_answered_and_ignored() {
        let mut history = History::new();
        history.submit("a");
        let item = history.receive(1).remove(0);
        history.clock.advance(900);
        history.done(by(&item, Verb::Heartbeat { visibility: None })).unwrap();
        history.clock.advance(500);
        history.received(vec![again(&item, history.now())]);
        history.breaks(3);
    }

    #[test]
    fn only_a_settle_in_flight_explained_it_and_that_was_refused() {
        let mut history = History::new();
        history.submit("a");
        let item = history.receive(1).remove(0);
        let call = history.invoke(&by(&item, release()));
        history.received(vec![again(&item, history.now())]);
        history.keeps();
        let (id, why) = (item.head.id, LostWhy::Superseded);
        history.answer(call, Err(Refusal::LeaseLost { id, why }));
        history.breaks(3);
    }

    #[test]
    fn an_unanswered_settle_explains_it() {
        let mut history = History::new();
        history.submit("a");
        let item = history.receive(1).remove(0);
        let call = history.invoke(&by(&item, release()));
        history.happen(by(&item, release())).unwrap();
        history.checker.lost(call);
        assert_eq!(history.receive(1).len(), 1);
        history.observe(|_| {});
        history.keeps();
    }

    #[test]
    fn a_snapshot_shows_another_lease() {
        let mut history = History::new();
        history.submit("a");
        history.receive(1);
        history.observe(|seen| {
            if let State::Processing(lease) = &mut seen.items[0].item.head.state {
                lease.token = LeaseToken(Uuid::from_u128(3));
            }
        });
        history.breaks(3);
    }

    #[test]
    fn a_valid_lease_is_refused() {
        let mut history = History::new();
        history.submit("a");
        let item = history.receive(1).remove(0);
        let (id, why) = (item.head.id, LostWhy::Superseded);
        history.told(by(&item, commit()), Err(Refusal::LeaseLost { id, why }));
        history.breaks(3);
    }

    #[test]
    fn a_foreign_lease_commits() {
        let mut history = History::new();
        let id = history.submit("a");
        history.receive(1);
        history.told(lease(id, LeaseToken(Uuid::from_u128(3)), commit()), state("completed"));
        history.breaks(4);
    }

    #[test]
    fn an_expired_lease_settles_or_extends() {
        for verb in [commit(), fail(), release(), Verb::Edit, Verb::Heartbeat { visibility: None }] {
            let mut history = History::new();
            history.submit("a");
            let item = history.receive(1).remove(0);
            history.clock.advance(1000);
            let deadline = history.now().after(Millis(1000));
            let answer = match verb {
                Verb::Commit(_) => Answer::State("completed"),
                Verb::Fail { .. } => Answer::State("failed"),
                Verb::Release { .. } => Answer::State("pending"),
                _ => Answer::Leased { deadline },
            };
            history.told(by(&item, verb), Ok(Reply::Answer(answer)));
            history.breaks(4);
        }
    }

    #[test]
    fn a_stale_lease_fails_the_item_of_another() {
        let mut history = History::new();
        history.submit("a");
        let first = history.receive(1).remove(0);
        history.clock.advance(1500);
        history.receive(1);
        history.told(by(&first, fail()), state("failed"));
        history.breaks(4);
    }

    #[test]
    fn a_lease_is_honoured_after_the_item_was_cancelled_or_removed() {
        let cancel = |id| Operation::Cancel { id, reason: String::new() };
        let delete = |id| Operation::Delete { id, force: true };
        for end in [cancel, delete] {
            let mut history = History::new();
            let id = history.submit("a");
            let item = history.receive(1).remove(0);
            history.done(end(id)).unwrap();
            history.told(by(&item, commit()), state("completed"));
            history.breaks(4);
        }
    }

    #[test]
    fn a_lease_settles_twice_in_different_ways() {
        let mut history = History::new();
        history.submit("a");
        let item = history.receive(1).remove(0);
        history.done(by(&item, release())).unwrap();
        history.told(by(&item, fail()), state("failed"));
        history.breaks(5);
    }

    #[test]
    fn a_repeated_settle_gets_another_answer() {
        let mut history = History::new();
        history.submit("a");
        let item = history.receive(1).remove(0);
        history.done(by(&item, commit())).unwrap();
        history.done(by(&item, commit())).unwrap();
        history.keeps();
        history.told(by(&item, commit()), state("failed"));
        history.breaks(5);
    }

    #[test]
    fn two_leases_commit() {
        let mut history = History::new();
        history.submit("a");
        let first = history.receive(1).remove(0);
        // They overlap, so that neither is known to be stale.
        let call = history.invoke(&by(&first, commit()));
        history.clock.advance(1500);
        let second = history.receive(1).remove(0);
        history.done(by(&second, commit())).unwrap();
        history.answer(call, state("completed"));
        history.breaks(5);
    }

    #[test]
    fn an_item_is_completed_and_nobody_committed_it() {
        let mut history = History::new();
        history.submit("a");
        let item = history.receive(1).remove(0);
        history.happen(by(&item, commit())).unwrap();
        history.observe(|_| {});
        history.breaks(5);
    }
}

mod ends {
    use super::*;

    #[test]
    fn a_failed_item_is_given_out() {
        let mut history = History::new();
        history.submit("a");
        let item = history.receive(1).remove(0);
        history.done(by(&item, fail())).unwrap();
        history.received(vec![again(&item, history.now())]);
        history.breaks(6);
    }

    #[test]
    fn a_redriven_item_is_given_out() {
        let mut history = History::new();
        let id = history.submit("a");
        let item = history.receive(1).remove(0);
        history.done(by(&item, fail())).unwrap();
        history.done(Operation::Redrive { id }).unwrap();
        assert_eq!(history.receive(1).len(), 1);
        history.observe(|_| {});
        history.keeps();
    }

    #[test]
    fn a_completed_item_is_pending_again() {
        let mut history = History::new();
        history.submit("a");
        let item = history.receive(1).remove(0);
        history.done(by(&item, commit())).unwrap();
        history.observe(|seen| {
            seen.items[0].item.head.state = State::Pending;
            (seen.queues[0].counts.completed, seen.queues[0].counts.pending) = (0, 1);
        });
        history.breaks(6);
        history.breaks(12);
    }

    #[test]
    fn a_completed_item_is_redriven_cancelled_or_paused() {
        for (operation, answer) in [
            ((|id| Operation::Redrive { id }) as fn(ItemId) -> Operation, "pending"),
            (|id| Operation::Cancel { id, reason: String::new() }, "failed"),
            (|id| Operation::Pause { id }, "paused"),
        ] {
            let mut history = History::new();
            let id = history.submit("a");
            let item = history.receive(1).remove(0);
            history.done(by(&item, commit())).unwrap();
            history.told(operation(id), state(answer));
            history.breaks(6);
        }
    }

    #[test]
    fn a_terminal_item_changes_between_two_snapshots() {
        let mut history = History::new();
        history.submit("a");
        let item = history.receive(1).remove(0);
        history.done(by(&item, fail())).unwrap();
        history.observe(|_| {});
        history.keeps();
        history.observe(|seen| seen.items[0].item.head.revision += 1);
        history.breaks(6);
    }

    #[test]
    fn a_committed_result_is_not_there() {
        let mut history = History::new();
        history.submit("a");
        let item = history.receive(1).remove(0);
        history.done(by(&item, commit())).unwrap();
        history.observe(|seen| seen.items[0].item.outcome = Outcome::default());
        history.breaks(12);
    }

    #[test]
    fn a_completed_item_is_removed_before_its_ttl() {
        let mut history = History::new();
        history.submit("a");
        let item = history.receive(1).remove(0);
        history.done(by(&item, commit())).unwrap();
        history.clock.advance(4999);
        history.observe(|seen| {
            seen.items.clear();
            seen.queues[0].counts.completed = 0;
        });
        history.breaks(12);
    }

    #[test]
    fn a_completed_item_is_removed_by_its_ttl() {
        let mut history = History::new();
        history.submit("a");
        let item = history.receive(1).remove(0);
        history.done(by(&item, commit())).unwrap();
        history.clock.advance(5000);
        history.done(Operation::Sweep).unwrap();
        history.observe(|seen| assert_eq!(seen.items, []));
        history.keeps();
    }

    #[test]
    fn an_item_that_waits_is_removed_when_a_ttl_has_passed() {
        let mut history = History::new();
        history.submit("a");
        history.clock.advance(6000);
        history.observe(|seen| {
            seen.items.clear();
            seen.queues[0].counts.pending = 0;
        });
        history.breaks(13);
    }

    #[test]
    fn an_item_is_given_out_before_its_time() {
        let mut history = History::new();
        let later = submit("a", |submission| submission.ready = When::After(Millis(500)));
        history.done(later).unwrap();
        history.clock.advance(500);
        let item = match history.happen(receive(1, 1)) {
            Ok(Reply::Received(mut received)) => received.items.remove(0),
            other => panic!("{other:?}"),
        };
        let mut early = item.clone();
        early.head.ready_at = Timestamp(history.now().0 + 1);
        history.received(vec![early]);
        history.breaks(13);
    }

    #[test]
    fn a_deferred_item_is_given_out_too_soon() {
        let mut history = History::new();
        history.submit("a");
        let item = history.receive(1).remove(0);
        let until = When::After(Millis(500));
        history.done(by(&item, Verb::Defer { until })).unwrap();
        history.clock.advance(499);
        let mut early = again(&item, history.now());
        early.head.retries = 0;
        history.received(vec![early]);
        history.breaks(13);
    }
}

mod numbers {
    use super::*;

    #[test]
    fn more_is_in_hand_than_a_limit_allows() {
        let of_queue = Flow { concurrency: Some(1), ..Flow::default() };
        let of_key = Flow { concurrency_per_key: Some(1), ..Flow::default() };
        for (flow, keys, broken) in
            [(of_queue, ["a", "b"], true), (of_key.clone(), ["a", "a"], true), (of_key, ["a", "b"], false)]
        {
            let mut history = History::with(|policy| policy.flow = flow);
            // As if the store did not keep to it.
            let patch = PolicyPatch {
                concurrency: Some(None),
                concurrency_per_key: Some(None),
                ..PolicyPatch::default()
            };
            history.happen(Operation::ChangePolicy { queue: q(), patch: Box::new(patch) }).unwrap();
            for key in keys {
                history.done(submit(key, |item| item.body.fairness_key = Some(key.to_owned()))).unwrap();
            }
            assert_eq!(history.receive(2).len(), 2);
            history.observe(|_| {});
            let found = history.numbers().contains(&16);
            assert_eq!(found, broken, "{keys:?} {:#?}", history.checker.violations());
        }
    }

    #[test]
    fn a_delivery_is_skipped() {
        let mut history = History::new();
        history.submit("a");
        let item = history.receive(1).remove(0);
        history.clock.advance(1000);
        let mut next = again(&item, history.now());
        next.head.deliveries += 1;
        history.received(vec![next]);
        history.breaks(7);
    }

    #[test]
    fn two_receives_get_the_same_delivery() {
        let mut history = History::new();
        history.submit("a");
        let item = history.receive(1).remove(0);
        history.clock.advance(1000);
        let mut next = again(&item, history.now());
        next.head.deliveries = 1;
        next.head.retries = 0;
        history.received(vec![next]);
        history.breaks(7);
    }

    #[test]
    fn a_lapse_is_not_counted_or_a_defer_is() {
        for deferred in [false, true] {
            let mut history = History::new();
            history.submit("a");
            let item = history.receive(1).remove(0);
            if deferred {
                history.done(by(&item, Verb::Defer { until: When::NOW })).unwrap();
            }
            history.clock.advance(1000);
            let mut next = again(&item, history.now());
            next.head.retries = u32::from(deferred);
            history.received(vec![next]);
            history.breaks(7);
        }
    }

    #[test]
    fn an_attempt_beyond_the_last() {
        let mut history = History::new();
        let once = submit("a", |submission| {
            submission.overrides = Overrides { max_retries: Some(0), ..Overrides::default() };
        });
        history.done(once).unwrap();
        let item = history.receive(1).remove(0);
        history.told(by(&item, release()), state("pending"));
        history.breaks(7);
        history.received(vec![again(&item, history.now())]);
        assert_eq!(history.numbers(), [7, 7]);
    }

    #[test]
    fn retries_fall() {
        let mut history = History::new();
        history.submit("a");
        let item = history.receive(1).remove(0);
        history.done(by(&item, release())).unwrap();
        history.receive(1);
        history.observe(|seen| seen.items[0].item.head.retries = 0);
        history.breaks(7);
    }

    #[test]
    fn deliveries_that_nobody_received() {
        let mut history = History::new();
        history.submit("a");
        history.happen(receive(1, 1)).unwrap();
        history.observe(|_| {});
        history.breaks(7);
    }

    #[test]
    fn a_delivery_whose_answer_was_lost() {
        let mut history = History::new();
        history.submit("a");
        let call = history.invoke(&receive(1, 1));
        history.happen(receive(1, 1)).unwrap();
        history.checker.lost(call);
        history.observe(|_| {});
        history.keeps();
    }

    #[test]
    fn counts_are_not_those_of_the_states() {
        let mut history = History::new();
        history.submit("a");
        history.observe(|seen| seen.queues[0].counts.paused += 1);
        history.breaks(9);
    }
}

mod queues {
    use super::*;

    fn close() -> Operation {
        Operation::CloseQueue { queue: q() }
    }

    #[test]
    fn a_closed_queue_accepts_an_item() {
        let mut history = History::new();
        history.submit("a");
        history.done(close()).unwrap();
        history.told(submit("b", |_| {}), created(ItemId(Uuid::from_u128(9)), true));
        history.breaks(8);
    }

    #[test]
    fn a_closed_queue_is_open_again() {
        let mut history = History::new();
        history.submit("a");
        history.done(close()).unwrap();
        history.observe(|seen| seen.queues[0].queue.state = QueueState::Open);
        history.breaks(8);
    }

    #[test]
    fn a_completed_queue_has_unfinished_items() {
        let mut history = History::new();
        history.submit("a");
        history.done(close()).unwrap();
        let since = history.now();
        history.observe(|seen| seen.queues[0].queue.state = QueueState::Completed { since });
        history.breaks(8);
    }

    #[test]
    fn a_closed_queue_has_no_unfinished_item_and_is_not_completed() {
        let mut history = History::new();
        history.done(close()).unwrap();
        let since = history.now();
        history.observe(|seen| seen.queues[0].queue.state = QueueState::Closed { since });
        history.breaks(8);
    }

    #[test]
    fn a_receive_gets_an_item_and_is_told_completed() {
        let mut history = History::new();
        history.submit("a");
        let Ok(Reply::Received(mut received)) = history.happen(receive(1, 1)) else {
            panic!("nothing received");
        };
        received.queue = QueueState::Completed { since: history.now() };
        history.told(receive(1, 1), Ok(Reply::Received(received)));
        history.breaks(8);
    }

    #[test]
    fn a_queue_is_gone_or_back() {
        let mut history = History::new();
        let before = history.snapshot();
        history.observe(|seen| seen.queues.clear());
        history.breaks(1);
        let mut history = History::new();
        let delete = Operation::DeleteQueue { queue: q(), force: false };
        history.done(delete).unwrap();
        history.observe(|seen| *seen = before);
        history.breaks(2);
    }

    #[test]
    fn a_forced_delete_of_a_queue_takes_its_items_along() {
        let mut history = History::new();
        history.submit("a");
        let delete = Operation::DeleteQueue { queue: q(), force: true };
        history.done(delete).unwrap();
        history.observe(|seen| assert_eq!(seen.items, []));
        history.keeps();
    }
}

mod keys {
    use super::*;

    #[test]
    fn a_key_makes_two_items() {
        let mut history = History::new();
        history.done(keyed("a", "k")).unwrap();
        history.told(keyed("a", "k"), created(ItemId(Uuid::from_u128(9)), true));
        history.breaks(10);
    }

    #[test]
    fn a_key_is_accepted_with_another_content() {
        let mut history = History::new();
        let id = submitted(&history.done(keyed("a", "k")));
        history.done(keyed("a", "k")).unwrap();
        history.keeps();
        history.told(keyed("b", "k"), created(id, false));
        history.breaks(10);
    }

    #[test]
    fn a_key_is_refused_with_its_own_content() {
        let mut history = History::new();
        let id = submitted(&history.done(keyed("a", "k")));
        let key = "k".to_owned();
        history.told(keyed("a", "k"), Err(Refusal::KeyConflict { key, id }));
        history.breaks(10);
    }

    #[test]
    fn a_key_is_given_to_an_item_that_has_none() {
        let mut history = History::new();
        let id = history.submit("a");
        history.told(keyed("b", "k"), created(id, false));
        history.breaks(10);
    }

    #[test]
    fn two_items_of_a_snapshot_have_one_key() {
        let mut history = History::new();
        history.done(keyed("a", "k")).unwrap();
        history.done(keyed("b", "other")).unwrap();
        history.observe(|seen| {
            let body = &mut seen.items[1].item.body;
            body.idempotency_key = Some("k".to_owned());
            let content = [0; 16];
            body.claim = Some(Claim { queue: QueueId(1), content });
        });
        history.breaks(10);
    }
}

mod order {
    use super::*;

    #[test]
    fn a_batch_is_not_in_its_queues_order() {
        for order in [Order::Fifo, Order::Priority, Order::Score(Box::default())] {
            let mut history = History::with(|policy| policy.order = order);
            for (blob, priority, fee) in [("a", 3, 10), ("b", 2, 500), ("c", 1, 100)] {
                let one = submit(blob, |submission| {
                    submission.priority = priority;
                    submission.body.fee = Some(fee);
                });
                history.done(one).unwrap();
                history.clock.advance(1);
            }
            let Ok(Reply::Received(received)) = history.happen(receive(3, 1)) else {
                panic!("nothing received");
            };
            let mut items = received.items;
            assert_eq!(items.len(), 3);
            items.swap(0, 2);
            history.received(items);
            assert_eq!(history.numbers(), [11, 11]);
        }
    }

    #[test]
    fn items_that_are_equal_come_as_they_were_submitted() {
        let mut history = History::new();
        for blob in ["a", "b"] {
            history.submit(blob);
        }
        let Ok(Reply::Received(received)) = history.happen(receive(2, 1)) else {
            panic!("nothing received");
        };
        let mut items = received.items;
        items.swap(0, 1);
        history.received(items);
        assert_eq!(history.numbers(), [11]);
    }
}

mod reopened {
    use super::*;

    fn compare(falsify: impl FnOnce(&mut Snapshot)) -> Vec<u8> {
        let mut history = History::new();
        history.submit("a");
        history.submit("b");
        let before = history.snapshot();
        let mut after = before.clone();
        falsify(&mut after);
        history.checker.unchanged(&before, &after);
        history.numbers()
    }

    #[test]
    fn a_store_is_the_same_after_it_was_reopened_or_it_is_named_what_is_not() {
        assert!(compare(|_| {}).is_empty());
        assert_eq!(compare(|after| drop(after.items.pop())), [1]);
        assert_eq!(compare(|after| after.items[0].item.head.retries += 1), [1]);
        assert_eq!(compare(|after| after.items.swap(0, 1)), [11]);
        assert_eq!(compare(|after| after.queues[0].counts.failed += 1), [9]);
        assert_eq!(compare(|after| after.queues[0].queue.paused = true), [1]);
        assert_eq!(compare(|after| after.queues.clear()), [1]);
        assert_eq!(
            compare(|after| {
                let mut more = after.items[0].clone();
                more.item.head.id = ItemId(Uuid::from_u128(1));
                after.items.push(more);
            }),
            [2]
        );
    }

    #[test]
    fn a_scheduled_item_becomes_ready_without_a_change() {
        let mut history = History::new();
        let later = submit("a", |submission| submission.ready = When::After(Millis(500)));
        history.done(later).unwrap();
        let before = history.snapshot();
        history.clock.advance(500);
        let after = history.snapshot();
        assert_ne!(before.queues, after.queues);
        history.checker.unchanged(&before, &after);
        history.keeps();
    }
}

mod from_outside {
    use super::*;

    /// A history of one delivery, settled or extended as `then` says, and shown by a server as if that had not been.
    fn forgets(then: Verb) -> History {
        let mut history = History::new();
        history.submit("a");
        let item = history.receive(1).remove(0);
        let before = history.snapshot();
        history.clock.advance(1);
        history.done(by(&item, then)).unwrap();
        history.checker.observed_from_outside(Snapshot { now: history.now(), ..before });
        history
    }

    #[test]
    fn a_settle_that_was_answered_is_forgotten() {
        forgets(release()).breaks(3);
        forgets(fail()).breaks(6);
        forgets(commit()).breaks(12);
    }

    #[test]
    fn a_heartbeat_that_was_answered_is_forgotten() {
        forgets(Verb::Heartbeat { visibility: None }).breaks(3);
    }

    #[test]
    fn an_edit_that_was_answered_is_not_told_by_what_is_not_shown() {
        forgets(Verb::Edit).keeps();
    }

    #[test]
    fn a_terminal_item_changes() {
        let mut history = History::new();
        history.submit("a");
        let item = history.receive(1).remove(0);
        history.done(by(&item, fail())).unwrap();
        for _ in 0..2 {
            let seen = history.snapshot();
            history.checker.observed_from_outside(seen);
        }
        history.keeps();
        let mut seen = history.snapshot();
        seen.items[0].item.head.priority += 1;
        history.checker.observed_from_outside(seen);
        history.breaks(6);
    }
    /// A settle whose answer was lost, carried out before a restart; then `again`, whatever the store says to it.
    fn unseen(settle: Verb, again: Verb, answer: &'static str) -> History {
        let mut history = History::new();
        history.submit("a");
        let item = history.receive(1).remove(0);
        let operation = by(&item, settle);
        history.invoke(&operation);
        history.happen(operation).unwrap();
        history.checker.restarted();
        let seen = history.snapshot();
        history.checker.observed_from_outside(seen);
        history.told(by(&item, again), state(answer));
        let seen = history.snapshot();
        history.checker.observed_from_outside(seen);
        history
    }

    #[test]
    fn a_lost_settle_is_repeated_after_a_restart() {
        unseen(commit(), commit(), "completed").keeps();
        unseen(fail(), fail(), "failed").keeps();
        unseen(release(), release(), "pending").keeps();
    }

    #[test]
    fn another_settle_is_accepted_after_a_restart() {
        unseen(release(), commit(), "completed").breaks(4);
        unseen(commit(), release(), "pending").breaks(4);
    }
}
