//! A fixed history. It leaves items, queues and key-value records in every state, and uses every part of a record.

use super::*;
use towline_domain::command::When;
use towline_domain::dependency::{Condition, Dependency, DependsOn};
use towline_domain::kv::KvCommand;
use towline_domain::{
    Backoff, Body, FailureKind, Fairness, Field, FieldEdits, Flow, Json, LeaseRule, Millis, Order, Overrides,
    Schema, Trace, Unique,
};
use uuid::Uuid;

/// Runs one operation at the given time.
pub type Run<'a> = &'a mut dyn FnMut(Timestamp, Operation) -> Answered;

pub const KEYS: [&str; 5] = ["plain", "with a time to live", "counter", "deleted", "never set"];

struct History<'a> {
    run: Run<'a>,
    now: Timestamp,
    seed: u8,
}

impl History<'_> {
    fn ok(&mut self, operation: Operation) -> Reply {
        self.now = Timestamp(self.now.0 + 1);
        (self.run)(self.now, operation).expect("the operation is accepted")
    }

    fn queue(&mut self, queue: &str, policy: Policy) {
        self.queue_with(queue, Schema::default(), policy);
    }

    fn queue_with(&mut self, queue: &str, schema: Schema, policy: Policy) {
        self.ok(Operation::CreateQueue {
            queue: name(queue),
            schema: Box::new(schema),
            policy: Box::new(policy),
        });
    }

    fn submit(&mut self, queue: &str, submission: Submission) -> ItemId {
        submitted(Ok(self.ok(submit_to(queue, submission))))
    }

    fn receive(&mut self, queue: &str) -> Item {
        self.seed += 1;
        let operation = receive_from(queue, 1, self.seed);
        received(Ok(self.ok(operation))).pop().expect("an item is ready")
    }

    /// Submits an item and receives it.
    fn take(&mut self, queue: &str, blob: &str) -> Item {
        self.submit(queue, payload(blob.to_owned()));
        self.receive(queue)
    }

    fn settle(&mut self, item: &Item, verb: Verb) {
        self.ok(lease(item, verb));
    }
}

fn json(text: &str) -> Json {
    Json::parse(text).unwrap()
}

fn retry(error: &str) -> Verb {
    Verb::Retry { error: error.to_owned(), delay: Some(Millis::ZERO), seed: 1 }
}

pub fn replay(run: Run<'_>) -> Timestamp {
    let mut h = History { run, now: START, seed: 0 };
    queues(&mut h);
    states(&mut h);
    failures(&mut h);
    bodies(&mut h);
    kv(&mut h);
    churn(&mut h);
    h.now
}

fn queues(h: &mut History<'_>) {
    h.queue("work", Policy::default());
    h.queue("dead", Policy { order: Order::Fifo, ..Policy::default() });
    let declare = |list: &[&str]| list.iter().map(|text| Schema::declare(text).unwrap()).collect();
    let schema = Schema {
        inputs: declare(&["raw", "cal?"]),
        outputs: declare(&["image"]),
        input_params: declare(&["level"]),
        output_params: declare(&["score?"]),
    };
    let policy = Policy {
        visibility_timeout: Millis(1500),
        max_retries: 1,
        backoff: Backoff::NONE,
        completed_ttl: None,
        failed_ttl: Some(Millis(86_400_000)),
        output_ttl: Some(Millis(3_600_000)),
        expire_after: Some(Millis(3_600_000)),
        give_up_after: Some(Millis(7_200_000)),
        poison_after: Some(2),
        order: Order::Score(Box::default()),
        depth_limit: Some(100),
        dead_letter_queue: Some(name("dead")),
        dead_letter: [FailureKind::Explicit, FailureKind::RetriesExhausted, FailureKind::Poison].into(),
        unique: Unique::WhileUnfinished,
        lease: LeaseRule {
            ack_timeout: Some(Millis(500)),
            renewal_permille: Some(500),
            renewals_max: Some(3),
        },
        tally_tags: ["path".to_owned(), "nth".to_owned()].into(),
        tally_values_max: 7,
        flow: Flow::default(),
    };
    h.queue_with("images", schema, policy);
    let flow = Flow {
        concurrency: Some(8),
        rate: "10/s".parse().ok(),
        fairness: Some(Fairness { weights: [("gold".to_owned(), 3)].into() }),
        concurrency_per_key: Some(2),
    };
    h.queue("limited", Policy { flow, ..Policy::default() });
    h.queue("brief", Policy { visibility_timeout: Millis(1000), max_retries: 1, ..Policy::default() });
    for queue in ["paused", "closed", "completed", "deleted"] {
        h.queue(queue, Policy::default());
        h.submit(queue, payload(format!("in {queue}")));
    }
    h.ok(Operation::PauseQueue { queue: name("paused") });
    h.ok(Operation::CloseQueue { queue: name("closed") });
    h.ok(Operation::CloseQueue { queue: name("completed") });
    let last = h.receive("completed");
    h.settle(&last, Verb::Commit(Outcome::default()));
    h.ok(Operation::DeleteQueue { queue: name("deleted"), force: true });
}

fn states(h: &mut History<'_>) {
    let done = h.take("work", "to be completed");
    let outcome = Outcome {
        outputs: [("image".parse().unwrap(), "buffer-9".parse().unwrap())].into(),
        output_params: [("score".to_owned(), json("0.5"))].into(),
        handed_off: Vec::new(),
    };
    h.settle(&done, Verb::Commit(outcome));
    let edited = h.submit(
        "work",
        Submission {
            fields: Fields {
                state_blob: Some("first state".into()),
                blob: Some("kept blob".into()),
                metadata: Some("metadata to be unset".into()),
                parameters: Some("kept parameters".into()),
            },
            ..Submission::default()
        },
    );
    let item = h.receive("work");
    assert_eq!(item.head.id, edited);
    let edits = FieldEdits::default().set(Field::StateBlob, "second state".into()).unset(Field::Metadata);
    let adjust = Adjust { edits, priority: Some(-3), ..Adjust::default() };
    h.ok(lease_with(&item, retry("the first attempt failed"), adjust));
    let item = h.receive("work");
    h.settle(&item, retry("the second attempt failed"));
    let item = h.receive("work");
    h.settle(&item, Verb::Defer { until: When::After(Millis(60_000)) });

    let released = h.take("work", "to be released and paused");
    h.settle(&released, Verb::Release { delay: Millis::ZERO, counted: true });
    h.ok(Operation::Pause { id: released.head.id });
    let redriven = h.take("work", "to be redriven");
    h.settle(&redriven, Verb::Fail { reason: "broken".to_owned() });
    h.ok(Operation::Redrive { id: redriven.head.id });
    h.ok(Operation::Pause { id: redriven.head.id });
    h.ok(Operation::Resume { id: redriven.head.id });
    let held = h.receive("work");
    h.settle(&held, Verb::Heartbeat { visibility: Some(Millis(600_000)) });
    let scheduled = Submission { ready: When::After(Millis(3_600_000)), ..payload("scheduled") };
    h.submit("work", scheduled);
    let removed = h.submit("work", payload("removed"));
    h.ok(delete(removed));
}

fn failures(h: &mut History<'_>) {
    let failed = h.take("work", "failed");
    h.settle(&failed, Verb::Fail { reason: "it cannot work".to_owned() });
    let cancelled = h.submit("work", payload("cancelled"));
    h.ok(Operation::Cancel { id: cancelled, reason: "nobody wants it".to_owned() });
    let exhausted = h.take("brief", "exhausted");
    h.settle(&exhausted, retry("once"));
    let exhausted = h.receive("brief");
    h.settle(&exhausted, retry("twice"));
    let overrides = Overrides { expire_after: Some(Millis(50)), ..Overrides::default() };
    h.submit("brief", Submission { overrides, ..payload("expired") });
    h.now = Timestamp(h.now.0 + 100);
    h.ok(Operation::Sweep);
    h.take("brief", "lapsed");
    h.now = Timestamp(h.now.0 + 1000);
    h.ok(Operation::Sweep);
}

fn bodies(h: &mut History<'_>) {
    let body = |nth: u32| Body {
        idempotency_key: Some(format!("key {nth}")),
        tags: [("path".to_owned(), "/a/b".to_owned()), ("nth".to_owned(), nth.to_string())].into(),
        fairness_key: Some("tenant".to_owned()),
        group: Some("group".to_owned()),
        parent: Some(ItemId(Uuid::from_u128(7))),
        source: Some("elsewhere".to_owned()),
        inputs: [("raw".parse().unwrap(), "buffer-1".parse().unwrap())].into(),
        params: [("level".to_owned(), json("[1, \"two\", null]"))].into(),
        fee: Some(250),
        size_bytes: Some(4096),
        tier: Some("PRO".to_owned()),
        ..Body::default()
    };
    let chosen = ItemId(Uuid::from_u128(0x0c40_5e00_0000_4000_8000_0000_0000_0001));
    h.submit("images", Submission { id: Some(chosen), priority: 5, body: body(1), ..payload("chosen") });
    h.submit("images", Submission { body: body(2), ..payload("dead letter") });
    let item = h.receive("images");
    h.settle(&item, Verb::Fail { reason: "to the dead letters".to_owned() });
    for blob in ["replaced", "replacement"] {
        let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".parse().unwrap();
        let trace = Some(Box::new(Trace { parent, state: "congo=t61".parse().ok() }));
        let body = Body { replace_key: Some("latest".to_owned()), trace, ..Body::default() };
        h.ok(submit_to("limited", Submission { body, ..payload(blob) }));
    }
    let fairness_key = Some("gold".to_owned());
    h.submit("limited", Submission { body: Body { fairness_key, ..Body::default() }, ..payload("fair") });
    let on = DependsOn::Group { name: "parts".to_owned(), expect: 3 };
    let after = Some(Box::new(Dependency { on, when: Condition::AllDone }));
    h.submit("limited", Submission { after, ..payload("waits for a group") });
}

fn kv(h: &mut History<'_>) {
    let mut set = |key: &str, command| drop(h.ok(Operation::Kv { key: key.to_owned(), command }));
    set(KEYS[0], KvCommand::Set { value: "value".into(), ttl: None });
    set(KEYS[1], KvCommand::SetIfAbsent { value: "value".into(), ttl: Some(Millis(86_400_000)) });
    set(KEYS[2], KvCommand::Increment { by: 41, ttl: None });
    set(KEYS[2], KvCommand::Increment { by: 1, ttl: None });
    set(KEYS[3], KvCommand::Set { value: "value".into(), ttl: None });
    set(KEYS[3], KvCommand::Delete);
}

/// Fills and empties segments until collection has carried all live records forward.
fn churn(h: &mut History<'_>) {
    for _ in 0..38 {
        let filler = h.submit("work", payload(vec![0; 8000]));
        h.ok(delete(filler));
    }
    h.submit("work", payload("the last"));
}
