//! The two stores: an action becomes the same operation for both, and both must give the same reply.

use super::action::*;
use super::content::*;
use super::side::*;
use crate::ReferenceStore;
use crate::suite::Harness;
use crate::suite::operations::{chosen, name};
use crate::suite::rig::START;
use futures::executor::block_on;
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use std::sync::Arc;
use towline_domain::change::{Answer, Submitted};
use towline_domain::command::{Verb, When};
use towline_domain::{
    Adjust, Effects, Field, FieldSet, HandOff, ItemId, LeaseCall, LeaseToken, Millis, QueueEffects,
    QueueName, State, Submission, TokenSeed,
};
use towline_store::Answered;
use towline_store::{ManualClock, Operation, ReceiveCall, Reply, Store};

/// The items as pairs of ids, and all leases and calls of the history.
pub(super) struct World {
    reference: Side,
    subject: Side,
    items: Vec<(ItemId, ItemId)>,
    leases: Vec<(usize, LeaseToken)>,
    unsettled: Vec<usize>,
    calls: Vec<(usize, LeaseCall)>,
    seeds: u64,
}

/// The element of `list` with this number, counted from the end.
pub(super) fn latest<T: Clone>(list: &[T], number: u8) -> Option<T> {
    // Counted from the end, so that removing an earlier step does not change the meaning of later steps.
    let back = usize::from(number % 12).min(list.len().checked_sub(1)?);
    list.get(list.len() - 1 - back).cloned()
}

impl World {
    pub(super) fn open(harness: &dyn Harness) -> World {
        let side = |open: &dyn Fn(Arc<ManualClock>) -> Arc<dyn Store>| {
            let clock = Arc::new(ManualClock::new(START));
            Side::new(open(clock.clone()), clock)
        };
        World {
            reference: side(&|clock| Arc::new(ReferenceStore::new(clock, 1))),
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
            Action::Submit { queue: to, key, content, priority, delay, own_id, overrides, once } => {
                let body = body(key, content);
                let bounded = body.replace_key.is_some() && content.is_multiple_of(2);
                same(Operation::Submit {
                    queue: queue(to),
                    submission: Box::new(Submission {
                        id: own_id.map(|number| chosen(u128::from(number % 4))),
                        after: None,
                        record_guard: once.map(record_guard),
                        priority: i16::from(priority),
                        ready: match delay {
                            0 => When::NOW,
                            delay if delay % 2 == 0 => When::After(Millis(u64::from(delay))),
                            delay => When::At(START.after(Millis(u64::from(delay)))),
                        },
                        delay_max: bounded.then_some(Millis(u64::from(content))),
                        overrides: own_overrides(overrides),
                        body,
                        fields: fields(content),
                    }),
                })
            }
            Action::Receive { queue: from, max, visibility, assigned, all_fields } => {
                self.seeds += 1;
                let mut seed = [0; 32];
                seed[..8].copy_from_slice(&self.seeds.to_le_bytes());
                same(Operation::Receive(Box::new(ReceiveCall {
                    queue: queue(from),
                    max: u32::from(max % 4) + 1,
                    visibility: visibility.map(|millis| Millis(100 + u64::from(millis))),
                    assigned,
                    seed: TokenSeed(seed),
                    fields: if all_fields { FieldSet::ALL } else { FieldSet::NONE.with(Field::Blob) },
                    make_buffers: false,
                })))
            }
            Action::Settle { lease, fresh, verb, millis, edit, priority, queue: to, ref then_submit } => {
                let lease = if fresh {
                    latest(&self.unsettled, lease).and_then(|index| self.leases.get(index).copied())
                } else {
                    latest(&self.leases, lease)
                };
                let (item, token) = lease?;
                let queue = to.map(queue);
                let call = settle_call(token, verb_of(verb, millis), edit, priority, queue, then_submit);
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
                same(change_queue(number, queue, what))
            }
            Action::Kv { key, what } => {
                same(Operation::Kv { key: KEYS[usize::from(key) % KEYS.len()].to_owned(), command: kv(what) })
            }
            Action::Sweep => same(Operation::Sweep),
        }
    }

    fn lease(&self, item: usize, call: LeaseCall) -> (Operation, Operation) {
        let (ours, theirs) = self.items[item];
        let operation = |id, call| Operation::Lease { id, call };
        (operation(ours, Box::new(call.clone())), operation(theirs, Box::new(call)))
    }

    pub(super) fn step(&mut self, harness: &dyn Harness, survives: bool, step: &Step) -> TestCaseResult {
        for side in [&self.reference, &self.subject] {
            side.clock.advance(step.wait);
        }
        if step.reopen && survives {
            self.reopen(harness)?;
            // A store need not keep the round robin across a reopen.
            let queues = block_on(self.reference.store.queues(None, 100)).expect("the store answers");
            let again: Vec<Operation> =
                queues.iter().flat_map(|view| restart_round_robin(&view.queue)).collect();
            self.reference.update(again.clone());
            self.subject.update(again);
        }
        let pairs: Vec<_> = step.batch.iter().filter_map(|action| self.resolve(action)).collect();
        let (ours, theirs): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
        let mut reference = self.reference.update(ours.clone());
        let mut subject = self.subject.update(theirs);
        prop_assert_eq!(reference.answers.len(), subject.answers.len());
        for ((operation, mut ours), mut theirs) in ours.iter().zip(reference.answers).zip(subject.answers) {
            self.pair(&ours, &theirs);
            self.reference.rename(&mut ours);
            self.subject.rename(&mut theirs);
            if let (Ok(Reply::Received(ours)), Ok(Reply::Received(theirs))) = (&ours, &mut theirs) {
                // A lower bound: of what nothing limits, a store need not know more than that there may be more.
                prop_assert!(
                    theirs.more <= ours.more.max(1) && (ours.more == 0 || theirs.more > 0),
                    "more: {} instead of {}",
                    theirs.more,
                    ours.more
                );
                theirs.more = ours.more;
            }
            prop_assert_eq!(&theirs, &ours, "the answer to {:?}", operation);
            self.learn(operation, &ours);
        }
        self.reference.rename_effects(&mut reference.effects);
        self.subject.rename_effects(&mut subject.effects);
        if ours.iter().any(is_about_a_queue) {
            // A store may carry out such a call in parts. Counts are net in each part, so they do not add up to the same.
            reference.effects.queues.values_mut().for_each(without_counts);
            subject.effects.queues.values_mut().for_each(without_counts);
            let touched = |effects: &mut Effects| {
                effects.queues.retain(|_, queue| *queue != QueueEffects::default());
            };
            touched(&mut reference.effects);
            touched(&mut subject.effects);
        }
        prop_assert_eq!(&subject.effects, &reference.effects, "the effects of {:?}", ours);
        Ok(())
    }

    fn reopen(&mut self, harness: &dyn Harness) -> TestCaseResult {
        let clock = self.subject.clock.clone();
        let closed: Arc<dyn Store> = Arc::new(ReferenceStore::new(clock.clone(), 0));
        let store = std::mem::replace(&mut self.subject.store, closed);
        match harness.reopen(store, clock) {
            Some(store) => self.subject.store = store,
            None => return Err(TestCaseError::fail("the store reopened before and does not reopen now")),
        }
        Ok(())
    }

    /// Pairs the ids that both sides created for the same operation.
    fn pair(&mut self, ours: &Answered, theirs: &Answered) {
        match (ours, theirs) {
            (
                Ok(Reply::Answer(Answer::Submitted { id: ours, created: true })),
                Ok(Reply::Answer(Answer::Submitted { id: theirs, created: true })),
            ) => self.pair_ids(*ours, *theirs),
            (Ok(Reply::Answer(Answer::HandedOff(ours))), Ok(Reply::Answer(Answer::HandedOff(theirs)))) => {
                for (ours, theirs) in ours.items.iter().zip(&theirs.items) {
                    if ours.submitted == Submitted::Created && theirs.submitted == Submitted::Created {
                        self.pair_ids(ours.id, theirs.id);
                    }
                }
            }
            (Ok(Reply::Answer(Answer::Queue(ours))), Ok(Reply::Answer(Answer::Queue(theirs)))) => {
                self.reference.queues.entry(ours.id).or_insert(ours.id);
                self.subject.queues.entry(theirs.id).or_insert(ours.id);
            }
            _ => {}
        }
    }

    fn pair_ids(&mut self, ours: ItemId, theirs: ItemId) {
        self.items.push((ours, theirs));
        self.reference.ids.insert(ours, ours);
        self.subject.ids.insert(theirs, ours);
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
            // A settled or lost lease is rarely used again.
            (
                Operation::Lease { call, .. },
                Ok(Reply::Answer(Answer::State(_) | Answer::HandedOff(_))) | Err(_),
            ) => {
                let leases = &self.leases;
                self.unsettled.retain(|&lease| leases[lease].1 != call.token);
            }
            _ => {}
        }
    }

    pub(super) fn compare(&self) -> TestCaseResult {
        // Pages of different sizes must give the same items.
        let (ours, theirs) = (self.reference.read(100), self.subject.read(7));
        prop_assert_eq!(theirs, ours);
        Ok(())
    }
}

fn settle_call(
    token: LeaseToken,
    verb: Verb,
    edit: u8,
    priority: Option<i8>,
    queue: Option<QueueName>,
    then_submit: &[(u8, Option<u8>, u8)],
) -> LeaseCall {
    // Rarely with another verb, which is refused.
    let hands_off = matches!(verb, Verb::Commit(_)) || edit.is_multiple_of(16);
    let hand_off = |&(to, key, content): &(u8, Option<u8>, u8)| {
        let (body, fields) = (body(key, content), fields(content));
        let submission = Submission { body, fields, ..Submission::default() };
        HandOff { queue: name(QUEUES[usize::from(to) % QUEUES.len()]), submission }
    };
    let adjust = Adjust {
        edits: edits(edit),
        priority: priority.map(i16::from),
        queue,
        then_submit: then_submit.iter().filter(|_| hands_off).map(hand_off).collect(),
        ..Adjust::default()
    };
    LeaseCall { token, verb, adjust }
}

fn is_about_a_queue(operation: &Operation) -> bool {
    matches!(
        operation,
        Operation::CreateQueue { .. }
            | Operation::ChangePolicy { .. }
            | Operation::CloseQueue { .. }
            | Operation::PauseQueue { .. }
            | Operation::ResumeQueue { .. }
            | Operation::DeleteQueue { .. }
    )
}

fn without_counts(effects: &mut QueueEffects) {
    let QueueEffects { reconfigured, completed, deleted, .. } = *effects;
    *effects = QueueEffects { reconfigured, completed, deleted, ..QueueEffects::default() };
}
