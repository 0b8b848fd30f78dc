//! The ready items of a queue whose fairness keys take turns.
//!
//! One tree has all items by key, then in the queue's order: the next item of a key and the next key are one search away. If keys
//! have a limit, a second tree has only the keys below it, so that a search never walks past keys at the limit.

use super::ReadyEntry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use towline_domain::{Flow, FullKeys, KeyTag, Order, RoundRobin, Timestamp, Weights};

#[derive(Debug, Default)]
pub(super) struct KeyedQueue {
    /// By fairness key, then in the queue's order.
    ready: BTreeSet<(KeyTag, i64, ReadyEntry)>,
    /// The same items by time. `None`: the queue's order is by score.
    by_time: Option<BTreeSet<ReadyEntry>>,
    weights: Arc<Weights>,
    /// Not in the log: after opening, the round starts again.
    turn: RoundRobin,
    limit: Option<KeyLimit>,
}

/// The limit on leases of each key.
#[derive(Debug)]
struct KeyLimit {
    max: u32,
    /// How many items of each key are leased. Keys without leases are left out.
    leased: BTreeMap<KeyTag, u32>,
    /// Keys at or above the limit.
    full: BTreeSet<KeyTag>,
    /// Keys below the limit that have a ready item.
    open: BTreeSet<KeyTag>,
}

impl KeyLimit {
    fn is_full(&self, key: KeyTag) -> bool {
        self.leased.get(&key).is_some_and(|&leased| leased >= self.max)
    }
}

/// Sorts before every entry.
pub(super) const FIRST: ReadyEntry = ReadyEntry { time: Timestamp(0), sequence: 0 };

impl KeyedQueue {
    /// The first ready item of a key.
    pub(super) fn first_of(&self, key: KeyTag) -> Option<(i64, ReadyEntry)> {
        let first = self.ready.range((key, i64::MIN, FIRST)..).next().filter(|first| first.0 == key)?;
        Some((first.1, first.2))
    }

    pub(super) fn open_key(&self, from: KeyTag) -> Option<KeyTag> {
        match &self.limit {
            None => self.ready.range((from, i64::MIN, FIRST)..).next().map(|first| first.0),
            Some(limit) => limit.open.range(from..).next().copied(),
        }
    }

    pub(super) fn round_robin(&self) -> (RoundRobin, Arc<Weights>) {
        (self.turn, self.weights.clone())
    }

    pub(super) fn set_round_robin(&mut self, round_robin: RoundRobin) {
        self.turn = round_robin;
    }

    pub(super) fn max(&self) -> Option<u32> {
        self.limit.as_ref().map(|limit| limit.max)
    }

    fn has_ready(&self, key: KeyTag) -> bool {
        self.first_of(key).is_some()
    }

    pub(super) fn push(&mut self, key: KeyTag, rank: i64, entry: ReadyEntry) {
        self.ready.insert((key, rank, entry));
        if let Some(by_time) = &mut self.by_time {
            by_time.insert(entry);
        }
        if let Some(limit) = &mut self.limit
            && !limit.is_full(key)
        {
            limit.open.insert(key);
        }
    }

    pub(super) fn remove(&mut self, key: KeyTag, rank: i64, entry: ReadyEntry) {
        self.ready.remove(&(key, rank, entry));
        if let Some(by_time) = &mut self.by_time {
            by_time.remove(&entry);
        }
        if self.limit.is_some()
            && !self.has_ready(key)
            && let Some(limit) = &mut self.limit
        {
            limit.open.remove(&key);
        }
    }

    /// An item of this key was leased.
    pub(super) fn leased(&mut self, key: KeyTag) {
        let Some(limit) = &mut self.limit else { return };
        let leased = limit.leased.entry(key).or_default();
        *leased += 1;
        if *leased == limit.max {
            limit.full.insert(key);
            limit.open.remove(&key);
        }
    }

    /// A lease of an item of this key ended.
    pub(super) fn ended(&mut self, key: KeyTag) {
        let has_ready = self.limit.is_some() && self.has_ready(key);
        let Some(limit) = &mut self.limit else { return };
        let Some(leased) = limit.leased.get_mut(&key) else { return };
        if *leased == limit.max {
            limit.full.remove(&key);
            if has_ready {
                limit.open.insert(key);
            }
        }
        *leased -= 1;
        if *leased == 0 {
            limit.leased.remove(&key);
        }
    }

    /// Sets another limit, or none. Returns whether the caller has to count leases, because there was no limit before.
    pub(super) fn set_limit(&mut self, max: Option<u32>) -> bool {
        let before = self.limit.take();
        let Some(max) = max else { return false };
        let is_new = before.is_none();
        let leased = before.map_or_else(BTreeMap::new, |before| before.leased);
        let full = leased.iter().filter(|&(_, &leased)| leased >= max).map(|(&key, _)| key).collect();
        let mut limit = KeyLimit { max, leased, full, open: BTreeSet::new() };
        let mut next = self.ready.first().map(|first| first.0);
        while let Some(key) = next {
            if !limit.is_full(key) {
                limit.open.insert(key);
            }
            next = self.ready.range((key.after(), i64::MIN, FIRST)..).next().map(|first| first.0);
        }
        self.limit = Some(limit);
        is_new
    }

    pub(super) fn full_keys(&self) -> FullKeys {
        let full = self.limit.iter().flat_map(|limit| &limit.full);
        full.copied().collect()
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = (i64, ReadyEntry)> + '_ {
        self.ready.iter().map(|&(_, rank, entry)| (rank, entry))
    }

    /// The time of the oldest item. `None`: there is none, or the order is by score.
    pub(super) fn oldest(&self) -> Option<Timestamp> {
        self.by_time.as_ref()?.first().map(|first| first.time)
    }

    pub(super) fn set_weights(&mut self, flow: &Flow) {
        self.weights = Arc::new(Weights::of(flow));
    }

    pub(super) fn new(order: &Order, flow: &Flow) -> KeyedQueue {
        let by_time = (!matches!(order, Order::Score(_))).then(BTreeSet::new);
        let mut keyed = KeyedQueue { weights: Arc::new(Weights::of(flow)), by_time, ..KeyedQueue::default() };
        keyed.set_limit(flow.concurrency_per_key);
        keyed
    }
}
