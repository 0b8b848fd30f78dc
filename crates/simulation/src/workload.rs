//! Random operations of a client. They refer to items and leases that the client has seen before.

use bytes::Bytes;
use fastrand::Rng;
use towline_domain::backoff::{Backoff, Growth, Jitter};
use towline_domain::command::{RecordGuard, Verb, When};
use towline_domain::kv::KvCommand;
use towline_domain::{
    Adjust, Body, Fairness, Field, FieldEdits, FieldSet, Fields, Flow, HandOff, ItemId, Json, LeaseCall,
    LeaseToken, Millis, Order, Outcome, Policy, QueueName, Schema, ScoreWeights, Submission, Timestamp,
    TokenSeed,
};
use towline_store::{Answered, Operation, ReceiveCall, Reply};
use uuid::Uuid;

/// A lease that a client received. The client keeps it after it ended, to send stale calls.
#[derive(Debug, Clone)]
pub struct HeldLease {
    pub id: ItemId,
    pub token: LeaseToken,
}

/// What a client remembers.
#[derive(Debug, Default)]
pub struct Client {
    pub held: Vec<HeldLease>,
    pub seen: Vec<ItemId>,
    /// The call whose reply the client waits for.
    pub waiting: Option<u64>,
    /// The last settle, which the client may repeat as if its reply had been lost.
    pub last_settle: Option<Operation>,
}

pub const QUEUES: [&str; 4] = ["fifo", "ranked", "scored", "dead"];

pub fn queue(nth: usize) -> QueueName {
    QUEUES[nth % QUEUES.len()].parse().unwrap_or_else(|_| unreachable!("the queue names are valid"))
}

pub fn create_queues() -> Vec<Operation> {
    let base = Policy {
        visibility_timeout: Millis(400),
        max_retries: 2,
        completed_ttl: Some(Millis(700)),
        failed_ttl: Some(Millis(1500)),
        backoff: Backoff::NONE,
        ..Policy::default()
    };
    let policies = [
        Policy { order: Order::Fifo, flow: Flow { concurrency: Some(8), ..Flow::default() }, ..base.clone() },
        Policy {
            backoff: Backoff {
                growth: Growth::Exponential {
                    base: Millis(50),
                    factor_permille: 2000,
                    cap: Some(Millis(300)),
                },
                jitter: Jitter::Random { permille: 500 },
            },
            dead_letter_queue: "dead".parse().ok(),
            expire_after: Some(Millis(20_000)),
            max_retries: 1,
            ..base.clone()
        },
        Policy {
            order: Order::Score(Box::new(ScoreWeights { age_unit: Millis(1000), ..ScoreWeights::default() })),
            poison_after: Some(2),
            flow: Flow {
                fairness: Some(Fairness { weights: [("t1".to_owned(), 2)].into() }),
                concurrency_per_key: Some(3),
                ..Flow::default()
            },
            completed_ttl: None,
            ..base.clone()
        },
        Policy { failed_ttl: Some(Millis(4000)), ..base },
    ];
    let create = |(nth, policy)| Operation::CreateQueue {
        queue: queue(nth),
        schema: Box::new(Schema::default()),
        policy: Box::new(policy),
    };
    // The dead-letter queue, which is the last, is created first.
    policies.into_iter().enumerate().rev().map(create).collect()
}

/// Payloads are unique, because the checker recognises an item by its content.
fn submission(rng: &mut Rng, serial: &mut u64) -> Submission {
    *serial += 1;
    let mut blob = serial.to_be_bytes().to_vec();
    let extra = match rng.u32(0..20) {
        0 => rng.usize(2000..9000),
        1..=5 => rng.usize(100..600),
        _ => rng.usize(0..60),
    };
    blob.extend((0..extra).map(|_| rng.u8(..)));
    let tenant = *serial % 4;
    let fairness_key = (tenant > 0).then(|| format!("t{tenant}"));
    let mut body = Body { fairness_key, ..Body::default() };
    if rng.u32(0..6) == 0 {
        body.idempotency_key = Some(format!("key-{}", rng.u32(0..40)));
    }
    if rng.u32(0..5) == 0 {
        body.tags.insert("colour".to_owned(), ["red", "blue"][rng.usize(0..2)].to_owned());
        body.params.insert("n".to_owned(), Json::string(&serial.to_string()));
    }
    body.fee = rng.bool().then(|| rng.u64(0..5000));
    let ready = match rng.u32(0..8) {
        0 => When::After(Millis(rng.u64(1..2000))),
        _ => When::NOW,
    };
    let metadata = (rng.u32(0..6) == 0).then(|| Bytes::from(vec![rng.u8(..); rng.usize(0..40)]));
    let fields = Fields { blob: Some(blob.into()), metadata, ..Fields::default() };
    let id = (rng.u32(0..12) == 0).then(|| ItemId(Uuid::from_u128(rng.u128(..))));
    // Sometimes with a record guard, which may or may not match the record.
    let record_guard = (rng.u32(0..10) == 0).then(|| {
        let key = format!("kv-{}", rng.u32(0..6));
        let (seen, next) = ("1".into(), rng.u32(1..3).to_string().into());
        Box::new(RecordGuard { key, seen, next, not_before: Timestamp(0) })
    });
    Submission { id, record_guard, priority: rng.i16(-2..3), ready, body, fields, ..Submission::default() }
}

fn edits(rng: &mut Rng) -> FieldEdits {
    let mut edits = FieldEdits::default();
    for field in [Field::StateBlob, Field::Metadata, Field::Parameters] {
        match rng.u32(0..12) {
            0 => edits = edits.set(field, Bytes::from(vec![rng.u8(..); rng.usize(0..200)])),
            1 => edits = edits.unset(field),
            _ => {}
        }
    }
    edits
}

/// Items that a commit submits.
fn hand_off(rng: &mut Rng, serial: &mut u64) -> Vec<HandOff> {
    let count = if rng.u32(0..3) == 0 { rng.usize(1..4) } else { 0 };
    let item = |_| {
        let submission = Submission { record_guard: None, ..submission(rng, serial) };
        HandOff { queue: queue(rng.usize(0..3)), submission }
    };
    (0..count).map(item).collect()
}

fn lease_call(rng: &mut Rng, held: &HeldLease, serial: &mut u64) -> Operation {
    let verb = match rng.u32(0..20) {
        0..=7 => {
            let mut outcome = Outcome::default();
            if rng.u32(0..4) == 0 {
                outcome.output_params.insert("answer".to_owned(), Json::string(&rng.u32(..).to_string()));
            }
            Verb::Commit(outcome)
        }
        8 | 9 => Verb::Fail { reason: format!("broken {}", rng.u32(0..100)) },
        10..=13 => Verb::Retry {
            error: format!("again {}", rng.u32(0..100)),
            delay: rng.bool().then(|| Millis(rng.u64(0..300))),
            seed: rng.u64(..),
        },
        14 => Verb::Release { delay: Millis(rng.u64(0..200)), counted: rng.bool() },
        15 | 16 => Verb::Defer { until: When::After(Millis(rng.u64(0..500))) },
        17 => Verb::Edit,
        _ => Verb::Heartbeat { visibility: rng.bool().then(|| Millis(rng.u64(100..900))) },
    };
    let returns_item = matches!(verb, Verb::Retry { .. } | Verb::Release { .. } | Verb::Defer { .. });
    let adjust = Adjust {
        edits: if rng.u32(0..3) == 0 { edits(rng) } else { FieldEdits::default() },
        priority: (rng.u32(0..8) == 0).then(|| rng.i16(-2..3)),
        queue: (returns_item && rng.u32(0..10) == 0).then(|| queue(rng.usize(0..QUEUES.len()))),
        buffers_whole: false,
        then_submit: if matches!(verb, Verb::Commit(_)) { hand_off(rng, serial) } else { Vec::new() },
    };
    Operation::Lease { id: held.id, call: Box::new(LeaseCall { token: held.token, verb, adjust }) }
}

pub fn receive(rng: &mut Rng, nth: usize, max: u32) -> Operation {
    let mut seed = [0; 32];
    rng.fill(&mut seed);
    Operation::Receive(Box::new(ReceiveCall {
        queue: queue(nth),
        max,
        visibility: (rng.u32(0..5) == 0).then(|| Millis(rng.u64(100..1000))),
        assigned: false,
        seed: TokenSeed(seed),
        fields: FieldSet::ALL,
        make_buffers: false,
    }))
}

/// The next batch of a client.
pub fn batch(rng: &mut Rng, client: &mut Client, serial: &mut u64) -> Vec<Operation> {
    let count = if rng.u32(0..4) == 0 { rng.usize(2..12) } else { 1 };
    let mut batch = Vec::with_capacity(count);
    for _ in 0..count {
        let pick = |rng: &mut Rng, ids: &[ItemId]| ids.get(rng.usize(0..ids.len().max(1))).copied();
        let operation = match rng.u32(0..100) {
            0..=29 => Operation::Submit {
                queue: queue(rng.usize(0..3)),
                submission: Box::new(submission(rng, serial)),
            },
            30..=49 => {
                let (nth, max) = (rng.usize(0..QUEUES.len()), rng.u32(1..6));
                receive(rng, nth, max)
            }
            50..=79 => {
                // Mostly the newest lease, sometimes a stale one.
                let back = if rng.u32(0..5) == 0 { rng.usize(0..12) } else { rng.usize(0..3) };
                match client.held.iter().rev().nth(back) {
                    Some(held) => {
                        let held = held.clone();
                        let call = lease_call(rng, &held, serial);
                        client.last_settle = Some(call.clone());
                        call
                    }
                    None => Operation::Sweep,
                }
            }
            80..=83 => client.last_settle.clone().unwrap_or(Operation::Sweep),
            84..=87 => match pick(rng, &client.seen) {
                Some(id) => match rng.u32(0..5) {
                    0 => Operation::Cancel { id, reason: "not wanted".to_owned() },
                    1 => Operation::Pause { id },
                    2 => Operation::Resume { id },
                    3 => Operation::Redrive { id },
                    _ => Operation::Delete { id, force: rng.bool() },
                },
                None => Operation::Sweep,
            },
            88..=91 => {
                let key = format!("kv-{}", rng.u32(0..6));
                let ttl = rng.bool().then(|| Millis(rng.u64(1..3000)));
                let command = match rng.u32(0..5) {
                    0 => KvCommand::Set { value: rng.u32(..).to_string().into(), ttl },
                    1 => KvCommand::SetIfAbsent { value: "1".into(), ttl },
                    2 => KvCommand::Increment { by: rng.i64(-3..4), ttl: None },
                    3 => KvCommand::IncrementOnce {
                        by: 1,
                        once: rng.u32(0..4).to_string(),
                        ttl: Millis(rng.u64(1..3000)),
                    },
                    _ => KvCommand::Delete,
                };
                Operation::Kv { key, command }
            }
            92 => match rng.u32(0..6) {
                0 => Operation::PauseQueue { queue: queue(rng.usize(0..QUEUES.len())) },
                1..=3 => Operation::ResumeQueue { queue: queue(rng.usize(0..QUEUES.len())) },
                _ => Operation::Sweep,
            },
            _ => Operation::Sweep,
        };
        batch.push(operation);
    }
    batch
}

/// Records the items and leases of a reply in the client's memory.
pub fn record_replies(client: &mut Client, answers: &[Answered]) {
    for answer in answers {
        match answer {
            Ok(Reply::Answer(towline_domain::change::Answer::Submitted { id, .. })) => client.seen.push(*id),
            Ok(Reply::Answer(towline_domain::change::Answer::HandedOff(handed_off))) => {
                client.seen.extend(handed_off.items.iter().map(|item| item.id));
            }
            Ok(Reply::Received(received)) => {
                for item in &received.items {
                    if let Some(lease) = item.head.lease() {
                        client.held.push(HeldLease { id: item.head.id, token: lease.token });
                    }
                    client.seen.push(item.head.id);
                }
            }
            _ => {}
        }
    }
    // A client that remembers everything would mostly ask about deleted items.
    let forget = |length: usize| length.saturating_sub(40);
    client.held.drain(..forget(client.held.len()));
    client.seen.drain(..forget(client.seen.len()));
}
