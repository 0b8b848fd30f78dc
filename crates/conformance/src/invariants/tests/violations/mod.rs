//! One history for every way to violate an invariant. Each starts as a valid history of the reference store.

mod counters;
mod hand_offs;
mod keys;
mod leases;
mod order;
mod queues;
mod reopen;
mod submits;
mod terminal_items;
mod through_a_server;

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
    Backoff, Body, Field, FieldEdits, FieldSet, Fields, Flow, Item, ItemId, ItemState, Json, LeaseCall,
    LeaseToken, Millis, Order, Outcome, Overrides, Policy, PolicyPatch, QueueId, QueueName, QueueState,
    Refusal, Schema, State, Submission, Timestamp, TokenSeed,
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
    /// A queue with leases of 1 s, two retries, and TTLs of 5 s.
    fn new() -> History {
        History::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut Policy)) -> History {
        let mut policy = Policy {
            visibility_timeout: Millis(1000),
            max_retries: 2,
            completed_ttl: Some(Millis(5000)),
            failed_ttl: Some(Millis(5000)),
            backoff: Backoff::NONE,
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
            .call(Operation::CreateQueue {
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

    fn carry_out(&mut self, operation: Operation) -> Answered {
        block_on(self.store.update(vec![operation])).unwrap().answers.remove(0)
    }

    /// Sends an operation to the store and passes its reply to the checker.
    fn call(&mut self, operation: Operation) -> Answered {
        let call = self.invoke(&operation);
        let answer = self.carry_out(operation);
        self.answer(call, answer.clone());
        answer
    }

    /// Passes an invented reply to the checker, without calling the store.
    fn reply_with(&mut self, operation: Operation, answer: Answered) {
        let call = self.invoke(&operation);
        self.answer(call, answer);
    }

    fn submit(&mut self, blob: &'static str) -> ItemId {
        submitted(&self.call(submit(blob, |_| {})))
    }

    fn receive(&mut self, max: u32) -> Vec<Item> {
        let operation = receive(max, self.calls);
        match self.call(operation) {
            Ok(Reply::Received(received)) => received.items,
            other => panic!("{other:?}"),
        }
    }

    fn received(&mut self, items: Vec<Item>) {
        let queue = QueueState::Open;
        let operation = receive(10, self.calls);
        self.reply_with(
            operation,
            Ok(Reply::Received(Received { queue, items, throttle: None, paused: false, more: 0 })),
        );
    }

    fn snapshot(&self) -> Snapshot {
        block_on(snapshot(&self.store, self.now())).unwrap()
    }

    fn observe(&mut self, change: impl FnOnce(&mut Snapshot)) {
        let mut seen = self.snapshot();
        change(&mut seen);
        self.checker.observed(&seen);
    }

    fn violated(&self) -> Vec<u8> {
        self.checker.violations().iter().map(|violation| violation.invariant).collect()
    }

    #[track_caller]
    fn assert_violates(&self, invariant: u8) {
        assert!(!self.violated().is_empty(), "no violation was reported");
        assert!(self.violated().contains(&invariant), "{:#?}", self.checker.violations());
    }

    #[track_caller]
    fn assert_valid(&self) {
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

fn state(state: ItemState) -> Answered {
    Ok(Reply::Answer(Answer::State(state)))
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
    Verb::Release { delay: Millis::ZERO, counted: true }
}

/// The same item, received once more with another lease.
fn received_again(item: &Item, now: Timestamp) -> Item {
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
