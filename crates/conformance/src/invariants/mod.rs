//! The invariant checker: checks the guarantees of a store on the replies that clients got.
//!
//! A [`Checker`] gets all calls, their replies, the calls whose reply was lost, and snapshots of the store at quiet
//! moments. It knows the guarantees but not the rules: it never calls [`towline_domain::decide()`], so that an error in
//! one does not hide in the other.
//!
//! Calls may overlap. The store may carry out a call at any moment between the call and its reply. A call whose reply was
//! lost may be carried out or not, until the next restart. The checker accepts every history that this allows.
//!
//! **Invariant:** the cost of a call does not depend on the number of items, and the checker's memory for each item is
//! bounded.

mod absence;
mod groups;
mod hand_off;
mod history;
mod item;
mod lease;
mod observe;
mod operate;
mod outside;
mod payload;
mod queue;
mod rebase;
mod receive;
mod recognise;
mod snapshot;
mod submit;
#[cfg(test)]
mod tests;

pub use groups::GroupLedger;
pub use snapshot::{Snapshot, snapshot};

use history::{Cause, Fate, Key, Open, Restarts, Span, Tick};
use item::Record;
use queue::QueueRecord;
use std::collections::HashMap;
use std::sync::Arc;
use towline_domain::change::Answer;
use towline_domain::{ItemId, QueueName, Refusal, Timestamp};
use towline_store::{Answered, Operation, OperationError, Reply};

/// A violated invariant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Its number in the list of invariants:
    ///
    /// 1. an acknowledged submit is never lost, and an unanswered one appears at most once;
    /// 2. every item comes from a submit and has the submitted payload;
    /// 3. an item has at most one valid lease;
    /// 4. a stale, expired or foreign lease changes nothing;
    /// 5. an item is committed at most once, and a repeated settle gets the same reply;
    /// 6. a terminal item does not change until it is redriven;
    /// 7. `deliveries`, `attempt` and `retries` are exact;
    /// 8. a closed queue accepts no item, is completed exactly when it has no unfinished item, and never reopens;
    /// 9. the counts of a queue equal the states of its items;
    /// 10. an idempotency key has one item;
    /// 11. items are received in the order of the queue;
    /// 12. a committed result stays readable;
    /// 13. no item is received before its ready time, and no unfinished item is removed;
    /// 16. a queue has at most as many leased items as its `concurrency` ever allowed, and a key at most as many as
    ///     `concurrency_per_key` ever allowed;
    /// 17. the counts of a group have each member once, by how it ended; see [`GroupLedger`];
    /// 18. a commit and the items that it submits are one step: both are there, or neither.
    pub invariant: u8,
    /// The item or queue, the call, and the observation.
    pub message: String,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "invariant {}: {}", self.invariant, self.message)
    }
}

/// A call in flight.
#[derive(Debug)]
struct Call {
    batch: Arc<[Operation]>,
    invoked: Tick,
    at: Timestamp,
}

/// A violation, unless one of these calls in flight was carried out.
#[derive(Debug)]
struct Suspicion {
    violation: Violation,
    unless: Vec<Key>,
}

/// See the [module](self).
///
/// The checker recognises a submit by its queue and `blob`, so each submit needs a unique `blob`. If a submitter reuses an
/// id after its item was removed, the checker follows it only while no other call names that id.
#[derive(Debug, Default)]
pub struct Checker {
    tick: Tick,
    restarts: Restarts,
    calls: HashMap<u64, Call>,
    items: HashMap<ItemId, Record>,
    /// Removed items, kept while a call that overlapped the removal may still return them.
    gone: HashMap<ItemId, Tick>,
    /// Calls on one item that are in flight or lost.
    open: HashMap<ItemId, Vec<Open>>,
    /// Submits that are in flight or lost and have no recognised item yet.
    submits: HashMap<(QueueName, Option<bytes::Bytes>), Vec<Open>>,
    keys: HashMap<(QueueName, String), ItemId>,
    queues: HashMap<QueueName, QueueRecord>,
    /// The submits that commits carry, and the committed items.
    carried: HashMap<Key, ItemId>,
    suspicions: Vec<Suspicion>,
    violations: Vec<Violation>,
}

impl Checker {
    #[must_use]
    pub fn new() -> Checker {
        Checker::default()
    }

    #[must_use]
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// A client sent this batch at time `at` of the store's clock.
    pub fn invoked(&mut self, call: u64, batch: &[Operation], at: Timestamp) {
        self.tick += 1;
        let batch = hand_off::expanded(batch);
        self.carried.extend(hand_off::carried(call, &batch));
        for (index, operation) in batch.iter().enumerate() {
            let open = Open {
                key: Key::new(call, index),
                fate: Fate::InFlight,
                batch: batch.clone(),
                invoked: self.tick,
                at,
            };
            if let Some(id) = operation.item() {
                self.open.entry(id).or_default().push(open);
            } else if let Operation::Submit { queue, submission } = operation {
                let identity = (queue.clone(), submission.fields.blob.clone());
                self.submits.entry(identity).or_default().push(open);
            } else if let Some(name) = queue_of(operation) {
                self.queues.entry(name.clone()).or_default().invoked(open);
            }
        }
        self.calls.insert(call, Call { batch, invoked: self.tick, at });
    }

    /// The replies came at time `at` of the store's clock. The changes are durable.
    pub fn answered(&mut self, call: u64, answers: &[Answered], at: Timestamp) {
        self.tick += 1;
        let Some(Call { batch, invoked, at: from }) = self.calls.remove(&call) else {
            return self.report(2, format!("call {call} got a reply but was never sent"));
        };
        let Some(answers) = hand_off::expanded_answers(&batch, answers) else {
            let got = answers.len();
            return self.report(2, format!("call {call} has other operations than its {got} replies"));
        };
        for (index, (operation, answer)) in batch.iter().zip(&answers).enumerate() {
            let span =
                Span { key: Key::new(call, index), invoked, answered: self.tick, from, to: at.max(from) };
            let open = self.resolve(operation, span.key);
            self.answer(operation, answer, &span, open);
            if !matches!(answer, Ok(Reply::Answer(Answer::Submitted { created: true, .. }))) {
                self.carried.remove(&span.key);
            }
            self.settle_suspicions(span.key, answer.is_err());
        }
    }

    /// The reply was lost. Each operation may have been carried out, may be carried out later, or never.
    pub fn lost(&mut self, call: u64) {
        let Some(lost) = self.calls.remove(&call) else {
            return;
        };
        let fate = Fate::Lost(self.restarts);
        for (index, operation) in lost.batch.iter().enumerate() {
            let key = Key::new(call, index);
            if let Some(open) =
                self.open_list(operation).and_then(|list| list.iter_mut().find(|o| o.key == key))
            {
                open.fate = fate;
            }
            self.suspicions.retain(|suspicion| !suspicion.unless.contains(&key));
        }
    }

    /// The store was reopened. Calls in flight are lost, and calls lost earlier can no longer be carried out.
    pub fn restarted(&mut self) {
        let calls: Vec<u64> = self.calls.keys().copied().collect();
        for call in calls {
            self.lost(call);
        }
        self.restarts += 1;
    }

    fn report(&mut self, invariant: u8, message: String) {
        self.violations.push(Violation { invariant, message });
    }

    /// Reports a violation, unless one of these calls in flight was carried out.
    fn suspect(&mut self, invariant: u8, message: String, unless: Vec<Key>) {
        if unless.is_empty() {
            return self.report(invariant, message);
        }
        let violation = Violation { invariant, message };
        self.suspicions.push(Suspicion { violation, unless });
    }

    fn settle_suspicions(&mut self, key: Key, refused: bool) {
        if self.suspicions.is_empty() {
            return;
        }
        let mut proven = Vec::new();
        self.suspicions.retain_mut(|suspicion| {
            if !suspicion.unless.contains(&key) {
                return true;
            }
            if !refused {
                return false;
            }
            suspicion.unless.retain(|other| *other != key);
            if suspicion.unless.is_empty() {
                proven.push(suspicion.violation.clone());
            }
            !suspicion.unless.is_empty()
        });
        self.violations.extend(proven);
    }

    fn open_list(&mut self, operation: &Operation) -> Option<&mut Vec<Open>> {
        if let Some(id) = operation.item() {
            return self.open.get_mut(&id);
        }
        if let Operation::Submit { queue, submission } = operation {
            return self.submits.get_mut(&(queue.clone(), submission.fields.blob.clone()));
        }
        let record = self.queues.get_mut(queue_of(operation)?)?;
        Some(match operation {
            Operation::Receive(_) => &mut record.receives,
            _ => &mut record.open,
        })
    }

    /// Closes an answered call. `None` for a submit whose item was recognised before.
    fn resolve(&mut self, operation: &Operation, key: Key) -> Option<Open> {
        let list = self.open_list(operation)?;
        let position = list.iter().position(|open| open.key == key)?;
        let open = list.swap_remove(position);
        if list.is_empty() {
            if let Some(id) = operation.item() {
                self.open.remove(&id);
            } else if let Operation::Submit { queue, submission } = operation {
                self.submits.remove(&(queue.clone(), submission.fields.blob.clone()));
            }
        }
        Some(open)
    }

    fn answer(&mut self, operation: &Operation, answer: &Answered, span: &Span, open: Option<Open>) {
        match (operation, answer) {
            (Operation::Guarded { then, .. }, answer) => self.answer(then, answer, span, open),
            (Operation::Submit { queue, submission }, answer) => {
                self.submit_answered(queue, submission, answer, span, open.is_none());
            }
            (Operation::Receive(call), Ok(Reply::Received(received))) => {
                self.received(call, received, span);
            }
            // Nothing was decided yet.
            (Operation::Lease { .. }, Ok(Reply::Answer(Answer::CheckBuffers(_)))) => {}
            (Operation::Lease { id, call }, Ok(Reply::Answer(answer))) => {
                self.lease_accepted(*id, call, answer, span);
            }
            (Operation::Lease { id, call }, Err(OperationError::Refused(refusal))) => {
                self.lease_refused(*id, call, refusal, span);
            }
            (Operation::Delete { id, .. }, Ok(Reply::Answer(Answer::Removed))) => self.removed(*id, span),
            (
                Operation::Cancel { id, .. }
                | Operation::Pause { id }
                | Operation::Resume { id }
                | Operation::Redrive { id }
                | Operation::SetPriority { id, .. }
                | Operation::Move { id, .. },
                Ok(Reply::Answer(Answer::State(state))),
            ) => self.operated(*id, operation, *state, span),
            (
                Operation::Cancel { id, .. }
                | Operation::Pause { id }
                | Operation::Resume { id }
                | Operation::Redrive { id }
                | Operation::Delete { id, .. }
                | Operation::SetPriority { id, .. }
                | Operation::Move { id, .. },
                Err(OperationError::Refused(Refusal::ItemNotFound { .. })),
            ) => self.not_found(*id, span),
            (Operation::ResolveDependency { .. }, Ok(Reply::Answer(Answer::State(_)))) => {}
            (operation, Ok(Reply::Answer(answer))) if queue_of(operation).is_some() => {
                self.queue_answered(operation, answer, span);
            }
            (_, Err(_)) => {}
            (Operation::Sweep, Ok(Reply::Swept { .. })) | (Operation::Kv { .. }, Ok(Reply::Kv(_))) => {}
            (operation, Ok(reply)) => {
                let message = format!("{} sent {operation:?} and got {reply:?}", span.key);
                self.report(2, message);
            }
        }
    }
}

fn queue_of(operation: &Operation) -> Option<&QueueName> {
    match operation {
        Operation::CreateQueue { queue, .. }
        | Operation::ChangePolicy { queue, .. }
        | Operation::CloseQueue { queue }
        | Operation::PauseQueue { queue }
        | Operation::ResumeQueue { queue }
        | Operation::DeleteQueue { queue, .. } => Some(queue),
        Operation::Receive(call) => Some(&call.queue),
        _ => None,
    }
}
