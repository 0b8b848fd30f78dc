//! Random histories on the subject and on the reference store, side by side: every answer and every read must agree.
//!
//! A history is a list of plain actions that name items and leases by number, taken modulo what exists when their
//! turn comes, so that a failing history can be shortened and still makes sense. Ids and queue numbers may differ
//! from store to store; they are paired as they are made.
//!
//! `TOWLINE_SOAK=1` runs many more and longer histories, other ones each time; `TOWLINE_MODEL_CASES` and
//! `TOWLINE_MODEL_STEPS` set the numbers themselves.

use super::Harness;
use super::rig::{START, chosen, name};
use crate::operation::Answered;
use crate::{
    Filter, ManualClock, Memory, Operation, QueueView, ReceiveCall, Received, Reply, Store, StoredItem,
};
use futures::executor::block_on;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseResult, TestError, TestRng, TestRunner};
use std::collections::HashMap;
use std::env;
use std::sync::Arc;
use towline_domain::backoff::Growth;
use towline_domain::change::Answer;
use towline_domain::command::{Verb, When};
use towline_domain::kv::{KvCommand, KvRecord};
use towline_domain::{
    Adjust, Backoff, Body, Field, FieldEdits, FieldSet, Fields, Item, ItemId, Json, LeaseCall, LeaseRule,
    LeaseToken, Millis, Order, Outcome, Overrides, Policy, PolicyPatch, QueueId, Refusal, Schema,
    ScoreWeights, State, StateName, Submission, Timestamp, TokenSeed,
};

const QUEUES: [&str; 3] = ["quick", "ranked", "scored"];
const KEYS: [&str; 3] = ["a", "b", "c"];

#[derive(Debug, Clone)]
struct Step {
    /// Milliseconds that pass first.
    wait: u64,
    reopen: bool,
    batch: Vec<Action>,
}

#[derive(Debug, Clone)]
enum Action {
    Submit {
        queue: u8,
        key: Option<u8>,
        content: u8,
        priority: i8,
        delay: u16,
        own_id: Option<u8>,
        overrides: u8,
    },
    Receive {
        queue: u8,
        max: u8,
        visibility: Option<u16>,
        assigned: bool,
        all_fields: bool,
    },
    /// `fresh`: a lease that nobody settled yet, as far as one can tell; else any lease there ever was.
    Settle {
        lease: u8,
        fresh: bool,
        verb: u8,
        millis: u16,
        edit: u8,
        priority: Option<i8>,
        queue: Option<u8>,
    },
    /// A call that was made before, once more.
    Repeat {
        call: u8,
    },
    Operate {
        item: u8,
        what: u8,
    },
    Queue {
        queue: u8,
        what: u8,
    },
    Kv {
        key: u8,
        what: u8,
    },
    Sweep,
}

fn policy(queue: usize) -> Policy {
    match queue {
        0 => Policy {
            visibility_timeout: Millis(300),
            max_retries: 2,
            backoff: Backoff {
                growth: Growth::Constant { delay: Millis(50) },
                ..Backoff::default()
            },
            completed_ttl: Some(Millis(500)),
            failed_ttl: Some(Millis(800)),
            order: Order::Fifo,
            dead_letter_queue: Some(name(QUEUES[2])),
            ..Policy::default()
        },
        1 => Policy {
            visibility_timeout: Millis(200),
            max_retries: 3,
            completed_ttl: None,
            expire_after: Some(Millis(2000)),
            give_up_after: Some(Millis(900)),
            poison_after: Some(2),
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
            // Without jitter: that depends on the id, and ids may differ.
            backoff: Backoff {
                growth: Growth::Exponential {
                    base: Millis(20),
                    factor_permille: 2000,
                    cap: Some(Millis(100)),
                },
                ..Backoff::default()
            },
            failed_ttl: Some(Millis(400)),
            order: Order::Score(Box::new(ScoreWeights {
                age_unit: Millis::seconds(1),
                ..ScoreWeights::default()
            })),
            ..Policy::default()
        },
    }
}

fn create(queue: usize) -> Operation {
    Operation::CreateQueue {
        queue: name(QUEUES[queue]),
        schema: Box::new(Schema::default()),
        policy: Box::new(policy(queue)),
    }
}

fn patch(number: u8) -> PolicyPatch {
    let none = PolicyPatch::default;
    match number % 8 {
        0 => PolicyPatch {
            max_retries: Some(0),
            ..none()
        },
        1 => PolicyPatch {
            max_retries: Some(4),
            ..none()
        },
        2 => PolicyPatch {
            depth_limit: Some(Some(3)),
            ..none()
        },
        3 => PolicyPatch {
            depth_limit: Some(None),
            ..none()
        },
        4 => PolicyPatch {
            completed_ttl: Some(Some(Millis::ZERO)),
            failed_ttl: Some(None),
            ..none()
        },
        5 => PolicyPatch {
            dead_letter_queue: Some(None),
            ..none()
        },
        6 => PolicyPatch {
            failed_ttl: Some(Some(Millis::ZERO)),
            lease: Some(LeaseRule::default()),
            ..none()
        },
        _ => PolicyPatch {
            visibility_timeout: Some(Millis(150)),
            dead_letter_queue: Some(Some(name(QUEUES[1]))),
            ..none()
        },
    }
}

/// A store, its clock, and what its ids and queue numbers are called on the reference side.
struct Side {
    store: Arc<dyn Store>,
    clock: Arc<ManualClock>,
    ids: HashMap<ItemId, ItemId>,
    queues: HashMap<QueueId, QueueId>,
}

impl Side {
    fn new(store: Arc<dyn Store>, clock: Arc<ManualClock>) -> Side {
        Side {
            store,
            clock,
            ids: HashMap::new(),
            queues: HashMap::new(),
        }
    }

    fn update(&self, batch: Vec<Operation>) -> Vec<Answered> {
        block_on(self.store.update(batch)).expect("the store answers")
    }

    fn rename_id(&self, id: &mut ItemId) {
        *id = self.ids.get(id).copied().unwrap_or(*id);
    }

    fn rename_queue(&self, id: &mut QueueId) {
        *id = self.queues.get(id).copied().unwrap_or(QueueId(u32::MAX));
    }

    fn rename_item(&self, item: &mut Item) {
        self.rename_id(&mut item.head.id);
        self.rename_queue(&mut item.head.queue);
        if let Some(origin) = item
            .head
            .extras
            .as_mut()
            .and_then(|extras| extras.origin.as_mut())
        {
            self.rename_queue(&mut origin.queue_id);
        }
        if let Some(claim) = &mut item.body.claim {
            self.rename_queue(&mut claim.queue);
        }
    }

    fn rename(&self, answered: &mut Answered) {
        match answered {
            Ok(Reply::Answer(Answer::Submitted { id, .. })) => self.rename_id(id),
            Ok(Reply::Answer(Answer::Queue(queue))) => self.rename_queue(&mut queue.id),
            Ok(Reply::Received(Received { items, .. })) => {
                items.iter_mut().for_each(|item| self.rename_item(item));
            }
            // A store may have carried out what was due already.
            Ok(Reply::Swept { changed }) => *changed = 0,
            Ok(Reply::Answer(_) | Reply::Kv(_)) => {}
            Err(
                Refusal::ItemNotFound { id }
                | Refusal::IdTaken { id }
                | Refusal::KeyConflict { id, .. }
                | Refusal::LeaseLost { id, .. }
                | Refusal::AlreadySettled { id, .. }
                | Refusal::WrongState { id, .. }
                | Refusal::RenewalsExhausted { id, .. }
                | Refusal::NotDue { id },
            ) => self.rename_id(id),
            Err(_) => {}
        }
    }

    /// All that can be read, under the reference's names.
    fn read(&self, page: usize) -> Reading {
        loop {
            let swept = self.update(vec![Operation::Sweep]);
            if swept == [Ok(Reply::Swept { changed: 0 })] {
                break;
            }
        }
        let mut queues = block_on(self.store.queues(None, 100)).expect("the store answers");
        for view in &mut queues {
            self.rename_queue(&mut view.queue.id);
        }
        let lists = filters()
            .into_iter()
            .map(|filter| self.list(&filter, page))
            .collect();
        let keys = KEYS.map(str::to_owned).to_vec();
        Reading {
            queues,
            lists,
            records: block_on(self.store.kv_get(keys)).expect("the store answers"),
            next_wake: block_on(self.store.next_wake()).expect("the store answers"),
        }
    }

    fn list(&self, filter: &Filter, limit: usize) -> Vec<StoredItem> {
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let page = self.store.list(filter.clone(), after, limit, FieldSet::ALL);
            let page = block_on(page).expect("the store answers");
            all.extend(page.items);
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        for stored in &mut all {
            self.rename_item(&mut stored.item);
        }
        all
    }
}

#[derive(Debug, PartialEq)]
struct Reading {
    queues: Vec<QueueView>,
    lists: Vec<Vec<StoredItem>>,
    records: Vec<Option<KvRecord>>,
    next_wake: Option<Timestamp>,
}

/// Everything, and a few ways of asking for less.
fn filters() -> Vec<Filter> {
    let tag = |value: &str| Filter {
        tags: vec![("parity".to_owned(), value.to_owned())],
        ..Filter::default()
    };
    let state = |state| Filter {
        state: Some(state),
        queue: Some(name(QUEUES[0])),
        ..Filter::default()
    };
    vec![
        Filter::default(),
        tag("odd"),
        state(StateName::Ready),
        state(StateName::Failed),
        Filter {
            idempotency_key: Some("k1".to_owned()),
            ..Filter::default()
        },
        Filter {
            group: Some("g0".to_owned()),
            state: Some(StateName::Unfinished),
            ..Filter::default()
        },
    ]
}

/// What the two sides have in common: items as pairs of ids, and every lease and call there was.
struct World {
    reference: Side,
    subject: Side,
    items: Vec<(ItemId, ItemId)>,
    leases: Vec<(usize, LeaseToken)>,
    unsettled: Vec<usize>,
    calls: Vec<(usize, LeaseCall)>,
    seeds: u64,
}

/// The number-th latest of `list`.
fn latest<T: Clone>(list: &[T], number: u8) -> Option<T> {
    let reach = list.len().min(12);
    let back = usize::from(number).checked_rem(reach)?;
    list.get(list.len() - 1 - back).cloned()
}

impl World {
    fn open(harness: &dyn Harness) -> World {
        let side = |open: &dyn Fn(Arc<ManualClock>) -> Arc<dyn Store>| {
            let clock = Arc::new(ManualClock::new(START));
            Side::new(open(clock.clone()), clock)
        };
        World {
            reference: side(&|clock| Arc::new(Memory::new(clock, 1))),
            subject: side(&|clock| harness.open(clock)),
            items: Vec::new(),
            leases: Vec::new(),
            unsettled: Vec::new(),
            calls: Vec::new(),
            seeds: 0,
        }
    }

    /// The same operation for both sides.
    fn resolve(&mut self, action: &Action) -> Option<(Operation, Operation)> {
        let same = |operation: Operation| Some((operation.clone(), operation));
        let queue = |number: u8| name(QUEUES[usize::from(number) % QUEUES.len()]);
        match *action {
            Action::Submit {
                queue: to,
                key,
                content,
                priority,
                delay,
                own_id,
                overrides,
            } => same(Operation::Submit {
                queue: queue(to),
                submission: Box::new(Submission {
                    id: own_id.map(|number| chosen(u128::from(number % 4))),
                    priority: i16::from(priority),
                    ready: match delay {
                        0 => When::NOW,
                        delay if delay % 2 == 0 => When::After(Millis(u64::from(delay))),
                        delay => When::At(START.after(Millis(u64::from(delay)))),
                    },
                    overrides: own_overrides(overrides),
                    body: body(key, content),
                    fields: fields(content),
                }),
            }),
            Action::Receive {
                queue: from,
                max,
                visibility,
                assigned,
                all_fields,
            } => {
                self.seeds += 1;
                let mut seed = [0; 32];
                seed[..8].copy_from_slice(&self.seeds.to_le_bytes());
                same(Operation::Receive(Box::new(ReceiveCall {
                    queue: queue(from),
                    max: u32::from(max % 4) + 1,
                    visibility: visibility.map(|millis| Millis(100 + u64::from(millis))),
                    assigned,
                    seed: TokenSeed(seed),
                    fields: if all_fields {
                        FieldSet::ALL
                    } else {
                        FieldSet::NONE.with(Field::Blob)
                    },
                })))
            }
            Action::Settle {
                lease,
                fresh,
                verb,
                millis,
                edit,
                priority,
                queue: to,
            } => {
                let lease = if fresh {
                    latest(&self.unsettled, lease).and_then(|index| self.leases.get(index).copied())
                } else {
                    latest(&self.leases, lease)
                };
                let (item, token) = lease?;
                let call = LeaseCall {
                    token,
                    verb: verb_of(verb, millis),
                    adjust: Adjust {
                        edits: edits(edit),
                        priority: priority.map(i16::from),
                        queue: to.map(queue),
                    },
                };
                self.calls.push((item, call.clone()));
                Some(self.lease(item, call))
            }
            Action::Repeat { call } => {
                let (item, call) = latest(&self.calls, call)?;
                Some(self.lease(item, call))
            }
            Action::Operate { item, what } => {
                let (ours, theirs) = latest(&self.items, item)?;
                Some((operate(ours, what), operate(theirs, what)))
            }
            Action::Queue { queue: which, what } => {
                let number = usize::from(which) % QUEUES.len();
                let queue = queue(which);
                same(match what {
                    0..=119 => create(number),
                    120..=159 => Operation::ChangePolicy {
                        queue,
                        patch: Box::new(patch(what)),
                    },
                    160..=179 => Operation::PauseQueue { queue },
                    180..=219 => Operation::ResumeQueue { queue },
                    220..=239 => Operation::CloseQueue { queue },
                    what => Operation::DeleteQueue {
                        queue,
                        force: what % 2 == 0,
                    },
                })
            }
            Action::Kv { key, what } => same(Operation::Kv {
                key: KEYS[usize::from(key) % KEYS.len()].to_owned(),
                command: kv(what),
            }),
            Action::Sweep => same(Operation::Sweep),
        }
    }

    fn lease(&self, item: usize, call: LeaseCall) -> (Operation, Operation) {
        let (ours, theirs) = self.items[item];
        let operation = |id, call| Operation::Lease { id, call };
        (
            operation(ours, Box::new(call.clone())),
            operation(theirs, Box::new(call)),
        )
    }

    fn step(&mut self, harness: &dyn Harness, survives: bool, step: &Step) -> TestCaseResult {
        for side in [&self.reference, &self.subject] {
            side.clock.advance(step.wait);
        }
        if step.reopen && survives {
            self.reopen(harness)?;
        }
        let pairs: Vec<_> = step
            .batch
            .iter()
            .filter_map(|action| self.resolve(action))
            .collect();
        let (ours, theirs): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
        let reference = self.reference.update(ours.clone());
        let subject = self.subject.update(theirs);
        prop_assert_eq!(reference.len(), subject.len());
        for ((operation, mut ours), mut theirs) in ours.iter().zip(reference).zip(subject) {
            self.pair(&ours, &theirs);
            self.reference.rename(&mut ours);
            self.subject.rename(&mut theirs);
            prop_assert_eq!(&theirs, &ours, "the answer to {:?}", operation);
            self.learn(operation, &ours);
        }
        Ok(())
    }

    fn reopen(&mut self, harness: &dyn Harness) -> TestCaseResult {
        let clock = self.subject.clock.clone();
        let closed: Arc<dyn Store> = Arc::new(Memory::new(clock.clone(), 0));
        let store = std::mem::replace(&mut self.subject.store, closed);
        match harness.reopen(store, clock) {
            Some(store) => self.subject.store = store,
            None => return Err(TestCaseError::fail("it opened again once, and now it does not")),
        }
        Ok(())
    }

    /// Notes what both sides made at the same time.
    fn pair(&mut self, ours: &Answered, theirs: &Answered) {
        match (ours, theirs) {
            (
                Ok(Reply::Answer(Answer::Submitted {
                    id: ours,
                    created: true,
                })),
                Ok(Reply::Answer(Answer::Submitted {
                    id: theirs,
                    created: true,
                })),
            ) => {
                self.items.push((*ours, *theirs));
                self.reference.ids.insert(*ours, *ours);
                self.subject.ids.insert(*theirs, *ours);
            }
            (Ok(Reply::Answer(Answer::Queue(ours))), Ok(Reply::Answer(Answer::Queue(theirs)))) => {
                self.reference.queues.entry(ours.id).or_insert(ours.id);
                self.subject.queues.entry(theirs.id).or_insert(ours.id);
            }
            _ => {}
        }
    }

    fn learn(&mut self, operation: &Operation, answered: &Answered) {
        match (operation, answered) {
            (_, Ok(Reply::Received(received))) => {
                for item in &received.items {
                    let index = self.items.iter().rposition(|(ours, _)| *ours == item.head.id);
                    if let (Some(index), State::Processing(lease)) = (index, &item.head.state) {
                        self.unsettled.push(self.leases.len());
                        self.leases.push((index, lease.token));
                    }
                }
            }
            // Settled or lost: not worth trying again, except now and then.
            (Operation::Lease { call, .. }, Ok(Reply::Answer(Answer::State(_))) | Err(_)) => {
                let leases = &self.leases;
                self.unsettled.retain(|&lease| leases[lease].1 != call.token);
            }
            _ => {}
        }
    }

    fn compare(&self) -> TestCaseResult {
        // Pages of different sizes must add up to the same.
        let (ours, theirs) = (self.reference.read(100), self.subject.read(3));
        prop_assert_eq!(theirs, ours);
        Ok(())
    }
}

fn body(key: Option<u8>, content: u8) -> Body {
    let parity = if content.is_multiple_of(2) { "even" } else { "odd" };
    Body {
        idempotency_key: key.map(|key| format!("k{}", key % 4)),
        tags: [("parity".to_owned(), parity.to_owned())].into(),
        group: content.is_multiple_of(3).then(|| format!("g{}", content % 2)),
        params: [("n".to_owned(), Json::string(&(content % 3).to_string()))].into(),
        fee: Some(u64::from(content) * 37 % 1000),
        ..Body::default()
    }
}

fn fields(content: u8) -> Fields {
    let bytes = |size: usize| bytes::Bytes::from(vec![content % 3; size]);
    Fields {
        state_blob: (content % 3 == 1).then(|| bytes(0)),
        blob: (content % 3 != 2).then(|| bytes(10)),
        metadata: None,
        parameters: (content % 3 == 2).then(|| bytes(5000)),
    }
}

fn own_overrides(number: u8) -> Overrides {
    let none = Overrides::default;
    match number % 16 {
        0 => Overrides {
            max_retries: Some(0),
            ..none()
        },
        1 => Overrides {
            max_retries: Some(5),
            completed_ttl: Some(Millis(50)),
            ..none()
        },
        2 => Overrides {
            expire_after: Some(Millis(250)),
            failed_ttl: Some(Millis(1000)),
            ..none()
        },
        3 => Overrides {
            give_up_after: Some(Millis(350)),
            ..none()
        },
        4 => Overrides {
            expire_after: Some(Millis::ZERO),
            ..none()
        },
        _ => none(),
    }
}

fn verb_of(number: u8, millis: u16) -> Verb {
    let span = Millis(u64::from(millis % 400));
    match number % 16 {
        0..=4 => Verb::Commit(Outcome {
            output_params: (0..millis % 2)
                .map(|n| (format!("p{n}"), Json::string(&millis.to_string())))
                .collect(),
            ..Outcome::default()
        }),
        5 => Verb::Fail {
            reason: format!("failed {}", millis % 3),
        },
        6..=8 => Verb::Retry {
            error: format!("retried {}", millis % 3),
            delay: (millis % 2 == 0).then_some(span),
            seed: u64::from(millis),
        },
        9..=10 => Verb::Release {
            delay: if millis % 2 == 0 { Millis::ZERO } else { span },
        },
        11 => Verb::Defer {
            until: When::After(span),
        },
        12 => Verb::Defer {
            until: When::At(START.after(Millis(u64::from(millis)))),
        },
        13..=14 => Verb::Heartbeat {
            visibility: (millis % 3 == 0).then(|| Millis(100 + span.0)),
        },
        _ => Verb::Edit,
    }
}

fn edits(number: u8) -> FieldEdits {
    let none = FieldEdits::default();
    match number % 12 {
        0 => none.set(Field::StateBlob, vec![number; 20].into()),
        1 => none.set(Field::Blob, bytes::Bytes::new()),
        2 => none.unset(Field::Blob).set(Field::Metadata, "m".into()),
        3 => none.unset(Field::Parameters).unset(Field::StateBlob),
        _ => none,
    }
}

fn operate(id: ItemId, what: u8) -> Operation {
    let delete = |force, only| Operation::Delete { id, force, only };
    match what % 16 {
        0..=2 => Operation::Cancel {
            id,
            reason: "enough".to_owned(),
        },
        3..=5 => Operation::Pause { id },
        6..=8 => Operation::Resume { id },
        9..=12 => Operation::Redrive { id },
        13 => delete(false, None),
        14 => delete(true, None),
        _ => delete(true, Some(StateName::Failed)),
    }
}

fn kv(what: u8) -> KvCommand {
    let ttl = (what % 5 == 0).then_some(Millis(150));
    let value = bytes::Bytes::from((what % 7).to_string());
    match what % 8 {
        0..=1 => KvCommand::Set { value, ttl },
        2..=3 => KvCommand::SetIfAbsent { value, ttl },
        4..=6 => KvCommand::Increment {
            by: i64::from(what) - 100,
            ttl,
        },
        _ => KvCommand::Delete,
    }
}

fn actions() -> impl Strategy<Value = Action> {
    let rarely = |weight| proptest::option::weighted(weight, any::<u8>());
    let priority = || -2..3_i8;
    prop_oneof![
        7 => (
            any::<u8>(),
            rarely(0.3),
            any::<u8>(),
            priority(),
            prop_oneof![3 => Just(0), 1 => 0..600_u16],
            rarely(0.15),
            any::<u8>(),
        )
            .prop_map(|(queue, key, content, priority, delay, own_id, overrides)| Action::Submit {
                queue, key, content, priority, delay, own_id, overrides,
            }),
        7 => (
            any::<u8>(),
            any::<u8>(),
            proptest::option::weighted(0.2, 0..300_u16),
            proptest::bool::weighted(0.3),
            any::<bool>(),
        )
            .prop_map(|(queue, max, visibility, assigned, all_fields)| Action::Receive {
                queue, max, visibility, assigned, all_fields,
            }),
        10 => (
            any::<u8>(),
            proptest::bool::weighted(0.9),
            any::<u8>(),
            any::<u16>().prop_map(|millis| millis % 2000),
            any::<u8>(),
            proptest::option::weighted(0.2, priority()),
            rarely(0.15),
        )
            .prop_map(|(lease, fresh, verb, millis, edit, priority, queue)| Action::Settle {
                lease, fresh, verb, millis, edit, priority, queue,
            }),
        2 => any::<u8>().prop_map(|call| Action::Repeat { call }),
        3 => any::<(u8, u8)>().prop_map(|(item, what)| Action::Operate { item, what }),
        2 => any::<(u8, u8)>().prop_map(|(queue, what)| Action::Queue { queue, what }),
        1 => any::<(u8, u8)>().prop_map(|(key, what)| Action::Kv { key, what }),
        1 => Just(Action::Sweep),
    ]
}

fn histories(steps: usize) -> impl Strategy<Value = Vec<Step>> {
    let wait = prop_oneof![
        12 => Just(0),
        8 => 1..30_u64,
        4 => 30..150_u64,
        1 => 150..400_u64,
        1 => prop_oneof![Just(50), Just(100), Just(200), Just(300), Just(500), Just(900), Just(2500)],
    ];
    let batch = prop_oneof![
        3 => proptest::collection::vec(actions(), 1),
        1 => proptest::collection::vec(actions(), 2..6),
    ];
    let step = (wait, proptest::bool::weighted(0.03), batch).prop_map(|(wait, reopen, batch)| Step {
        wait,
        reopen,
        batch,
    });
    proptest::collection::vec(step, 1..steps)
}

fn play(harness: &dyn Harness, survives: bool, history: &[Step]) -> TestCaseResult {
    let mut world = World::open(harness);
    let queues = (0..QUEUES.len()).map(|queue| {
        let queue = u8::try_from(queue).unwrap_or(0);
        Action::Queue { queue, what: 0 }
    });
    let first = Step {
        wait: 0,
        reopen: false,
        batch: queues.collect(),
    };
    world.step(harness, survives, &first)?;
    for (n, step) in history.iter().enumerate() {
        world.step(harness, survives, step)?;
        if n % 8 == 7 {
            world.compare()?;
        }
    }
    world.compare()
}

fn number(variable: &str, otherwise: usize) -> usize {
    env::var(variable)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(otherwise)
}

pub(super) fn random_histories_agree_with_the_reference_store(harness: &dyn Harness) {
    let soak = env::var_os("TOWLINE_SOAK").is_some();
    let steps = number("TOWLINE_MODEL_STEPS", if soak { 400 } else { 120 });
    let config = Config {
        cases: u32::try_from(number("TOWLINE_MODEL_CASES", if soak { 5000 } else { 400 }))
            .unwrap_or(u32::MAX),
        max_shrink_iters: 4000,
        failure_persistence: None,
        ..Config::default()
    };
    let mut runner = if soak {
        TestRunner::new(config)
    } else {
        // The same histories every time: a change that breaks one is the change that broke it.
        TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]))
    };
    let clock = Arc::new(ManualClock::new(START));
    let survives = harness.reopen(harness.open(clock.clone()), clock).is_some();
    let result = runner.run(&histories(steps), |history| play(harness, survives, &history));
    match result {
        Ok(()) => {}
        Err(TestError::Fail(reason, history)) => {
            panic!("{reason}\n\nthe shortest history found that shows it:\n{history:#?}")
        }
        Err(TestError::Abort(reason)) => panic!("{reason}"),
    }
}
