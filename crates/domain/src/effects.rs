//! What a batch did, for waiting callers.
//!
//! A store records every change it applies, and every item that time alone makes ready, in an [`EffectsRecorder`]. The
//! broker wakes receivers, result waiters, submitters and the sweeper from the [`Effects`]. The answer to a receive says
//! in addition what the next receiver of the queue may expect: a throttle, or more items.
//!
//! **Invariant:** effects are derived from changes, never from what a client asked for.

use crate::change::{Change, QueueChange};
use crate::id::{ItemId, QueueId};
use crate::item::{Head, State, StateKind};
use crate::name::QueueName;
use crate::queue::QueueState;
use crate::round_robin::KeyTag;
use crate::time::Timestamp;
use std::collections::BTreeMap;

/// What a batch did to the queues it touched, which items ended, and when something is due next.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Effects {
    pub queues: BTreeMap<QueueName, QueueEffects>,
    /// Items that became terminal, or were removed unfinished.
    pub ended: Vec<ItemId>,
    /// Unfinished items that moved to another queue.
    pub moved: Vec<ItemId>,
    /// The earliest time at which something this batch wrote is due: a lease deadline, an expiry, a `ready_at`, a removal.
    pub due: Option<Timestamp>,
}

/// What a batch did to one queue. Counts are net: an item that became ready and was delivered in the same batch is not
/// counted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct QueueEffects {
    /// Items that became ready, by fairness key.
    pub ready: BTreeMap<KeyTag, u64>,
    /// Leases that ended.
    pub leases_ended: u64,
    /// Leases that ended, net for each fairness key: a lease that ends makes room for its key even if the same batch
    /// delivered an item of another key.
    pub key_leases_ended: u64,
    /// By how many items the depth fell: room for submitters.
    pub depth_freed: u64,
    /// Items that ended, or moved to another queue: [`Effects::ended`] and [`Effects::moved`] by queue.
    pub left: u64,
    /// The policy changed, or the queue was paused, resumed, closed or created.
    pub reconfigured: bool,
    pub completed: bool,
    pub deleted: bool,
}

impl QueueEffects {
    #[must_use]
    pub fn ready_count(&self) -> u64 {
        self.ready.values().sum()
    }

    fn merge(&mut self, other: QueueEffects) {
        for (key, count) in other.ready {
            *self.ready.entry(key).or_default() += count;
        }
        self.leases_ended += other.leases_ended;
        self.key_leases_ended += other.key_leases_ended;
        self.depth_freed += other.depth_freed;
        self.left += other.left;
        self.reconfigured |= other.reconfigured;
        self.completed |= other.completed;
        self.deleted |= other.deleted;
    }
}

impl Effects {
    /// Adds what another part of the same batch did, or the same batch on another shard.
    pub fn merge(&mut self, other: Effects) {
        for (name, effects) in other.queues {
            self.queues.entry(name).or_default().merge(effects);
        }
        self.ended.extend(other.ended);
        self.moved.extend(other.moved);
        self.due = earliest(self.due, other.due);
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Effects::default()
    }
}

/// Gathers effects while a store carries out a batch.
#[derive(Debug, Default)]
pub struct EffectsRecorder {
    queues: BTreeMap<QueueId, QueueDelta>,
    ended: Vec<ItemId>,
    moved: Vec<ItemId>,
    due: Option<Timestamp>,
}

#[derive(Debug, Default)]
struct QueueDelta {
    /// Set for a deleted queue, whose name cannot be looked up later.
    name: Option<QueueName>,
    keys: BTreeMap<KeyTag, KeyDelta>,
    depth: i64,
    left: u64,
    reconfigured: bool,
    completed: bool,
    deleted: bool,
}

#[derive(Debug, Default)]
struct KeyDelta {
    ready: i64,
    leased: i64,
}

/// How an item counts in its queue's effects.
#[derive(Debug, Clone, Copy)]
struct Contribution {
    queue: QueueId,
    key: KeyTag,
    ready: bool,
    leased: bool,
    /// Part of the queue's depth.
    waiting: bool,
}

impl Contribution {
    fn of(
        queue: QueueId,
        key: KeyTag,
        state: StateKind,
        ready_at: Timestamp,
        now: Timestamp,
    ) -> Contribution {
        Contribution {
            queue,
            key,
            ready: state == StateKind::Pending && ready_at <= now,
            leased: state == StateKind::Processing,
            waiting: matches!(state, StateKind::Pending | StateKind::Paused),
        }
    }
}

impl EffectsRecorder {
    /// Records a change of an item, of its queue, or of both.
    pub fn record(&mut self, change: &Change, now: Timestamp) {
        if let Some(QueueChange::Put(queue)) = change.queue() {
            let delta = self.queues.entry(queue.id).or_default();
            match queue.state {
                QueueState::Completed { .. } => delta.completed = true,
                QueueState::Open | QueueState::Closed { .. } => delta.reconfigured = true,
            }
        }
        let before = change.before();
        let after = change.head();
        if before.is_none() && after.is_none() {
            return;
        }
        let was_terminal = before.is_some_and(|before| before.state.is_terminal());
        let is_over = after.is_none_or(Head::is_terminal);
        if is_over && !was_terminal {
            let item = before.map(|before| (before.id, before.queue));
            if let Some((id, queue)) = item.or(after.map(|head| (head.id, head.queue))) {
                self.ended.push(id);
                self.queues.entry(queue).or_default().left += 1;
            }
        } else if let (Some(before), Some(after)) = (before, after)
            && before.queue != after.queue
            && !was_terminal
        {
            self.moved.push(after.id);
            self.queues.entry(before.queue).or_default().left += 1;
        }
        let was = before.map(|before| {
            Contribution::of(before.queue, before.fairness_key, before.state, before.ready_at, now)
        });
        let is = after.map(|head| {
            Contribution::of(head.queue, head.fairness_key, head.state.kind(), head.ready_at, now)
        });
        if let Some(was) = was {
            self.count(was, -1);
        }
        if let Some(is) = is {
            self.count(is, 1);
        }
        if let Some(head) = after {
            let scheduled = (head.state == State::Pending && head.ready_at > now).then_some(head.ready_at);
            self.due = earliest(self.due, earliest(scheduled, head.timer()));
        }
    }

    fn count(&mut self, item: Contribution, by: i64) {
        if !(item.ready || item.leased || item.waiting) {
            return;
        }
        let delta = self.queues.entry(item.queue).or_default();
        if item.ready || item.leased {
            let key = delta.keys.entry(item.key).or_default();
            key.ready += if item.ready { by } else { 0 };
            key.leased += if item.leased { by } else { 0 };
        }
        delta.depth += if item.waiting { by } else { 0 };
    }

    /// Records an item that became ready because its `ready_at` passed. No change is written for that.
    pub fn promoted(&mut self, queue: QueueId, key: KeyTag) {
        self.queues.entry(queue).or_default().keys.entry(key).or_default().ready += 1;
    }

    /// Records that a queue was deleted, with its items.
    pub fn queue_deleted(&mut self, id: QueueId, name: QueueName) {
        let delta = self.queues.entry(id).or_default();
        (delta.name, delta.deleted) = (Some(name), true);
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queues.is_empty() && self.ended.is_empty() && self.moved.is_empty()
    }

    /// Returns what was recorded and starts afresh. `name` finds the name of a queue that still exists.
    pub fn take(&mut self, name: impl Fn(QueueId) -> Option<QueueName>) -> Effects {
        let EffectsRecorder { queues, ended, moved, due } = std::mem::take(self);
        let mut effects = Effects { queues: BTreeMap::new(), ended, moved, due };
        for (id, delta) in queues {
            // The queue was deleted by an earlier batch, and its items are removed one by one. No receiver waits for them.
            let Some(name) = delta.name.clone().or_else(|| name(id)) else { continue };
            let touched = delta.finish();
            if touched != QueueEffects::default() {
                effects.queues.entry(name).or_default().merge(touched);
            }
        }
        effects
    }
}

impl QueueDelta {
    fn finish(self) -> QueueEffects {
        let positive = |count: i64| u64::try_from(count).unwrap_or(0);
        let leased: i64 = self.keys.values().map(|key| key.leased).sum();
        let ready = self.keys.iter().filter(|(_, delta)| delta.ready > 0);
        QueueEffects {
            ready: ready.map(|(&key, delta)| (key, positive(delta.ready))).collect(),
            leases_ended: positive(-leased),
            key_leases_ended: self.keys.values().map(|key| positive(-key.leased)).sum(),
            depth_freed: positive(-self.depth),
            left: self.left,
            reconfigured: self.reconfigured,
            completed: self.completed,
            deleted: self.deleted,
        }
    }
}

fn earliest(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    [one, other].into_iter().flatten().min()
}
