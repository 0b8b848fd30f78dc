//! The ready items of one rank, in order of time.
//!
//! Items almost always come in the order in which they leave. So this is a list of blocks, with pushes at one end and pops at the
//! other, and a small tree for the few items that come late. An item that leaves from elsewhere than the front (cancelled, paused,
//! expired) leaves a stale entry in the list, which is skipped when it gets to the front. An entry is live while the item's slot
//! agrees with it.

use super::ReadyEntry;
use std::collections::{BTreeSet, VecDeque};

const BLOCK: usize = 512;

#[derive(Debug, Default)]
pub(super) struct RankQueue {
    blocks: VecDeque<VecDeque<ReadyEntry>>,
    late: BTreeSet<ReadyEntry>,
    /// How many entries are in `blocks`.
    listed: usize,
    /// How many entries are live.
    pub(super) live: usize,
}

impl RankQueue {
    pub(super) fn push(&mut self, entry: ReadyEntry) {
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

    /// The first live entry. Drops the stale entries before it.
    pub(super) fn first_live(&mut self, is_live: impl Fn(ReadyEntry) -> bool) -> Option<ReadyEntry> {
        while let Some(entry) = self.first() {
            if is_live(entry) {
                return Some(entry);
            }
            self.pop();
        }
        None
    }

    /// An item is not ready any more. Drops its entry now if that is cheap, otherwise later.
    pub(super) fn remove(&mut self, entry: ReadyEntry, is_live: impl Fn(i64, ReadyEntry) -> bool, rank: i64) {
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

    /// All entries, live and stale.
    pub(super) fn entries(&self) -> impl Iterator<Item = ReadyEntry> + '_ {
        self.blocks.iter().flatten().chain(&self.late).copied()
    }

    /// Sorts late entries into the list, if there are many.
    pub(super) fn sort(&mut self) {
        if self.late.len() > BLOCK && self.late.len() > self.listed / 8 {
            let mut entries: Vec<ReadyEntry> = self.entries().collect();
            entries.sort_unstable();
            *self = RankQueue::default();
            entries.into_iter().for_each(|entry| self.push(entry));
        }
    }
}
