//! What the checker knows about each queue: whether it exists, whether it is closed, and the bounds of its policies.

use super::history::{Open, Span, Tick};
use super::{Cause, Checker};
use std::collections::BTreeMap;
use towline_domain::change::Answer;
use towline_domain::{Counts, Millis, Order, Policy, Queue, QueueId, QueueName, QueueState, Unique};
use towline_store::{Operation, QueueView};

#[derive(Debug, Default)]
pub(super) struct QueueRecord {
    /// Creates, deletes, closes and policy changes that are in flight or lost.
    pub(super) open: Vec<Open>,
    /// Receives that are in flight or lost.
    pub(super) receives: Vec<Open>,
    /// The last certain observation.
    known: Option<SeenQueue>,
    /// When a delete was last acknowledged.
    pub(super) deleted: Tick,
    /// The loosest bounds of all policies since a queue of this name was first created.
    pub(super) bounds: Bounds,
}

#[derive(Debug, Clone)]
struct SeenQueue {
    id: QueueId,
    state: QueueState,
    order: Order,
    span: Span,
}

/// The loosest bounds of all policies so far.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    pub(super) completed_ttl: Option<Millis>,
    pub(super) failed_ttl: Option<Millis>,
    pub(super) expire_after: Option<Millis>,
    pub(super) give_up_after: Option<Millis>,
    pub(super) max_retries_most: u32,
    pub(super) max_retries_least: u32,
    pub(super) poison: bool,
    pub(super) dead_letters: bool,
    /// Whether a policy freed the keys of ended items.
    pub(super) frees_keys: bool,
    /// The maximum number of leased items; `None` if no policy had a limit.
    pub(super) concurrency: Option<u64>,
    /// The same for each key.
    pub(super) concurrency_per_key: Option<u64>,
    /// Whether a policy had fairness.
    pub(super) turns: bool,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds {
            completed_ttl: None,
            failed_ttl: None,
            expire_after: None,
            give_up_after: None,
            max_retries_most: 0,
            max_retries_least: u32::MAX,
            poison: false,
            dead_letters: false,
            frees_keys: false,
            concurrency: None,
            concurrency_per_key: None,
            turns: false,
        }
    }
}

/// The shorter of two spans. `None` is infinite.
pub(super) fn sooner(a: Option<Millis>, b: Option<Millis>) -> Option<Millis> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

impl Bounds {
    fn allow(&mut self, policy: &Policy) {
        self.completed_ttl = sooner(self.completed_ttl, policy.completed_ttl);
        self.failed_ttl = sooner(self.failed_ttl, policy.failed_ttl);
        self.expire_after = sooner(self.expire_after, policy.expire_after);
        self.give_up_after = sooner(self.give_up_after, policy.give_up_after);
        self.max_retries_most = self.max_retries_most.max(policy.max_retries);
        self.max_retries_least = self.max_retries_least.min(policy.max_retries);
        self.poison |= policy.poison_after.is_some();
        self.dead_letters |= policy.dead_letter_queue.is_some();
        self.frees_keys |= policy.unique == Unique::WhileUnfinished;
        let concurrency = policy.flow.concurrency.map_or(u64::MAX, u64::from);
        self.concurrency = self.concurrency.max(Some(concurrency));
        let per_key = policy.flow.concurrency_per_key.map_or(u64::MAX, u64::from);
        self.concurrency_per_key = self.concurrency_per_key.max(Some(per_key));
        self.turns |= policy.flow.takes_turns();
    }

    pub(super) fn join(&mut self, other: &Bounds) {
        self.completed_ttl = sooner(self.completed_ttl, other.completed_ttl);
        self.failed_ttl = sooner(self.failed_ttl, other.failed_ttl);
        self.expire_after = sooner(self.expire_after, other.expire_after);
        self.give_up_after = sooner(self.give_up_after, other.give_up_after);
        self.max_retries_most = self.max_retries_most.max(other.max_retries_most);
        self.max_retries_least = self.max_retries_least.min(other.max_retries_least);
        self.poison |= other.poison;
        self.dead_letters |= other.dead_letters;
        self.frees_keys |= other.frees_keys;
        self.concurrency = self.concurrency.max(other.concurrency);
        self.concurrency_per_key = self.concurrency_per_key.max(other.concurrency_per_key);
        self.turns |= other.turns;
    }
}

impl QueueRecord {
    pub(super) fn invoked(&mut self, open: Open) {
        match open.operation() {
            Operation::Receive(_) => return self.receives.push(open),
            Operation::CreateQueue { policy, .. } => self.bounds.allow(policy),
            Operation::ChangePolicy { patch, .. } => {
                let loosest = Policy {
                    completed_ttl: None,
                    failed_ttl: None,
                    max_retries: patch.max_retries.unwrap_or(self.bounds.max_retries_most),
                    ..Policy::default()
                };
                let Bounds { max_retries_least: least, concurrency, concurrency_per_key, .. } = self.bounds;
                self.bounds.allow(&(**patch).clone().apply(&loosest));
                if patch.max_retries.is_none() {
                    self.bounds.max_retries_least = least;
                }
                if patch.concurrency.is_none() {
                    self.bounds.concurrency = concurrency;
                }
                if patch.concurrency_per_key.is_none() {
                    self.bounds.concurrency_per_key = concurrency_per_key;
                }
            }
            _ => {}
        }
        self.open.push(open);
    }

    pub(super) fn order(&self) -> Option<&Order> {
        self.known.as_ref().map(|known| &known.order)
    }

    /// Whether a delete may have removed the queue after `since`.
    pub(super) fn deletion(&self, since: Tick) -> Cause {
        let delete = |open: &&Open| matches!(open.operation(), Operation::DeleteQueue { .. });
        Cause::when(self.deleted > since).or(|| Cause::among(self.open.iter().filter(delete)))
    }

    fn creation(&self) -> Cause {
        let create = |open: &&Open| matches!(open.operation(), Operation::CreateQueue { .. });
        Cause::among(self.open.iter().filter(create))
    }
}

fn rank(state: QueueState) -> u8 {
    match state {
        QueueState::Open => 0,
        QueueState::Closed { .. } => 1,
        QueueState::Completed { .. } => 2,
    }
}

impl Checker {
    pub(super) fn queue_answered(&mut self, operation: &Operation, answer: &Answer, span: &Span) {
        let Some(name) = super::queue_of(operation) else {
            return;
        };
        match answer {
            Answer::Queue(queue) => {
                if queue.name != *name {
                    let message = format!("{} named queue {name} and got {}", span.key, queue.name);
                    self.report(2, message);
                }
                if matches!(operation, Operation::CloseQueue { .. }) && queue.state == QueueState::Open {
                    let message = format!("{} closed queue {name} and got an open queue", span.key);
                    self.report(8, message);
                }
                self.queue_seen(queue, span);
            }
            Answer::QueueDeleted => {
                let record = self.queues.entry(name.clone()).or_default();
                record.deleted = span.answered;
                // A create that overlapped the delete may have been carried out after it.
                if record.known.as_ref().is_some_and(|known| known.span.before(span)) {
                    record.known = None;
                }
            }
            _ => {}
        }
    }

    fn queue_seen(&mut self, queue: &Queue, span: &Span) {
        let record = self.queues.entry(queue.name.clone()).or_default();
        record.bounds.allow(&queue.policy);
        let next =
            SeenQueue { id: queue.id, state: queue.state, order: queue.policy.order.clone(), span: *span };
        let Some(known) = &record.known else {
            record.known = Some(next);
            return;
        };
        let (before, then) = (known.state, known.span);
        if !then.before(span) {
            // Either may be the later one, so the more advanced state counts.
            if known.id == queue.id && rank(queue.state) > rank(before) {
                record.known = Some(next);
            } else if let Some(known) = record.known.as_mut().filter(|known| known.id != queue.id) {
                known.span.answered = known.span.answered.max(span.answered);
            }
            return;
        }
        let same = known.id == queue.id;
        let deletion = record.deletion(then.invoked);
        record.known = Some(next);
        if !same {
            record.deleted = span.answered;
        }
        let (name, key) = (&queue.name, span.key);
        if same && rank(queue.state) < rank(before) {
            let (was, is) = (before.name(), queue.state.name());
            self.report(8, format!("queue {name} was {was} at {} and is {is} at {key}", then.key));
        } else if !same {
            let message = format!(
                "queue {name} became another queue at {key}, but no call deleted the one seen at {}",
                then.key
            );
            self.unless(deletion, 1, message);
        }
    }

    /// This queue accepted a new item.
    pub(super) fn accepted_into(&mut self, name: &QueueName, span: &Span) {
        let Some(record) = self.queues.get(name) else {
            return;
        };
        let Some(known) = &record.known else {
            return;
        };
        if known.state == QueueState::Open || !known.span.before(span) {
            return;
        }
        let message = format!(
            "{} submitted a new item to queue {name}, which is {} since {}",
            span.key,
            known.state.name(),
            known.span.key
        );
        let cause = record.deletion(known.span.invoked);
        self.unless(cause, 8, message);
    }

    /// A receive returned the state of its queue.
    pub(super) fn queue_state_seen(
        &mut self,
        name: &QueueName,
        state: QueueState,
        items: usize,
        span: &Span,
    ) {
        if items > 0 && rank(state) == 2 {
            let message =
                format!("{} received {items} items from queue {name} and the state completed", span.key);
            self.report(8, message);
        }
        let Some(record) = self.queues.get_mut(name) else {
            return;
        };
        let Some((before, then)) = record.known.as_ref().map(|known| (known.state, known.span)) else {
            return;
        };
        if rank(state) > rank(before) {
            // If it may be another queue by now, a later reply will show it.
            let same = record.deletion(then.invoked) == Cause::None;
            if let Some(known) = record.known.as_mut().filter(|_| same && then.before(span)) {
                (known.state, known.span) = (state, *span);
            }
        } else if rank(state) < rank(before) && then.before(span) {
            let cause = record.deletion(then.invoked);
            let (was, is) = (before.name(), state.name());
            let message = format!("queue {name} was {was} at {} and is {is} at {}", then.key, span.key);
            self.unless(cause, 8, message);
        }
    }

    /// Checks the number of leased items of each key.
    pub(super) fn keys_observed(&mut self, leased: &BTreeMap<(&QueueName, Option<&str>), u64>) {
        for (&(queue, key), &count) in leased {
            let bounds = self.queues.get(queue).map(|record| record.bounds.concurrency_per_key);
            let most = bounds.flatten().unwrap_or(u64::MAX);
            if count > most {
                let message =
                    format!("queue {queue} has {count} leased items of key {key:?}, the limit is {most}");
                self.report(16, message);
            }
        }
    }

    /// Checks the queues of a snapshot, and records them.
    pub(super) fn queues_observed(&mut self, views: &[QueueView], counted: &[Counts], span: &Span) {
        for (view, counted) in views.iter().zip(counted) {
            let (queue, counts) = (&view.queue, &view.counts);
            let name = &queue.name;
            if counts != counted {
                self.report(
                    9,
                    format!("queue {name} has the counts {counts:?}, but its items give {counted:?}"),
                );
            }
            let unfinished = counted.pending + counted.scheduled + counted.processing + counted.paused;
            match queue.state {
                QueueState::Completed { .. } if unfinished > 0 => {
                    self.report(
                        8,
                        format!("queue {name} is completed and has {unfinished} unfinished items"),
                    );
                }
                QueueState::Closed { .. } if unfinished == 0 => {
                    self.report(
                        8,
                        format!("queue {name} is closed and has no unfinished items, but is not completed"),
                    );
                }
                _ => {}
            }
            let record = self.queues.entry(name.clone()).or_default();
            // The highest of all limits counts, because a lower limit ends no lease.
            let most = record.bounds.concurrency.unwrap_or(u64::MAX);
            if counted.processing > most {
                let processing = counted.processing;
                self.report(16, format!("queue {name} has {processing} leased items, the limit is {most}"));
            }
            let record = self.queues.entry(name.clone()).or_default();
            if record.known.is_none() {
                // No reply showed this queue. A create without a known reply may have created it.
                let cause = record.creation();
                let message = format!("queue {name} exists, but no call created it, or it was deleted");
                self.unless(cause, 2, message);
            }
            self.queue_seen(queue, span);
        }
        let shown = |name: &QueueName| views.binary_search_by(|view| view.queue.name.cmp(name)).is_ok();
        let missing: Vec<(QueueName, Span, Cause)> = self
            .queues
            .iter()
            .filter(|(name, _)| !shown(name))
            .filter_map(|(name, record)| {
                let known = record.known.as_ref()?;
                Some((name.clone(), known.span, record.deletion(known.span.invoked)))
            })
            .collect();
        for (name, seen, cause) in missing {
            let message = format!("queue {name}, seen at {}, is missing, and no call deleted it", seen.key);
            self.unless(cause, 1, message);
            if let Some(record) = self.queues.get_mut(&name) {
                record.known = None;
                record.deleted = span.answered;
            }
        }
        let restarts = self.restarts;
        for record in self.queues.values_mut() {
            record.open.retain(|open| !open.is_closed(restarts));
            record.receives.retain(|open| !open.is_closed(restarts));
        }
    }

    /// Reports a violation without a cause. Waits if a call in flight may be the cause.
    pub(super) fn unless(&mut self, cause: Cause, invariant: u8, message: String) {
        match cause {
            Cause::Known => {}
            Cause::Awaited(keys) => self.suspect(invariant, message, keys),
            Cause::None => self.report(invariant, message),
        }
    }
}
