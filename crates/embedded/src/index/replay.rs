//! Rebuilds the index in two steps: first applies all records, then adds every item to ready queue, schedule, timers and counts.
//!
//! The second step waits until the end, because a queue may be carried behind its items, and because most items of a busy log
//! change state several times.

use super::Index;
use super::membership::{fairness_key_of, key_of, kind_at};
use towline_domain::{CountKind, QueueId, Timestamp};

impl Index {
    pub fn begin_replay(&mut self) {
        self.replaying = true;
    }

    /// Adds every item to ready queue, schedule, timers and counts.
    pub fn end_replay(&mut self, now: Timestamp) {
        self.replaying = false;
        self.now = self.now.max(now);
        self.reap_from = Some(0);
        while self.reap(usize::MAX) {}
        // Records of a queue may be carried behind its deletion.
        let gone: Vec<QueueId> =
            self.tallies.keys().filter(|queue| !self.queues.contains_key(queue)).copied().collect();
        gone.into_iter().for_each(|queue| self.forget_tallies_of(queue));
        while self.forget_hours(self.now) {}
        let now = self.now;
        let (mut timers, mut scheduled) = (Vec::new(), Vec::new());
        let Index { table, queues, .. } = self;
        table.for_each_mut(|sequence, slot, extra| {
            let Some(queue) = queues.get_mut(&slot.queue) else { return };
            if let Some(at) = extra.and_then(|extra| extra.head.timer()) {
                timers.push((at, sequence));
            }
            let kind = kind_at(slot, extra, now);
            slot.set_kind(kind);
            match kind {
                CountKind::Scheduled => scheduled.push((slot.ready_at, sequence)),
                CountKind::Pending => {
                    let order = &queue.queue.policy.order;
                    let key = key_of(order, slot.priority, slot.ready_at, extra.map(|extra| &extra.head));
                    queue.ready_queue.push(fairness_key_of(extra), key, sequence);
                }
                CountKind::Processing => queue.ready_queue.leased(fairness_key_of(extra)),
                _ => {}
            }
            queue.counts.add(kind);
        });
        for queue in self.queues.values_mut() {
            queue.ready_queue.sort();
        }
        timers.sort_unstable();
        scheduled.sort_unstable();
        self.timers = timers.into_iter().collect();
        self.schedule = scheduled.into_iter().collect();
    }

    /// Removes items of deleted queues among the next `scan` slots. Returns whether there may be more.
    pub fn reap(&mut self, scan: usize) -> bool {
        let Some(from) = self.reap_from else {
            return false;
        };
        let mut gone = Vec::new();
        let next = self.table.scan(from, scan, |sequence, slot| {
            if !self.queues.contains_key(&slot.queue) {
                gone.push(sequence);
            }
            true
        });
        for sequence in gone {
            self.remove_item(sequence);
        }
        self.reap_from = next;
        if next.is_none() && std::mem::take(&mut self.reap_again) {
            self.reap_from = Some(0);
        }
        self.reap_from.is_some()
    }

    /// A queue was deleted. A round in progress continues, so that rounds end even if clients keep deleting queues.
    pub(super) fn start_reaping(&mut self) {
        match self.reap_from {
            None | Some(0) => self.reap_from = Some(0),
            Some(_) => self.reap_again = true,
        }
    }

    pub fn reaping(&self) -> bool {
        self.reap_from.is_some()
    }
}
