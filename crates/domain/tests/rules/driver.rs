//! Runs commands on one queue with one item: decides each and applies the change.

use proptest::prelude::*;
use towline_domain::change::{Answer, QueueChange};
use towline_domain::command::{NewQueue, Receive, Verb, When};
use towline_domain::{
    Adjust, Backoff, Change, Command, Context, Counts, Field, FieldEdits, Item, ItemId, Json, LeaseCall,
    LeaseRule, LeaseToken, Millis, Outcome, Overrides, Policy, PolicyPatch, Queue, QueueId, Refusal, Schema,
    Submission, Timestamp, decide,
};
use uuid::Uuid;

#[derive(Debug, Clone)]
pub(crate) struct Driver {
    pub(crate) now: Timestamp,
    pub(crate) queue: Queue,
    pub(crate) item: Option<Item>,
    submitted: u64,
}

#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) before: Option<Item>,
    pub(crate) queue_before: Queue,
    pub(crate) answer: Result<Answer, Refusal>,
    pub(crate) change: Option<Change>,
}

impl Driver {
    pub(crate) fn new(policy: Policy) -> Driver {
        let new = NewQueue { id: QueueId(1), name: "q".parse().unwrap(), schema: Schema::default(), policy };
        let now = Timestamp(1_000_000);
        let change = decide(&Context::default(), Command::CreateQueue(Box::new(new)), now).unwrap();
        let Some(QueueChange::Put(queue)) = change.queue() else { unreachable!("create puts a queue") };
        Driver { now, queue: (**queue).clone(), item: None, submitted: 0 }
    }

    pub(crate) fn decide(&self, command: Command) -> Result<Change, Refusal> {
        let mut counts = Counts::default();
        if let Some(item) = &self.item {
            counts.add(item.head.count_kind(self.now));
        }
        let context = Context {
            queue: Some(&self.queue),
            counts,
            item: self.item.as_ref().map(|item| &item.head),
            new_id: Some(ItemId::derive(7, self.now, self.submitted)),
            ..Context::default()
        };
        decide(&context, command, self.now)
    }

    pub(crate) fn step(&mut self, command: Command) -> Step {
        let before = self.item.clone();
        let queue_before = self.queue.clone();
        let change = match self.decide(command) {
            Ok(change) => change,
            Err(refusal) => {
                return Step { before, queue_before, answer: Err(refusal), change: None };
            }
        };
        self.submitted += u64::from(change.submitted().is_some());
        self.item = change.apply(self.item.take());
        if let Some(QueueChange::Put(after)) = change.queue() {
            self.queue = (**after).clone();
        }
        Step { before, queue_before, answer: Ok(change.answer().clone()), change: Some(change) }
    }
}

/// A command, and the milliseconds before it.
pub(crate) type Timed = (u64, Command);

pub(crate) fn policies() -> impl Strategy<Value = Policy> {
    let ttl = || prop::option::of((0..3000u64).prop_map(Millis));
    let lease = (prop::option::of(100..500u64), prop::option::of(1..=1000u32), prop::option::of(0..4u32));
    (
        0..4u32,
        ttl(),
        ttl(),
        ttl(),
        prop::option::of(1..4u32),
        lease,
        prop::sample::select(&["none", "ayepi", "aicf-ai"][..]),
    )
        .prop_map(
            |(max_retries, expire_after, give_up_after, failed_ttl, poison_after, lease, backoff)| Policy {
                visibility_timeout: Millis(400),
                max_retries,
                expire_after,
                give_up_after,
                failed_ttl,
                poison_after,
                backoff: Backoff::preset(backoff).unwrap(),
                lease: LeaseRule {
                    ack_timeout: lease.0.map(Millis),
                    renewal_permille: lease.1,
                    renewals_max: lease.2,
                },
                ..Policy::default()
            },
        )
}

pub(crate) fn tokens() -> impl Strategy<Value = LeaseToken> {
    // Few tokens, so that leases are often current, often stale, and often reused.
    (1..4u128).prop_map(|number| LeaseToken(Uuid::from_u128(number)))
}

pub(crate) fn verbs() -> impl Strategy<Value = Verb> {
    let delay = || (0..600u64).prop_map(Millis);
    prop_oneof![
        prop::option::of((100..900u64).prop_map(Millis))
            .prop_map(|visibility| Verb::Heartbeat { visibility }),
        Just(Verb::Edit),
        (0..3u8).prop_map(|n| {
            let output_params = [("r".to_owned(), Json::string(&n.to_string()))].into();
            Verb::Commit(Outcome { output_params, ..Outcome::default() })
        }),
        "[ab]".prop_map(|reason| Verb::Fail { reason }),
        ("[ab]", prop::option::of(delay()), any::<u64>()).prop_map(|(error, delay, seed)| Verb::Retry {
            error,
            delay,
            seed
        }),
        (delay(), any::<bool>()).prop_map(|(delay, counted)| Verb::Release { delay, counted }),
        delay().prop_map(|delay| Verb::Defer { until: When::After(delay) }),
        Just(Verb::Pause),
        "[ab]".prop_map(|reason| Verb::Cancel { reason }),
        (1_000_000..1_010_000u64).prop_map(|time| Verb::Defer { until: When::At(Timestamp(time)) }),
    ]
}

pub(crate) fn lease_calls() -> impl Strategy<Value = LeaseCall> {
    (tokens(), verbs(), prop::option::of(-2..2i16), prop::option::of(0..4usize)).prop_map(
        |(token, verb, priority, edit)| {
            let edits = edit
                .map_or_else(FieldEdits::default, |n| FieldEdits::default().set(Field::ALL[n], "new".into()));
            let adjust = Adjust { edits, priority, ..Adjust::default() };
            LeaseCall { token, verb, adjust }
        },
    )
}

pub(crate) fn commands() -> impl Strategy<Value = Command> {
    let submit = (0..500u64, prop::option::of(0..3u32)).prop_map(|(delay, max_retries)| {
        Command::Submit(Box::new(Submission {
            ready: When::After(Millis(delay)),
            overrides: Overrides { max_retries, ..Overrides::default() },
            ..Submission::default()
        }))
    });
    let receive = (tokens(), prop::option::of((100..900u64).prop_map(Millis)), any::<bool>()).prop_map(
        |(token, visibility, assigned)| {
            Command::Receive(Receive { token, visibility, assigned, make_buffers: false })
        },
    );
    prop_oneof![
        2 => submit,
        6 => receive,
        10 => lease_calls().prop_map(|call| Command::Lease(Box::new(call))),
        4 => Just(Command::Elapse),
        1 => Just(Command::Cancel { reason: "enough".to_owned() }),
        1 => Just(Command::Pause),
        2 => Just(Command::Resume),
        3 => Just(Command::Redrive),
        1 => any::<bool>().prop_map(|force| Command::Delete { force }),
        1 => any::<i16>().prop_map(|priority| Command::SetPriority { priority }),
        1 => Just(Command::CloseQueue),
        1 => Just(Command::PauseQueue),
        2 => Just(Command::ResumeQueue),
        1 => (0..5u32).prop_map(|max_retries| Command::ChangePolicy(Box::new(PolicyPatch {
            max_retries: Some(max_retries),
            ..PolicyPatch::default()
        }))),
    ]
}

pub(crate) fn histories() -> impl Strategy<Value = (Policy, Vec<Timed>)> {
    let time = prop_oneof![3 => Just(0), 3 => 0..200u64, 1 => 0..2000u64];
    (policies(), prop::collection::vec((time, commands()), 1..60))
}
