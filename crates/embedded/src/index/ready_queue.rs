//! Items of one queue that are ready, in the queue's order.
//!
//! Fifo and priority queues keep one lane a rank. Items come to a lane almost always in the order in which they
//! leave it, so a lane is a list of blocks to push at one end and pop at the other, and a small tree for the few that
//! come late. What leaves a lane other than by its front (cancelled, paused, expired) stays in the list until it gets
//! to the front and is then passed over: an entry counts only while the item's slot agrees with it.
//!
//! Where keys take turns, all items stand in one tree, by key and then in the queue's order: the next of a key and the next
//! key are both a look away. Where a key has a limit, keys that are at it are left out of a second tree, in which the next
//! key is looked for: however many they are, nobody walks past them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use towline_domain::{Flow, FullKeys, KeyTag, Order, OrderKey, RoundRobin, Timestamp, Weights};

const BLOCK: usize = 512;

/// Where an item stands within its rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReadyEntry {
    pub time: Timestamp,
    pub sequence: u64,
}

#[derive(Debug, Default)]
pub struct Lane {
    blocks: VecDeque<VecDeque<ReadyEntry>>,
    late: BTreeSet<ReadyEntry>,
    /// Entries in `blocks`.
    listed: usize,
    /// Items that are really here.
    live: usize,
}

impl Lane {
    fn push(&mut self, entry: ReadyEntry) {
        self.live += 1;
        if self.last().is_some_and(|last| last > entry) {
            self.late.insert(entry);
            return;
        }
        if self.blocks.back().is_none_or(|block| block.len() == BLOCK) {
            self.blocks.push_back(VecDeque::new());
        }
        if let Some(block) = self.blocks.back_mut() {
            block.push_back(entry);
            self.listed += 1;
        }
    }

    fn last(&self) -> Option<ReadyEntry> {
        self.blocks.back().and_then(|block| block.back()).copied()
    }

    fn first(&self) -> Option<ReadyEntry> {
        let listed = self.blocks.front().and_then(|block| block.front()).copied();
        let late = self.late.first().copied();
        match (listed, late) {
            (Some(listed), Some(late)) => Some(listed.min(late)),
            (listed, late) => listed.or(late),
        }
    }

    fn pop(&mut self) -> Option<ReadyEntry> {
        let first = self.first()?;
        if self.late.first() == Some(&first) {
            return self.late.pop_first();
        }
        let block = self.blocks.front_mut()?;
        block.pop_front();
        if block.is_empty() {
            self.blocks.pop_front();
        }
        self.listed -= 1;
        Some(first)
    }

    /// The first that is really here; what is listed before it goes.
    fn first_live(&mut self, is_live: impl Fn(ReadyEntry) -> bool) -> Option<ReadyEntry> {
        while let Some(entry) = self.first() {
            if is_live(entry) {
                return Some(entry);
            }
            self.pop();
        }
        None
    }

    /// Takes note that an item left; drops its entry now if it is at the front, or later.
    fn leave(&mut self, entry: ReadyEntry, is_live: impl Fn(i64, ReadyEntry) -> bool, rank: i64) {
        self.live -= 1;
        if self.first() == Some(entry) {
            self.pop();
            return;
        }
        if self.late.remove(&entry) {
            return;
        }
        if self.listed > 2 * self.live + 2 * BLOCK {
            for block in &mut self.blocks {
                block.retain(|&entry| is_live(rank, entry));
            }
            self.blocks.retain(|block| !block.is_empty());
            self.listed = self.blocks.iter().map(VecDeque::len).sum();
        }
    }
}

#[derive(Debug)]
pub enum ReadyQueue {
    Ranked(BTreeMap<i64, Lane>),
    Scored(BTreeSet<(i64, ReadyEntry)>),
    Keyed(Keyed),
}

/// Of a queue whose keys take turns.
#[derive(Debug, Default)]
pub struct Keyed {
    ready: BTreeSet<(KeyTag, i64, ReadyEntry)>,
    /// The same by time, unless they stand by a score.
    by_time: Option<BTreeSet<ReadyEntry>>,
    weights: Arc<Weights>,
    /// Not in the log: the round robin begins again when the store is opened.
    round_robin: RoundRobin,
    limit: Option<Limit>,
}

/// Of a queue with a limit on what is processed of each key.
#[derive(Debug)]
struct Limit {
    max: u32,
    /// How many items of each key are processed, if any are.
    leased: BTreeMap<KeyTag, u32>,
    /// Keys at the limit, or beyond it.
    full: BTreeSet<KeyTag>,
    /// Keys below the limit that have something ready.
    open: BTreeSet<KeyTag>,
}

impl Limit {
    fn is_full(&self, key: KeyTag) -> bool {
        self.leased.get(&key).is_some_and(|&leased| leased >= self.max)
    }
}

/// Before every entry.
const FIRST: ReadyEntry = ReadyEntry { time: Timestamp(0), sequence: 0 };

impl Keyed {
    /// The first ready item of a key.
    fn first_of(&self, key: KeyTag) -> Option<(i64, ReadyEntry)> {
        let first = self.ready.range((key, i64::MIN, FIRST)..).next().filter(|first| first.0 == key)?;
        Some((first.1, first.2))
    }

    fn open_key(&self, from: KeyTag) -> Option<KeyTag> {
        match &self.limit {
            None => self.ready.range((from, i64::MIN, FIRST)..).next().map(|first| first.0),
            Some(limit) => limit.open.range(from..).next().copied(),
        }
    }

    fn max(&self) -> Option<u32> {
        self.limit.as_ref().map(|limit| limit.max)
    }

    fn has(&self, key: KeyTag) -> bool {
        self.first_of(key).is_some()
    }

    fn push(&mut self, key: KeyTag, rank: i64, entry: ReadyEntry) {
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

    fn leave(&mut self, key: KeyTag, rank: i64, entry: ReadyEntry) {
        self.ready.remove(&(key, rank, entry));
        if let Some(by_time) = &mut self.by_time {
            by_time.remove(&entry);
        }
        if self.limit.is_some()
            && !self.has(key)
            && let Some(limit) = &mut self.limit
        {
            limit.open.remove(&key);
        }
    }

    fn leased(&mut self, key: KeyTag) {
        let Some(limit) = &mut self.limit else { return };
        let leased = limit.leased.entry(key).or_default();
        *leased += 1;
        if *leased == limit.max {
            limit.full.insert(key);
            limit.open.remove(&key);
        }
    }

    fn ended(&mut self, key: KeyTag) {
        let has_ready = self.limit.is_some() && self.has(key);
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

    /// Another limit, or none. Whether what is processed has to be counted: it was not before.
    fn limit(&mut self, max: Option<u32>) -> bool {
        let before = self.limit.take();
        let Some(max) = max else { return false };
        let is_new = before.is_none();
        let leased = before.map_or_else(BTreeMap::new, |before| before.leased);
        let full = leased.iter().filter(|&(_, &leased)| leased >= max).map(|(&key, _)| key).collect();
        let mut limit = Limit { max, leased, full, open: BTreeSet::new() };
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
}

impl ReadyQueue {
    pub fn new(order: &Order, flow: &Flow) -> ReadyQueue {
        match order {
            _ if flow.takes_turns() => {
                let by_time = (!matches!(order, Order::Score(_))).then(BTreeSet::new);
                let mut keyed = Keyed { weights: Arc::new(Weights::of(flow)), by_time, ..Keyed::default() };
                keyed.limit(flow.concurrency_per_key);
                ReadyQueue::Keyed(keyed)
            }
            Order::Fifo | Order::Priority => ReadyQueue::Ranked(BTreeMap::new()),
            Order::Score(_) => ReadyQueue::Scored(BTreeSet::new()),
        }
    }

    /// The policy changed. Whether all that stands here has to stand elsewhere: in lanes that are new.
    pub fn change(&mut self, flow: &Flow) -> bool {
        match self {
            ReadyQueue::Keyed(keyed) if flow.takes_turns() => {
                keyed.weights = Arc::new(Weights::of(flow));
                false
            }
            ReadyQueue::Keyed(_) => true,
            _ => flow.takes_turns(),
        }
    }

    /// The limit of each key may have changed. Whether what is processed has to be counted, by [`ReadyQueue::leased`].
    pub fn limit(&mut self, flow: &Flow) -> bool {
        match self {
            ReadyQueue::Keyed(keyed) if keyed.max() != flow.concurrency_per_key => {
                keyed.limit(flow.concurrency_per_key)
            }
            _ => false,
        }
    }

    /// An item of this key is processed.
    pub fn leased(&mut self, fairness_key: KeyTag) {
        if let ReadyQueue::Keyed(keyed) = self {
            keyed.leased(fairness_key);
        }
    }

    /// An item of this key is processed no more.
    pub fn ended(&mut self, fairness_key: KeyTag) {
        if let ReadyQueue::Keyed(keyed) = self {
            keyed.ended(fairness_key);
        }
    }

    /// Keys that are at their limit.
    pub fn full_keys(&self) -> FullKeys {
        match self {
            ReadyQueue::Keyed(Keyed { limit: Some(limit), .. }) => limit.full.iter().copied().collect(),
            _ => FullKeys::default(),
        }
    }

    /// All entries, those that count and those that do not, in no order.
    pub fn entries(&self) -> Vec<(i64, ReadyEntry)> {
        match self {
            ReadyQueue::Ranked(lanes) => {
                let entries = |lane: &Lane| lane.blocks.iter().flatten().chain(&lane.late).copied().collect();
                lanes
                    .iter()
                    .flat_map(|(&rank, lane)| {
                        let entries: Vec<ReadyEntry> = entries(lane);
                        entries.into_iter().map(move |entry| (rank, entry))
                    })
                    .collect()
            }
            ReadyQueue::Scored(tree) => tree.iter().copied().collect(),
            ReadyQueue::Keyed(keyed) => keyed.ready.iter().map(|&(_, rank, entry)| (rank, entry)).collect(),
        }
    }

    /// Where the round robin stands, and its weights.
    pub fn round_robin(&self) -> (RoundRobin, Arc<Weights>) {
        match self {
            ReadyQueue::Keyed(keyed) => (keyed.round_robin, keyed.weights.clone()),
            _ => Default::default(),
        }
    }

    pub fn set_round_robin(&mut self, round_robin: RoundRobin) {
        if let ReadyQueue::Keyed(keyed) = self {
            keyed.round_robin = round_robin;
        }
    }

    /// The first key, from this one on, that has a ready item and room below its limit.
    pub fn open_key(&self, from: KeyTag) -> Option<KeyTag> {
        match self {
            ReadyQueue::Keyed(keyed) => keyed.open_key(from),
            _ => None,
        }
    }

    pub fn push(&mut self, fairness_key: KeyTag, key: OrderKey, sequence: u64) {
        let entry = ReadyEntry { time: key.time, sequence };
        match self {
            ReadyQueue::Ranked(lanes) => lanes.entry(key.rank).or_default().push(entry),
            ReadyQueue::Scored(tree) => drop(tree.insert((key.rank, entry))),
            ReadyQueue::Keyed(keyed) => keyed.push(fairness_key, key.rank, entry),
        }
    }

    /// After many items were pushed in no order: sorts them, if that is worth it.
    pub fn settle(&mut self) {
        let ReadyQueue::Ranked(lanes) = self else { return };
        for lane in
            lanes.values_mut().filter(|lane| lane.late.len() > BLOCK && lane.late.len() > lane.listed / 8)
        {
            let unsorted = std::mem::take(lane);
            let mut entries: Vec<ReadyEntry> =
                unsorted.blocks.into_iter().flatten().chain(unsorted.late).collect();
            entries.sort_unstable();
            entries.into_iter().for_each(|entry| lane.push(entry));
        }
    }

    /// An item leaves, from wherever it stands.
    pub fn leave(
        &mut self,
        fairness_key: KeyTag,
        key: OrderKey,
        sequence: u64,
        is_live: impl Fn(i64, ReadyEntry) -> bool,
    ) {
        let entry = ReadyEntry { time: key.time, sequence };
        match self {
            ReadyQueue::Ranked(lanes) => {
                if let Some(lane) = lanes.get_mut(&key.rank) {
                    lane.leave(entry, is_live, key.rank);
                    if lane.live == 0 {
                        lanes.remove(&key.rank);
                    }
                }
            }
            ReadyQueue::Scored(tree) => drop(tree.remove(&(key.rank, entry))),
            ReadyQueue::Keyed(keyed) => keyed.leave(fairness_key, key.rank, entry),
        }
    }

    /// The first ready item, or the first of a key where keys take turns. It stays until it leaves.
    pub fn first(
        &mut self,
        key: Option<KeyTag>,
        is_live: impl Fn(i64, ReadyEntry) -> bool,
    ) -> Option<(i64, ReadyEntry)> {
        match self {
            ReadyQueue::Ranked(lanes) => {
                let mut lane = lanes.first_entry()?;
                let rank = *lane.key();
                lane.get_mut().first_live(|entry| is_live(rank, entry)).map(|entry| (rank, entry))
            }
            ReadyQueue::Scored(tree) => tree.first().copied(),
            ReadyQueue::Keyed(keyed) => keyed.first_of(key?),
        }
    }

    /// Since when the item is ready that is so for longest: the first of one of the ranks. A score does not tell.
    pub fn oldest(&mut self, is_live: impl Fn(i64, ReadyEntry) -> bool) -> Option<Timestamp> {
        match self {
            ReadyQueue::Ranked(lanes) => {
                let firsts = lanes
                    .iter_mut()
                    .filter_map(|(&rank, lane)| lane.first_live(|entry| is_live(rank, entry)));
                firsts.map(|first| first.time).min()
            }
            ReadyQueue::Scored(_) => None,
            ReadyQueue::Keyed(keyed) => keyed.by_time.as_ref()?.first().map(|first| first.time),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cell::RefCell;
    use towline_domain::Fairness;

    proptest! {
        /// Whatever is pushed and leaves, in whatever order, what comes out first is the least of what is there.
        #[test]
        fn a_lane_is_a_sorted_set(steps in proptest::collection::vec((0..3u8, -2..3i64, 0..50u64), 1..3000)) {
            let model = RefCell::new(BTreeSet::new());
            let mut lanes = ReadyQueue::new(&Order::Priority, &Flow::default());
            let is_live = |rank, entry| model.borrow().contains(&(rank, entry));
            for (sequence, (what, rank, time)) in steps.into_iter().enumerate() {
                let sequence = sequence as u64;
                match what {
                    0 | 1 => {
                        let time = Timestamp(if what == 0 { sequence } else { time });
                        lanes.push(KeyTag::NONE, OrderKey { rank, time }, sequence);
                        model.borrow_mut().insert((rank, ReadyEntry { time, sequence }));
                    }
                    _ => {
                        let nth = time as usize % model.borrow().len().max(1);
                        let gone = model.borrow().iter().nth(nth).copied();
                        if let Some((rank, entry)) = gone {
                            model.borrow_mut().remove(&(rank, entry));
                            lanes.leave(KeyTag::NONE, OrderKey { rank, time: entry.time }, entry.sequence, is_live);
                        }
                    }
                }
                let first = model.borrow().first().copied();
                let oldest = model.borrow().iter().map(|(_, entry)| entry.time).min();
                prop_assert_eq!(lanes.oldest(is_live), oldest);
                prop_assert_eq!(lanes.first(None, is_live), first);
            }
        }

        /// Whatever is given out, ends or comes, and whatever the limit is: the next is of the key whose turn it is among those
        /// that have something ready and room.
        #[test]
        fn keys_at_their_limit_are_passed_over(steps in proptest::collection::vec((0..6u8, 0..5u8, 0..50u64), 1..500)) {
            let flow = |limit| Flow { fairness: Some(Fairness::default()), concurrency_per_key: limit, ..Flow::default() };
            let mut limit = Some(2);
            let mut lanes = ReadyQueue::new(&Order::Fifo, &flow(limit));
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
                        lanes.push(key, place(entry), entry.sequence);
                        ready.insert((key, entry));
                    }
                    2 => {
                        let gone = ready.iter().nth(nth(ready.len())).copied();
                        if let Some((key, entry)) = gone {
                            ready.remove(&(key, entry));
                            lanes.leave(key, place(entry), entry.sequence, |_, _| true);
                        }
                    }
                    3 => {
                        let (round_robin, weights) = lanes.round_robin();
                        let key = round_robin.next(&weights, |from| lanes.open_key(from));
                        if let Some((key, (_, entry))) = key.and_then(|key| Some((key, lanes.first(Some(key), |_, _| true)?))) {
                            ready.remove(&(key, entry));
                            lanes.leave(key, place(entry), entry.sequence, |_, _| true);
                            lanes.leased(key);
                            lanes.set_round_robin(round_robin.record_delivery(key, &weights));
                            leased.push(key);
                            turn = turn.record_delivery(key, &Weights::default());
                        }
                    }
                    4 if !leased.is_empty() => lanes.ended(leased.swap_remove(nth(leased.len()))),
                    5 => {
                        limit = u32::try_from(number % 4).ok().filter(|&limit| limit > 0);
                        prop_assert!(!lanes.change(&flow(limit)));
                        if lanes.limit(&flow(limit)) {
                            leased.iter().for_each(|&key| lanes.leased(key));
                        }
                    }
                    _ => {}
                }
                let in_hand = |key: KeyTag| leased.iter().filter(|other| **other == key).count() as u64;
                let has_room = |key: &KeyTag| flow(limit).has_room(in_hand(*key));
                let from = |key: KeyTag| ready.range((key, FIRST)..).map(|first| first.0).find(has_room);
                let first = turn.next(&Weights::default(), from).and_then(|key| ready.range((key, FIRST)..).next());
                let key = lanes.round_robin().0.next(&Weights::default(), |from| lanes.open_key(from));
                let found = key.and_then(|key| lanes.first(Some(key), |_, _| true));
                prop_assert_eq!(found, first.map(|&(_, entry)| (0, entry)));
                prop_assert_eq!(lanes.full_keys(), leased.iter().copied().filter(|key| !has_room(key)).collect());
            }
        }
    }
}
