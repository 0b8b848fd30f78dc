//! The policies, contents and verbs that the numbers of an action stand for.

use crate::suite::operations::{name, trace};
use crate::suite::rig::START;
use std::sync::Arc;
use towline_domain::backoff::Growth;
use towline_domain::command::{RecordGuard, Verb, When};
use towline_domain::kv::KvCommand;
use towline_domain::{
    Backoff, Body, FailureKind, Fairness, Field, FieldEdits, Fields, Flow, ItemId, Json, LeaseRule, Millis,
    Order, Outcome, Overrides, Policy, PolicyPatch, Precondition, Queue, QueueName, Schema, ScoreWeights,
    StateName, Unique,
};
use towline_store::Operation;

pub(super) const QUEUES: [&str; 3] = ["quick", "ranked", "scored"];
pub(super) const KEYS: [&str; 3] = ["a", "b", "c"];

pub(super) fn policy(queue: usize) -> Policy {
    match queue {
        0 => Policy {
            visibility_timeout: Millis(300),
            max_retries: 2,
            backoff: Backoff { growth: Growth::Constant { delay: Millis(50) }, ..Backoff::NONE },
            completed_ttl: Some(Millis(500)),
            failed_ttl: Some(Millis(800)),
            order: Order::Fifo,
            dead_letter_queue: Some(name(QUEUES[2])),
            tally_tags: ["parity".to_owned()].into(),
            ..Policy::default()
        },
        1 => Policy {
            visibility_timeout: Millis(200),
            max_retries: 3,
            backoff: Backoff::NONE,
            completed_ttl: None,
            expire_after: Some(Millis(2000)),
            give_up_after: Some(Millis(900)),
            poison_after: Some(2),
            dead_letter: [FailureKind::Poison, FailureKind::Cancelled].into(),
            depth_limit: Some(5),
            dead_letter_queue: Some(name(QUEUES[0])),
            lease: LeaseRule {
                ack_timeout: Some(Millis(60)),
                renewal_permille: Some(500),
                renewals_max: Some(2),
            },
            ..Policy::default()
        },
        _ => Policy {
            visibility_timeout: Millis(400),
            max_retries: 1,
            // Without jitter, because jitter depends on the id, and ids may differ between stores.
            backoff: Backoff {
                growth: Growth::Exponential {
                    base: Millis(20),
                    factor_permille: 2000,
                    cap: Some(Millis(100)),
                },
                ..Backoff::NONE
            },
            failed_ttl: Some(Millis(400)),
            unique: Unique::WhileUnfinished,
            flow: Flow {
                fairness: Some(Fairness::default()),
                concurrency_per_key: Some(2),
                ..Flow::default()
            },
            order: Order::Score(Box::new(ScoreWeights {
                age_unit: Millis::seconds(1),
                ..ScoreWeights::default()
            })),
            ..Policy::default()
        },
    }
}

pub(super) fn create(queue: usize) -> Operation {
    Operation::CreateQueue {
        queue: name(QUEUES[queue]),
        schema: Box::new(Schema::default()),
        policy: Box::new(policy(queue)),
    }
}

pub(super) fn patch(number: u8) -> PolicyPatch {
    let none = PolicyPatch::default;
    match number % 16 {
        0 => PolicyPatch { max_retries: Some(0), ..none() },
        1 => PolicyPatch { max_retries: Some(4), ..none() },
        2 => PolicyPatch { depth_limit: Some(Some(3)), ..none() },
        3 => PolicyPatch { depth_limit: Some(None), ..none() },
        4 => PolicyPatch { completed_ttl: Some(Some(Millis::ZERO)), failed_ttl: Some(None), ..none() },
        5 => PolicyPatch {
            dead_letter_queue: Some(None),
            tally_tags: Some(["parity".to_owned(), "other".to_owned()].into()),
            ..none()
        },
        7 => PolicyPatch { concurrency: Some(Some(2)), ..none() },
        8 if number % 32 == 8 => PolicyPatch { unique: Some(Unique::WhileUnfinished), ..none() },
        8 => PolicyPatch { concurrency: Some(None), unique: Some(Unique::WhileExists), ..none() },
        9 => PolicyPatch { fairness: Some(Some(fairness(1))), ..none() },
        10 => PolicyPatch { fairness: Some(Some(fairness(3))), ..none() },
        11 => PolicyPatch { fairness: Some(None), ..none() },
        12 => PolicyPatch { concurrency_per_key: Some(Some(1)), ..none() },
        13 => PolicyPatch { concurrency_per_key: Some(Some(2)), ..none() },
        14 => PolicyPatch { concurrency_per_key: Some(None), ..none() },
        6 if number.is_multiple_of(32) => {
            PolicyPatch { dead_letter: Some(FailureKind::ALL.into()), ..none() }
        }
        6 => {
            PolicyPatch { failed_ttl: Some(Some(Millis::ZERO)), lease: Some(LeaseRule::default()), ..none() }
        }
        _ => PolicyPatch {
            visibility_timeout: Some(Millis(150)),
            dead_letter_queue: Some(Some(name(QUEUES[1]))),
            ..none()
        },
    }
}

fn fairness(weight: u32) -> Fairness {
    Fairness { weights: [("t1".to_owned(), weight)].into() }
}

/// Turns fairness off and on again, which restarts the round robin.
pub(super) fn restart_round_robin(queue: &Queue) -> Vec<Operation> {
    let patch = |Flow { fairness, concurrency_per_key, .. }: Flow| {
        let (fairness, concurrency_per_key) = (Some(fairness), Some(concurrency_per_key));
        let patch = PolicyPatch { fairness, concurrency_per_key, ..PolicyPatch::default() };
        Operation::ChangePolicy { queue: queue.name.clone(), patch: Box::new(patch) }
    };
    let flow = &queue.policy.flow;
    if flow.takes_turns() { vec![patch(Flow::default()), patch(flow.clone())] } else { Vec::new() }
}

pub(super) fn body(key: Option<u8>, content: u8) -> Body {
    let parity = if content.is_multiple_of(2) { "even" } else { "odd" };
    let replace_key = key.filter(|key| key % 7 > 3).map(|key| format!("r{}", key % 2));
    Body {
        idempotency_key: key.filter(|key| key % 7 <= 3).map(|key| format!("k{}", key % 7)),
        tags: [("parity".to_owned(), parity.to_owned())].into(),
        fairness_key: (!content.is_multiple_of(4)).then(|| format!("t{}", content % 4)),
        // An item cannot have both kinds of keys.
        group: (content.is_multiple_of(3) && replace_key.is_none()).then(|| format!("g{}", content % 2)),
        replace_key,
        params: [("n".to_owned(), Json::string(&(content % 3).to_string()))].into(),
        fee: Some(u64::from(content) * 37 % 1000),
        trace: content.is_multiple_of(5).then(|| trace(content | 1)).flatten(),
        ..Body::default()
    }
}

pub(super) fn fields(content: u8) -> Fields {
    let bytes = |size: usize| bytes::Bytes::from(vec![content % 3; size]);
    Fields {
        state_blob: (content % 3 == 1).then(|| bytes(0)),
        blob: (content % 3 != 2).then(|| bytes(10)),
        metadata: None,
        parameters: (content % 3 == 2).then(|| bytes(5000)),
    }
}

pub(super) fn own_overrides(number: u8) -> Overrides {
    let none = Overrides::default;
    match number % 16 {
        0 => Overrides { max_retries: Some(0), ..none() },
        1 => Overrides { max_retries: Some(5), completed_ttl: Some(Millis(50)), ..none() },
        2 => Overrides { expire_after: Some(Millis(250)), failed_ttl: Some(Millis(1000)), ..none() },
        3 => Overrides { give_up_after: Some(Millis(350)), ..none() },
        4 => Overrides { expire_after: Some(Millis::ZERO), ..none() },
        5 => Overrides { unique: Some(Unique::WhileUnfinished), ..none() },
        _ => none(),
    }
}

pub(super) fn verb_of(number: u8, millis: u16) -> Verb {
    let span = Millis(u64::from(millis % 400));
    match number % 16 {
        0..=4 => Verb::Commit(Outcome {
            output_params: (0..millis % 2)
                .map(|n| (format!("p{n}"), Json::string(&millis.to_string())))
                .collect(),
            ..Outcome::default()
        }),
        5 => Verb::Fail { reason: format!("failed {}", millis % 3) },
        6..=8 => Verb::Retry {
            error: format!("retried {}", millis % 3),
            delay: millis.is_multiple_of(2).then_some(span),
            seed: u64::from(millis),
        },
        9..=10 => {
            let delay = if millis.is_multiple_of(2) { Millis::ZERO } else { span };
            Verb::Release { delay, counted: number % 16 == 9 }
        }
        11 => Verb::Defer { until: When::After(span) },
        12 => Verb::Defer { until: When::At(START.after(Millis(u64::from(millis)))) },
        13 if millis.is_multiple_of(3) => Verb::Pause,
        13 if millis % 3 == 1 => Verb::Cancel { reason: format!("cancelled {}", millis % 2) },
        13..=14 => Verb::Heartbeat { visibility: millis.is_multiple_of(3).then(|| Millis(100 + span.0)) },
        _ => Verb::Edit,
    }
}

pub(super) fn edits(number: u8) -> FieldEdits {
    let none = FieldEdits::default();
    match number % 12 {
        0 => none.set(Field::StateBlob, vec![number; 20].into()),
        1 => none.set(Field::Blob, bytes::Bytes::new()),
        2 => none.unset(Field::Blob).set(Field::Metadata, "m".into()),
        3 => none.unset(Field::Parameters).unset(Field::StateBlob),
        _ => none,
    }
}

pub(super) fn operate(id: ItemId, what: u8) -> Operation {
    let delete = |force| Operation::Delete { id, force };
    let only = |only, then| Operation::Guarded { precondition: Arc::new(only), then: Box::new(then) };
    match what % 20 {
        0..=2 => Operation::Cancel { id, reason: "enough".to_owned() },
        3..=5 => Operation::Pause { id },
        6..=8 => Operation::Resume { id },
        9..=12 => Operation::Redrive { id },
        13 => delete(false),
        14 => delete(true),
        15..=16 => Operation::SetPriority { id, priority: i16::from(what % 5) - 2 },
        17..=18 => Operation::Move { id, to: name(QUEUES[usize::from(what) % QUEUES.len()]) },
        _ => only(Precondition::in_state(StateName::Failed), delete(true)),
    }
}

pub(super) fn change_queue(number: usize, queue: QueueName, what: u8) -> Operation {
    match what {
        0..=119 => create(number),
        120..=159 => Operation::ChangePolicy { queue, patch: Box::new(patch(what)) },
        160..=179 => Operation::PauseQueue { queue },
        180..=219 => Operation::ResumeQueue { queue },
        220..=239 => Operation::CloseQueue { queue },
        what => Operation::DeleteQueue { queue, force: what % 2 == 0 },
    }
}

pub(super) fn kv(what: u8) -> KvCommand {
    let ttl = what.is_multiple_of(5).then_some(Millis(150));
    let value = bytes::Bytes::from((what % 7).to_string());
    match what % 9 {
        0..=1 => KvCommand::Set { value, ttl },
        2..=3 => KvCommand::SetIfAbsent { value, ttl },
        4..=5 => KvCommand::Increment { by: i64::from(what) - 100, ttl },
        6 => KvCommand::IncrementOnce { by: 1, once: (what % 2).to_string(), ttl: Millis(u64::from(what)) },
        7 => {
            let seen = (!what.is_multiple_of(4)).then(|| bytes::Bytes::from((what % 3).to_string()));
            KvCommand::Replace { seen, value: (!what.is_multiple_of(11)).then_some(value), ttl: None }
        }
        _ => KvCommand::Delete,
    }
}

/// A record guard that may or may not match the record.
pub(super) fn record_guard(what: u8) -> Box<RecordGuard> {
    Box::new(RecordGuard {
        key: KEYS[usize::from(what) % KEYS.len()].to_owned(),
        seen: (what % 5).to_string().into(),
        next: (what % 7).to_string().into(),
        not_before: START.after(Millis(u64::from(what % 4) * 100)),
    })
}
