//! The promises of the model, checked on what clients saw.
//!
//! A [`Checker`] is told what was asked, what was answered, which answers never came, and what the store held at
//! quiet moments. It knows the promises, not the rules: it never calls [`towline_domain::decide()`], so that the two
//! are second opinions of each other.
//!
//! Calls may overlap. Inside its window, from invocation to answer, a call may have happened at any moment; one whose
//! answer was lost may have happened or not, until a restart ends its chance. The checker is lenient exactly that far.
//!
//! **Invariant:** the cost of a call does not depend on how many items there are; what is kept of each item is bounded.

mod absence;
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

pub use snapshot::{Snapshot, snapshot};

use history::{Cause, Fate, Key, Open, Restarts, Span, Tick};
use item::Record;
use queue::QueueRecord;
use std::collections::HashMap;
use std::sync::Arc;
use towline_domain::change::Answer;
use towline_domain::{ItemId, QueueName, Refusal, Timestamp};
use towline_store::{Answered, Operation, Reply};

/// A promise that was broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Which one, by its number in the list of invariants:
    ///
    /// 1. an acknowledged submit is never lost, an unanswered one appears at most once;
    /// 2. no item from nowhere, payload as submitted;
    /// 3. one valid lease an item;
    /// 4. a stale, expired or foreign lease does nothing;
    /// 5. one commit, and a repeated settle gets the same answer;
    /// 6. a terminal item stays as it is until it is redriven;
    /// 7. `deliveries`, `attempt` and `retries` count what they say;
    /// 8. a closed queue accepts nothing, is completed exactly when nothing is unfinished, never reopens;
    /// 9. counts equal the states;
    /// 10. one idempotency key, one item;
    /// 11. the queue's order;
    /// 12. a committed result stays readable;
    /// 13. nothing before its time, nothing unfinished removed;
    /// 16. no more items in hand than a queue's `concurrency` ever allowed, nor of a key than its `concurrency_per_key` did.
    pub invariant: u8,
    /// The item or queue, the call and what was seen.
    pub message: String,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "invariant {}: {}", self.invariant, self.message)
    }
}

/// What one call asked, while its answer is awaited.
#[derive(Debug)]
struct Call {
    batch: Arc<[Operation]>,
    invoked: Tick,
    at: Timestamp,
}

/// A violation, unless one of these calls in flight turns out to have been carried out.
#[derive(Debug)]
struct Suspicion {
    violation: Violation,
    unless: Vec<Key>,
}

/// See the [module](self).
///
/// A submit is told from others by its queue and `blob`: give each its own. An id that a submitter chose, and chose
/// again after the item was gone, is followed only as long as nobody names it meanwhile.
#[derive(Debug, Default)]
pub struct Checker {
    tick: Tick,
    restarts: Restarts,
    calls: HashMap<u64, Call>,
    items: HashMap<ItemId, Record>,
    /// Items known to be removed, for as long as a call that overlapped the removal may still tell of them.
    gone: HashMap<ItemId, Tick>,
    /// Calls about one item that are in flight or lost.
    open: HashMap<ItemId, Vec<Open>>,
    /// Submits that are in flight or lost, and that no item has been recognised as.
    submits: HashMap<(QueueName, Option<bytes::Bytes>), Vec<Open>>,
    keys: HashMap<(QueueName, String), ItemId>,
    queues: HashMap<QueueName, QueueRecord>,
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

    /// A client sent this batch, when the store's clock showed `at`.
    pub fn invoked(&mut self, call: u64, batch: &[Operation], at: Timestamp) {
        self.tick += 1;
        let batch: Arc<[Operation]> = batch.into();
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

    /// The answers came, when the store's clock showed `at`. They are durable.
    pub fn answered(&mut self, call: u64, answers: &[Answered], at: Timestamp) {
        self.tick += 1;
        let Some(Call { batch, invoked, at: from }) = self.calls.remove(&call) else {
            return self.report(2, format!("call {call} was answered but never made"));
        };
        if batch.len() != answers.len() {
            let (asked, got) = (batch.len(), answers.len());
            return self.report(2, format!("call {call} asked {asked} operations and got {got} answers"));
        }
        for (index, (operation, answer)) in batch.iter().zip(answers).enumerate() {
            let span =
                Span { key: Key::new(call, index), invoked, answered: self.tick, from, to: at.max(from) };
            let open = self.resolve(operation, span.key);
            self.answer(operation, answer, &span, open);
            self.settle_suspicions(span.key, answer.is_err());
        }
    }

    /// The answer never came: each operation may have happened, may happen yet, or not at all.
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

    /// The store stopped and was opened again: what was in flight is lost, and what was lost has had its chance.
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

    /// Reports, unless one of these calls in flight is carried out.
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

    /// An answered call is no longer open. `None` if it was not: a submit that an item was recognised as.
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
            (Operation::Lease { id, call }, Ok(Reply::Answer(answer))) => {
                self.lease_accepted(*id, call, answer, span);
            }
            (Operation::Lease { id, call }, Err(refusal)) => self.lease_refused(*id, call, refusal, span),
            (Operation::Delete { id, .. }, Ok(Reply::Answer(Answer::Removed))) => self.removed(*id, span),
            (
                Operation::Cancel { id, .. }
                | Operation::Pause { id }
                | Operation::Resume { id }
                | Operation::Redrive { id }
                | Operation::SetPriority { id, .. }
                | Operation::Move { id, .. },
                Ok(Reply::Answer(Answer::State(state))),
            ) => self.operated(*id, operation, state, span),
            (
                Operation::Cancel { id, .. }
                | Operation::Pause { id }
                | Operation::Resume { id }
                | Operation::Redrive { id }
                | Operation::Delete { id, .. }
                | Operation::SetPriority { id, .. }
                | Operation::Move { id, .. },
                Err(Refusal::ItemNotFound { .. }),
            ) => self.not_found(*id, span),
            (Operation::ResolveDependency { .. }, Ok(Reply::Answer(Answer::State(_)))) => {}
            (operation, Ok(Reply::Answer(answer))) if queue_of(operation).is_some() => {
                self.queue_answered(operation, answer, span);
            }
            (_, Err(_)) => {}
            (Operation::Sweep, Ok(Reply::Swept { .. })) | (Operation::Kv { .. }, Ok(Reply::Kv(_))) => {}
            (operation, Ok(reply)) => {
                let message = format!("{} asked {operation:?} and was answered {reply:?}", span.key);
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
