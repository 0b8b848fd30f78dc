//! Adds items to the ready queue, the schedule, the timers and the counts, and takes them out.

use super::Index;
use crate::index::ready_queue::ReadyEntry;
use crate::index::table::{Extra, READY, SCHEDULED, Slot, Table};
use towline_domain::{CountKind, Head, KeyTag, Order, OrderKey, QueueId, State, Timestamp};

/// What an item is indexed under.
struct Membership {
    queue: QueueId,
    kind: CountKind,
    fairness_key: KeyTag,
    key: Option<OrderKey>,
    scheduled: Option<Timestamp>,
    timer: Option<Timestamp>,
}

impl Index {
    fn membership(&self, sequence: u64) -> Option<Membership> {
        let slot = self.table.slot(sequence)?;
        let extra = self.table.extra(sequence);
        let order = self.queues.get(&slot.queue).map(|queue| &queue.queue.policy.order);
        Some(Membership {
            queue: slot.queue,
            kind: slot.kind(),
            fairness_key: fairness_key_of(extra),
            key: order
                .filter(|_| slot.has(READY))
                .map(|order| key_of(order, slot.priority, slot.ready_at, extra.map(|extra| &extra.head))),
            scheduled: slot.has(SCHEDULED).then_some(slot.ready_at),
            timer: extra.and_then(|extra| extra.head.timer()),
        })
    }

    pub(super) fn unindex(&mut self, sequence: u64) {
        if self.replaying {
            return;
        }
        let Some(membership) = self.membership(sequence) else {
            return;
        };
        if let Some(slot) = self.table.slot_mut(sequence) {
            slot.flags &= !(READY | SCHEDULED);
        }
        if let Some(at) = membership.timer {
            self.timers.remove(&(at, sequence));
        }
        if let Some(at) = membership.scheduled {
            self.schedule.remove(&(at, sequence));
        }
        let Index { queues, table, .. } = self;
        let Some(queue) = queues.get_mut(&membership.queue) else {
            return;
        };
        queue.counts.remove(membership.kind);
        if membership.kind == CountKind::Processing {
            queue.ready_queue.ended(membership.fairness_key);
        }
        if let Some(key) = membership.key {
            let order = &queue.queue.policy.order;
            let live = |rank, entry| is_live(table, membership.queue, order, rank, entry);
            queue.ready_queue.remove(membership.fairness_key, key, sequence, live);
        }
    }

    pub(super) fn index(&mut self, sequence: u64) {
        if self.replaying {
            return;
        }
        let now = self.now;
        let Some(slot) = self.table.slot(sequence) else { return };
        let kind = kind_at(slot, self.table.extra(sequence), now);
        if let Some(slot) = self.table.slot_mut(sequence) {
            slot.set_kind(kind);
        }
        let Some(membership) = self.membership(sequence) else {
            return;
        };
        if let Some(at) = membership.timer {
            self.timers.insert((at, sequence));
        }
        if let Some(at) = membership.scheduled {
            self.schedule.insert((at, sequence));
        }
        let Some(queue) = self.queues.get_mut(&membership.queue) else {
            return;
        };
        queue.counts.add(membership.kind);
        if membership.kind == CountKind::Processing {
            queue.ready_queue.leased(membership.fairness_key);
        }
        if let Some(key) = membership.key {
            queue.ready_queue.push(membership.fairness_key, key, sequence);
        }
    }
}

/// How an item counts at a time, from its head.
pub(super) fn kind_at(slot: &Slot, extra: Option<&Extra>, now: Timestamp) -> CountKind {
    match extra.map(|extra| &extra.head.state) {
        None | Some(State::Pending) if slot.ready_at > now => CountKind::Scheduled,
        None | Some(State::Pending) => CountKind::Pending,
        Some(State::Processing(_)) => CountKind::Processing,
        Some(State::Paused) => CountKind::Paused,
        Some(State::Completed { .. }) => CountKind::Completed,
        Some(State::Failed { .. }) => CountKind::Failed,
    }
}

pub(super) fn key_of(order: &Order, priority: i16, ready_at: Timestamp, head: Option<&Head>) -> OrderKey {
    match (order, head) {
        (Order::Fifo, _) => OrderKey { rank: 0, time: ready_at },
        (Order::Priority, _) => OrderKey { rank: i64::from(priority), time: ready_at },
        (Order::Score(_), Some(head)) => order.key(head),
        // A plain item has no score, and was created when it became ready.
        (Order::Score(_), None) => OrderKey { rank: !0, time: ready_at },
    }
}

pub(super) fn order_key(table: &Table, order: &Order, sequence: u64) -> Option<OrderKey> {
    let slot = table.slot(sequence)?;
    Some(key_of(order, slot.priority, slot.ready_at, table.extra(sequence).map(|extra| &extra.head)))
}

/// A plain item has no fairness key.
pub(super) fn fairness_key_of(extra: Option<&Extra>) -> KeyTag {
    extra.map_or(KeyTag::NONE, |extra| extra.head.fairness_key)
}

pub(super) fn fairness_key(table: &Table, sequence: u64) -> KeyTag {
    fairness_key_of(table.extra(sequence))
}

/// Whether an entry of a ready queue still belongs to a ready item.
pub(super) fn is_live(table: &Table, queue: QueueId, order: &Order, rank: i64, entry: ReadyEntry) -> bool {
    table.slot(entry.sequence).is_some_and(|slot| {
        slot.has(READY)
            && slot.queue == queue
            && order_key(table, order, entry.sequence) == Some(OrderKey { rank, time: entry.time })
    })
}
