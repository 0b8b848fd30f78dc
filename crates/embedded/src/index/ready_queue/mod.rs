//! The ready queue: the ready items of one queue, in the queue's order.
//!
//! `fifo` and `priority` queues have a [`rank_queue::RankQueue`] for each rank, `score` queues have a tree. Queues with fairness
//! have a [`keyed_queue::KeyedQueue`].

mod keyed_queue;
mod rank_queue;

use keyed_queue::KeyedQueue;
use rank_queue::RankQueue;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use towline_domain::{Flow, FullKeys, KeyTag, Order, OrderKey, RoundRobin, Timestamp, Weights};

/// The position of an item within its rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReadyEntry {
    pub time: Timestamp,
    pub sequence: u64,
}

#[derive(Debug)]
pub struct ReadyQueue(Kind);

#[derive(Debug)]
enum Kind {
    Ranked(BTreeMap<i64, RankQueue>),
    Scored(BTreeSet<(i64, ReadyEntry)>),
    Keyed(KeyedQueue),
}

impl ReadyQueue {
    pub fn new(order: &Order, flow: &Flow) -> ReadyQueue {
        ReadyQueue(match order {
            _ if flow.takes_turns() => Kind::Keyed(KeyedQueue::new(order, flow)),
            Order::Fifo | Order::Priority => Kind::Ranked(BTreeMap::new()),
            Order::Score(_) => Kind::Scored(BTreeSet::new()),
        })
    }

    /// The policy changed. Returns whether the caller has to move all entries to a new ready queue.
    pub fn change(&mut self, flow: &Flow) -> bool {
        match &mut self.0 {
            Kind::Keyed(keyed) if flow.takes_turns() => {
                keyed.set_weights(flow);
                false
            }
            Kind::Keyed(_) => true,
            _ => flow.takes_turns(),
        }
    }

    /// Sets the limit of each key. Returns whether the caller has to count leases with [`ReadyQueue::leased`].
    pub fn limit(&mut self, flow: &Flow) -> bool {
        match &mut self.0 {
            Kind::Keyed(keyed) if keyed.max() != flow.concurrency_per_key => {
                keyed.set_limit(flow.concurrency_per_key)
            }
            _ => false,
        }
    }

    /// An item of this key was leased.
    pub fn leased(&mut self, key: KeyTag) {
        if let Kind::Keyed(keyed) = &mut self.0 {
            keyed.leased(key);
        }
    }

    /// A lease of an item of this key ended.
    pub fn ended(&mut self, key: KeyTag) {
        if let Kind::Keyed(keyed) = &mut self.0 {
            keyed.ended(key);
        }
    }

    /// The keys at their limit.
    pub fn full_keys(&self) -> FullKeys {
        match &self.0 {
            Kind::Keyed(keyed) => keyed.full_keys(),
            _ => FullKeys::default(),
        }
    }

    /// All entries, live and stale, in no order.
    pub fn entries(&self) -> Vec<(i64, ReadyEntry)> {
        match &self.0 {
            Kind::Ranked(ranks) => ranks
                .iter()
                .flat_map(|(&rank, queue)| queue.entries().map(move |entry| (rank, entry)))
                .collect(),
            Kind::Scored(tree) => tree.iter().copied().collect(),
            Kind::Keyed(keyed) => keyed.entries().collect(),
        }
    }

    /// The round robin and its weights.
    pub fn round_robin(&self) -> (RoundRobin, Arc<Weights>) {
        match &self.0 {
            Kind::Keyed(keyed) => keyed.round_robin(),
            _ => Default::default(),
        }
    }

    pub fn set_round_robin(&mut self, round_robin: RoundRobin) {
        if let Kind::Keyed(keyed) = &mut self.0 {
            keyed.set_round_robin(round_robin);
        }
    }

    /// The first key, from this one on, that has a ready item and is below its limit.
    pub fn open_key(&self, from: KeyTag) -> Option<KeyTag> {
        match &self.0 {
            Kind::Keyed(keyed) => keyed.open_key(from),
            _ => None,
        }
    }

    pub fn push(&mut self, fairness_key: KeyTag, key: OrderKey, sequence: u64) {
        let entry = ReadyEntry { time: key.time, sequence };
        match &mut self.0 {
            Kind::Ranked(ranks) => ranks.entry(key.rank).or_default().push(entry),
            Kind::Scored(tree) => drop(tree.insert((key.rank, entry))),
            Kind::Keyed(keyed) => keyed.push(fairness_key, key.rank, entry),
        }
    }

    /// Sorts entries after many were pushed in no order.
    pub fn sort(&mut self) {
        if let Kind::Ranked(ranks) = &mut self.0 {
            ranks.values_mut().for_each(RankQueue::sort);
        }
    }

    /// An item is not ready any more.
    pub fn remove(
        &mut self,
        fairness_key: KeyTag,
        key: OrderKey,
        sequence: u64,
        is_live: impl Fn(i64, ReadyEntry) -> bool,
    ) {
        let entry = ReadyEntry { time: key.time, sequence };
        match &mut self.0 {
            Kind::Ranked(ranks) => {
                if let Some(queue) = ranks.get_mut(&key.rank) {
                    queue.remove(entry, is_live, key.rank);
                    if queue.live == 0 {
                        ranks.remove(&key.rank);
                    }
                }
            }
            Kind::Scored(tree) => drop(tree.remove(&(key.rank, entry))),
            Kind::Keyed(keyed) => keyed.remove(fairness_key, key.rank, entry),
        }
    }

    /// The first live entry, or the first of a key where keys take turns. It stays until it is removed.
    pub fn first(
        &mut self,
        key: Option<KeyTag>,
        is_live: impl Fn(i64, ReadyEntry) -> bool,
    ) -> Option<(i64, ReadyEntry)> {
        match &mut self.0 {
            Kind::Ranked(ranks) => {
                let mut queue = ranks.first_entry()?;
                let rank = *queue.key();
                queue.get_mut().first_live(|entry| is_live(rank, entry)).map(|entry| (rank, entry))
            }
            Kind::Scored(tree) => tree.first().copied(),
            Kind::Keyed(keyed) => keyed.first_of(key?),
        }
    }

    /// Since when the oldest item is ready. `None`: the queue has no ready item, or is in `score` order, which ignores time.
    pub fn oldest(&mut self, is_live: impl Fn(i64, ReadyEntry) -> bool) -> Option<Timestamp> {
        match &mut self.0 {
            Kind::Ranked(ranks) => {
                let firsts = ranks
                    .iter_mut()
                    .filter_map(|(&rank, queue)| queue.first_live(|entry| is_live(rank, entry)));
                firsts.map(|first| first.time).min()
            }
            Kind::Scored(_) => None,
            Kind::Keyed(keyed) => keyed.oldest(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::keyed_queue::FIRST;
    use super::*;
    use proptest::prelude::*;
    use std::cell::RefCell;
    use towline_domain::Fairness;

    proptest! {
        /// After any pushes and removals, the first entry is the smallest one.
        #[test]
        fn the_first_entry_is_the_smallest_live_one(steps in proptest::collection::vec((0..3u8, -2..3i64, 0..50u64), 1..3000)) {
            let model = RefCell::new(BTreeSet::new());
            let mut queue = ReadyQueue::new(&Order::Priority, &Flow::default());
            let is_live = |rank, entry| model.borrow().contains(&(rank, entry));
            for (sequence, (what, rank, time)) in steps.into_iter().enumerate() {
                let sequence = sequence as u64;
                match what {
                    0 | 1 => {
                        let time = Timestamp(if what == 0 { sequence } else { time });
                        queue.push(KeyTag::NONE, OrderKey { rank, time }, sequence);
                        model.borrow_mut().insert((rank, ReadyEntry { time, sequence }));
                    }
                    _ => {
                        let nth = time as usize % model.borrow().len().max(1);
                        let gone = model.borrow().iter().nth(nth).copied();
                        if let Some((rank, entry)) = gone {
                            model.borrow_mut().remove(&(rank, entry));
                            queue.remove(KeyTag::NONE, OrderKey { rank, time: entry.time }, entry.sequence, is_live);
                        }
                    }
                }
                let first = model.borrow().first().copied();
                let oldest = model.borrow().iter().map(|(_, entry)| entry.time).min();
                prop_assert_eq!(queue.oldest(is_live), oldest);
                prop_assert_eq!(queue.first(None, is_live), first);
            }
        }

        /// After any pushes, deliveries, ends of leases and changes of the limit, the next item belongs to the next key in the
        /// round robin that has a ready item and is below its limit.
        #[test]
        fn a_key_at_its_limit_is_skipped(steps in proptest::collection::vec((0..6u8, 0..5u8, 0..50u64), 1..500)) {
            let flow = |limit| Flow { fairness: Some(Fairness::default()), concurrency_per_key: limit, ..Flow::default() };
            let mut limit = Some(2);
            let mut queue = ReadyQueue::new(&Order::Fifo, &flow(limit));
            let mut ready: BTreeSet<(KeyTag, ReadyEntry)> = BTreeSet::new();
            let mut leased: Vec<KeyTag> = Vec::new();
            let mut turn = RoundRobin::default();
            let place = |entry: ReadyEntry| OrderKey { rank: 0, time: entry.time };
            for (sequence, (what, key, number)) in steps.into_iter().enumerate() {
                let key = KeyTag::of(&key.to_string());
                let nth = |len: usize| number as usize % len.max(1);
                match what {
                    0 | 1 => {
                        let entry = ReadyEntry { time: Timestamp(number), sequence: sequence as u64 };
                        queue.push(key, place(entry), entry.sequence);
                        ready.insert((key, entry));
                    }
                    2 => {
                        let gone = ready.iter().nth(nth(ready.len())).copied();
                        if let Some((key, entry)) = gone {
                            ready.remove(&(key, entry));
                            queue.remove(key, place(entry), entry.sequence, |_, _| true);
                        }
                    }
                    3 => {
                        let (round_robin, weights) = queue.round_robin();
                        let key = round_robin.next(&weights, |from| queue.open_key(from));
                        if let Some((key, (_, entry))) = key.and_then(|key| Some((key, queue.first(Some(key), |_, _| true)?))) {
                            ready.remove(&(key, entry));
                            queue.remove(key, place(entry), entry.sequence, |_, _| true);
                            queue.leased(key);
                            queue.set_round_robin(round_robin.record_delivery(key, &weights));
                            leased.push(key);
                            turn = turn.record_delivery(key, &Weights::default());
                        }
                    }
                    4 if !leased.is_empty() => queue.ended(leased.swap_remove(nth(leased.len()))),
                    5 => {
                        limit = u32::try_from(number % 4).ok().filter(|&limit| limit > 0);
                        prop_assert!(!queue.change(&flow(limit)));
                        if queue.limit(&flow(limit)) {
                            leased.iter().for_each(|&key| queue.leased(key));
                        }
                    }
                    _ => {}
                }
                let in_hand = |key: KeyTag| leased.iter().filter(|other| **other == key).count() as u64;
                let has_room = |key: &KeyTag| flow(limit).has_room(in_hand(*key));
                let from = |key: KeyTag| ready.range((key, FIRST)..).map(|first| first.0).find(has_room);
                let first = turn.next(&Weights::default(), from).and_then(|key| ready.range((key, FIRST)..).next());
                let key = queue.round_robin().0.next(&Weights::default(), |from| queue.open_key(from));
                let found = key.and_then(|key| queue.first(Some(key), |_, _| true));
                prop_assert_eq!(found, first.map(|&(_, entry)| (0, entry)));
                prop_assert_eq!(queue.full_keys(), leased.iter().copied().filter(|key| !has_room(key)).collect());
            }
        }
    }
}
