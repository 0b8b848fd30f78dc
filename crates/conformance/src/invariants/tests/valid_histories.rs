//! Random histories of the reference store with overlapping clients, lost replies and restarts. The checker must report
//! no violation.

use crate::ReferenceStore;
use crate::invariants::{Checker, Snapshot, snapshot};
use bytes::Bytes;
use futures::executor::block_on;
use std::sync::Arc;
use towline_domain::change::Answer;
use towline_domain::command::{Adjust, Verb, When};
use towline_domain::{
    Backoff, Body, Field, FieldEdits, FieldSet, Fields, ItemId, Json, LeaseCall, LeaseRule, LeaseToken,
    Millis, Order, Outcome, Overrides, Policy, PolicyPatch, QueueName, Schema, State, Submission, Timestamp,
    TokenSeed,
};
use towline_store::{Answered, ManualClock, Operation, ReceiveCall, Reply, Store};

/// A seed determines the whole history.
struct SeededRandom(u64);

impl SeededRandom {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.roll() % end
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn pick<'a, T>(&mut self, list: &'a [T]) -> Option<&'a T> {
        let at = self.below(list.len().max(1) as u64);
        list.get(usize::try_from(at).unwrap())
    }
}

struct InFlight {
    call: u64,
    batch: Vec<Operation>,
    answers: Option<Vec<Answered>>,
    /// The client gave up. The store may still carry out the call.
    abandoned: bool,
}

struct World {
    random: SeededRandom,
    /// Whether snapshots are read through a server.
    from_outside: bool,
    clock: Arc<ManualClock>,
    store: ReferenceStore,
    checker: Checker,
    calls: u64,
    blobs: u64,
    flying: Vec<InFlight>,
    held: Vec<(ItemId, LeaseToken)>,
    known: Vec<ItemId>,
    settles: Vec<Operation>,
    submits: Vec<Operation>,
}

const QUEUES: [&str; 4] = ["fifo", "urgent", "scored", "dead"];

fn name(text: &str) -> QueueName {
    text.parse().unwrap()
}

fn policy(queue: &str) -> Policy {
    let plain = Policy {
        visibility_timeout: Millis(400),
        completed_ttl: Some(Millis(3000)),
        failed_ttl: Some(Millis(5000)),
        backoff: Backoff::NONE,
        ..Policy::default()
    };
    match queue {
        "fifo" => {
            Policy { order: Order::Fifo, max_retries: 2, dead_letter_queue: Some(name("dead")), ..plain }
        }
        "urgent" => Policy { expire_after: Some(Millis(6000)), depth_limit: Some(60), ..plain },
        "scored" => Policy {
            order: Order::Score(Box::default()),
            give_up_after: Some(Millis(4000)),
            poison_after: Some(2),
            lease: LeaseRule {
                ack_timeout: Some(Millis(150)),
                renewal_permille: Some(500),
                renewals_max: Some(3),
            },
            ..plain
        },
        _ => Policy { failed_ttl: Some(Millis(1500)), ..plain },
    }
}

impl World {
    fn new(seed: u64, from_outside: bool) -> World {
        let clock = Arc::new(ManualClock::new(Timestamp(1_000_000)));
        let mut world = World {
            random: SeededRandom(seed),
            from_outside,
            store: ReferenceStore::new(clock.clone(), seed),
            clock,
            checker: Checker::new(),
            calls: 0,
            blobs: 0,
            flying: Vec::new(),
            held: Vec::new(),
            known: Vec::new(),
            settles: Vec::new(),
            submits: Vec::new(),
        };
        // The dead-letter queue, which is the last, comes first.
        for queue in QUEUES.into_iter().rev() {
            let create = World::create(queue);
            world.send(vec![create]);
            world.step_all();
        }
        world
    }

    fn create(queue: &str) -> Operation {
        Operation::CreateQueue {
            queue: name(queue),
            schema: Box::new(Schema::default()),
            policy: Box::new(policy(queue)),
        }
    }

    fn now(&self) -> Timestamp {
        use towline_store::Clock;
        self.clock.now()
    }

    fn send(&mut self, batch: Vec<Operation>) {
        self.calls += 1;
        self.checker.invoked(self.calls, &batch, self.now());
        self.flying.push(InFlight { call: self.calls, batch, answers: None, abandoned: false });
    }

    fn carry_out(&mut self, at: usize) {
        if self.flying[at].answers.is_none() {
            let mut batch = self.flying[at].batch.clone();
            if self.flying[at].abandoned {
                let whole = batch.len() as u64 + 1;
                batch.truncate(usize::try_from(self.random.below(whole)).unwrap());
            }
            self.flying[at].answers = Some(block_on(self.store.update(batch)).unwrap().answers);
        }
    }

    fn deliver(&mut self, at: usize) {
        self.carry_out(at);
        let done = self.flying.swap_remove(at);
        if done.abandoned {
            return;
        }
        let answers = done.answers.unwrap();
        self.checker.answered(done.call, &answers, self.now());
        for (operation, answer) in done.batch.iter().zip(&answers) {
            match answer {
                Ok(Reply::Received(received)) => {
                    for item in &received.items {
                        self.known.push(item.head.id);
                        self.held.push((item.head.id, item.head.lease().unwrap().token));
                    }
                }
                Ok(Reply::Answer(Answer::Submitted { id, .. })) => self.known.push(*id),
                Ok(Reply::Answer(Answer::State(_))) if matches!(operation, Operation::Lease { .. }) => {
                    self.settles.push(operation.clone());
                }
                _ => {}
            }
        }
        for list in [&mut self.settles, &mut self.submits] {
            let spare = list.len().saturating_sub(50);
            list.drain(..spare);
        }
        let spare = self.known.len().saturating_sub(200);
        self.known.drain(..spare);
    }

    /// Finishes every call in flight: its client gets the reply or gives up.
    fn step_all(&mut self) {
        while !self.flying.is_empty() {
            self.deliver(0);
        }
    }

    fn queue(&mut self) -> QueueName {
        name(QUEUES[usize::try_from(self.random.below(4)).unwrap()])
    }

    fn submit(&mut self) -> Operation {
        if self.random.one_in(6)
            && let Some(again) = self.random.pick(&self.submits).cloned()
        {
            return again;
        }
        self.blobs += 1;
        let blob = Some(Bytes::from(format!("payload {}", self.blobs)));
        let key = self.random.one_in(3).then(|| format!("key {}", self.random.below(40)));
        let keyed = key.is_some();
        let ready = match self.random.below(6) {
            0 => When::After(Millis(self.random.below(800))),
            1 => When::At(Timestamp(self.now().0.saturating_sub(200) + self.random.below(900))),
            _ => When::NOW,
        };
        // A chosen id is never reused after its item was removed: see the limits of the checker.
        let id =
            (!keyed && self.random.one_in(12)).then(|| ItemId(uuid::Uuid::from_u128(u128::from(self.blobs))));
        let submission = Submission {
            id,
            record_guard: None,
            after: None,
            priority: i16::try_from(self.random.below(5)).unwrap() - 2,
            ready,
            delay_max: None,
            overrides: Overrides {
                max_retries: self.random.one_in(5).then_some(1),
                expire_after: self.random.one_in(9).then_some(Millis(900)),
                completed_ttl: self.random.one_in(9).then_some(Millis(200)),
                ..Overrides::default()
            },
            body: Body {
                idempotency_key: key,
                tags: [("n".to_owned(), self.blobs.to_string())].into(),
                params: [("p".to_owned(), Json::string("v"))].into(),
                fee: Some(self.random.below(3000)),
                ..Body::default()
            },
            fields: Fields { blob, ..Fields::default() },
        };
        let operation = Operation::Submit { queue: self.queue(), submission: Box::new(submission) };
        if keyed {
            self.submits.push(operation.clone());
        }
        operation
    }

    fn receive(&mut self) -> Operation {
        let mut seed = [0; 32];
        seed[..8].copy_from_slice(&self.random.roll().to_le_bytes());
        Operation::Receive(Box::new(ReceiveCall {
            queue: self.queue(),
            max: u32::try_from(self.random.below(5) + 1).unwrap(),
            visibility: self.random.one_in(3).then(|| Millis(100 + self.random.below(900))),
            assigned: self.random.one_in(2),
            seed: TokenSeed(seed),
            fields: if self.random.one_in(3) { FieldSet::NONE } else { FieldSet::ALL },
            make_buffers: false,
        }))
    }

    fn lease(&mut self) -> Option<Operation> {
        if self.random.one_in(8)
            && let Some(again) = self.random.pick(&self.settles).cloned()
        {
            return Some(again);
        }
        let (id, token) = if self.random.one_in(10) {
            let token = LeaseToken(uuid::Uuid::from_u128(u128::from(self.random.below(9))));
            (*self.random.pick(&self.known)?, token)
        } else {
            let at = self.random.below(self.held.len().max(1) as u64);
            let at = usize::try_from(at).unwrap();
            let held = *self.held.get(at)?;
            if self.random.one_in(3) {
                self.held.swap_remove(at);
            }
            held
        };
        let mut edits = FieldEdits::default();
        if self.random.one_in(4) {
            let value = Bytes::from(self.random.below(1000).to_string());
            let field = Field::ALL[usize::try_from(self.random.below(4)).unwrap()];
            edits = if self.random.one_in(3) { edits.unset(field) } else { edits.set(field, value) };
        }
        let delay = self.random.one_in(2).then(|| Millis(self.random.below(600)));
        let verb = match self.random.below(9) {
            0 | 1 => Verb::Heartbeat {
                visibility: self.random.one_in(2).then(|| Millis(100 + self.random.below(600))),
            },
            2 => Verb::Edit,
            3 | 4 => Verb::Commit(Outcome {
                output_params: [("r".to_owned(), Json::parse(&self.random.below(99).to_string()).unwrap())]
                    .into(),
                ..Outcome::default()
            }),
            5 => Verb::Fail { reason: "no".to_owned() },
            6 => Verb::Retry { error: "later".to_owned(), delay, seed: self.random.roll() },
            7 => Verb::Release { delay: delay.unwrap_or_default(), counted: true },
            _ => Verb::Defer { until: When::After(Millis(self.random.below(900))) },
        };
        let gives_back = matches!(verb, Verb::Retry { .. } | Verb::Release { .. } | Verb::Defer { .. });
        let adjust = Adjust {
            edits,
            priority: self.random.one_in(6).then_some(1),
            queue: (gives_back && self.random.one_in(6)).then(|| self.queue()),
            buffers_whole: false,
            then_submit: Vec::new(),
        };
        let call = Box::new(LeaseCall { token, verb, adjust });
        Some(Operation::Lease { id, call })
    }

    fn operate(&mut self) -> Option<Operation> {
        let id = *self.random.pick(&self.known)?;
        Some(match self.random.below(8) {
            0 => Operation::Cancel { id, reason: "enough".to_owned() },
            1 => Operation::Pause { id },
            2 | 3 => Operation::Resume { id },
            4 | 5 => Operation::Redrive { id },
            _ => Operation::Delete { id, force: self.random.one_in(2) },
        })
    }

    fn change_queue(&mut self) -> Operation {
        let queue = self.queue();
        match self.random.below(12) {
            0 => Operation::CloseQueue { queue },
            1 | 2 => Operation::DeleteQueue { queue, force: self.random.one_in(2) },
            3 => Operation::PauseQueue { queue },
            4 | 5 => Operation::ResumeQueue { queue },
            6 => Operation::ChangePolicy {
                queue,
                patch: Box::new(PolicyPatch {
                    max_retries: self.random.one_in(2).then(|| u32::try_from(self.random.below(5)).unwrap()),
                    failed_ttl: self.random.one_in(2).then(|| Some(Millis(500 + self.random.below(4000)))),
                    ..PolicyPatch::default()
                }),
            },
            _ => World::create(queue.as_str()),
        }
    }

    fn operation(&mut self) -> Operation {
        let made = match self.random.below(100) {
            0..30 => Some(self.submit()),
            30..55 => Some(self.receive()),
            55..84 => self.lease(),
            84..95 => self.operate(),
            95..98 => Some(self.change_queue()),
            _ => None,
        };
        made.unwrap_or(Operation::Sweep)
    }

    fn observe(&mut self) {
        let seen = block_on(snapshot(&self.store, self.now())).unwrap();
        match self.from_outside {
            true => self.checker.observed_from_outside(hide_like_a_server(seen.clone())),
            false => self.checker.observed(&seen),
        }
        let again = block_on(snapshot(&self.store, self.now())).unwrap();
        self.checker.unchanged(&seen, &again);
    }

    fn run(&mut self, steps: u32) -> Result<(), String> {
        for step in 0..steps {
            match self.random.below(100) {
                0..40 if self.flying.len() < 8 => {
                    let size = if self.random.one_in(3) { 1 + self.random.below(4) } else { 1 };
                    let batch = (0..size).map(|_| self.operation()).collect();
                    self.send(batch);
                }
                40..65 if !self.flying.is_empty() => {
                    let at = usize::try_from(self.random.below(self.flying.len() as u64)).unwrap();
                    self.carry_out(at);
                }
                65..88 if !self.flying.is_empty() => {
                    let at = usize::try_from(self.random.below(self.flying.len() as u64)).unwrap();
                    self.deliver(at);
                }
                88..90 if !self.flying.is_empty() => {
                    let at = usize::try_from(self.random.below(self.flying.len() as u64)).unwrap();
                    if !self.flying[at].abandoned {
                        self.checker.lost(self.flying[at].call);
                        self.flying[at].abandoned = true;
                    }
                }
                90 if self.random.one_in(4) => {
                    for mut call in std::mem::take(&mut self.flying) {
                        call.abandoned = true;
                        self.flying.push(call);
                        if self.random.one_in(2) {
                            self.carry_out(self.flying.len() - 1);
                        }
                        self.flying.pop();
                    }
                    self.checker.restarted();
                }
                91 if self.random.one_in(3) => {
                    self.step_all();
                    self.observe();
                }
                92.. => {
                    let most = if self.random.one_in(20) { 2500 } else { 60 };
                    self.clock.advance(self.random.below(most));
                }
                _ => {}
            }
            self.check(step)?;
        }
        self.step_all();
        self.observe();
        self.check(steps)
    }

    fn check(&self, step: u32) -> Result<(), String> {
        match self.checker.violations().first() {
            None => Ok(()),
            Some(violation) => Err(format!("step {step}: {violation}")),
        }
    }
}

/// Hides the parts of a snapshot that a server does not show.
fn hide_like_a_server(mut snapshot: Snapshot) -> Snapshot {
    for stored in &mut snapshot.items {
        let head = &mut stored.item.head;
        (head.revision, head.last_settle) = (0, None);
        if let State::Processing(lease) = &mut head.state {
            (lease.token, lease.visibility) = (TokenSeed([0; 32]).token(0, Timestamp(0)), Millis::ZERO);
        }
    }
    snapshot
}

fn find_violations(from_outside: bool) -> Vec<(u64, String)> {
    (0..60).filter_map(|seed| Some((seed, World::new(seed, from_outside).run(4000).err()?))).collect()
}

#[test]
fn the_reference_store_has_no_violation() {
    assert_eq!(find_violations(false), []);
}

#[test]
fn the_reference_store_has_no_violation_through_a_server() {
    assert_eq!(find_violations(true), []);
}
