//! What this process knows of a buffer that a writer is writing: the position up to the first missing chunk, and the
//! chunks stored ahead of it.
//!
//! A cache: a server that has none reads the same from the storage. **Invariant:** every chunk before the position is
//! stored, belongs to the writer, and continues the hash chain.

use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::format::chunk_sizes::ChunkSizes;
use crate::{ChunkHeader, Position, WriterMark, link};

/// How far ahead of the first missing chunk a writer may store chunks.
pub(crate) const AHEAD_MAX: u32 = 64;
/// How many chunks a reader may be behind the writer and still find new chunks in the cache.
const READER_LAG_MAX: u32 = 8;

#[derive(Debug)]
pub(crate) struct Progress {
    pub writer: WriterMark,
    state: Mutex<ProgressState>,
    /// One more than the highest chunk number that a reader asked for.
    next_unread: AtomicU32,
}

#[derive(Debug)]
struct ProgressState {
    position: Position,
    sizes: ChunkSizes,
    ahead: BTreeMap<u32, ChunkHeader>,
    last_activity_ms: u64,
}

/// Chunk `n` does not continue the hash chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChainBreak {
    pub n: u32,
}

impl Progress {
    pub fn new(writer: WriterMark, last_activity_ms: u64) -> Self {
        let state = ProgressState {
            position: Position::START,
            sizes: ChunkSizes::default(),
            ahead: BTreeMap::new(),
            last_activity_ms,
        };
        Self { writer, state: Mutex::new(state), next_unread: AtomicU32::new(0) }
    }

    pub fn position(&self) -> Position {
        self.lock().position
    }

    pub fn sizes(&self) -> ChunkSizes {
        self.lock().sizes.clone()
    }

    /// Whether chunks are stored ahead of a missing one.
    pub fn has_gap(&self) -> bool {
        !self.lock().ahead.is_empty()
    }

    pub fn contains(&self, n: u32) -> bool {
        let known = self.lock();
        n < known.position.chunks || known.ahead.contains_key(&n)
    }

    pub fn last_activity_ms(&self) -> u64 {
        self.lock().last_activity_ms
    }

    pub fn record_activity(&self, now_ms: u64) {
        let mut known = self.lock();
        known.last_activity_ms = known.last_activity_ms.max(now_ms);
    }

    pub fn record_read(&self, n: u32) {
        self.next_unread.fetch_max(n.saturating_add(1), Ordering::Relaxed);
    }

    /// Whether a reader is close enough behind the writer to want chunk `n` from the cache.
    pub fn has_close_reader(&self, n: u32) -> bool {
        let next_unread = self.next_unread.load(Ordering::Relaxed);
        next_unread > 0 && n < next_unread.saturating_add(READER_LAG_MAX)
    }

    /// Checks the hash chain between a chunk and its neighbours, where this process knows the neighbours.
    pub fn check_links(&self, chunk: &ChunkHeader) -> Result<(), ChainBreak> {
        let known = self.lock();
        let before = match chunk.n.checked_sub(1) {
            _ if chunk.n == known.position.chunks => Some(known.position.chain),
            Some(n) => known.ahead.get(&n).map(|header| header.chain),
            None => None,
        };
        if before.is_some_and(|before| !continues(&before, chunk)) {
            return Err(ChainBreak { n: chunk.n });
        }
        match known.ahead.get(&(chunk.n + 1)) {
            Some(after) if !continues(&chunk.chain, after) => Err(ChainBreak { n: after.n }),
            _ => Ok(()),
        }
    }

    /// Adds a stored chunk and moves the position up to the first missing chunk.
    pub fn add(&self, chunk: ChunkHeader, now_ms: u64) -> Result<(), ChainBreak> {
        let mut known = self.lock();
        known.last_activity_ms = known.last_activity_ms.max(now_ms);
        if chunk.n >= known.position.chunks {
            known.ahead.insert(chunk.n, chunk);
        }
        while let Some(next) = known.ahead.first_entry().map(|entry| *entry.get())
            && next.n == known.position.chunks
        {
            if !continues(&known.position.chain, &next) {
                return Err(ChainBreak { n: next.n });
            }
            known.ahead.remove(&next.n);
            known.sizes.push(next.length);
            known.position =
                Position { chunks: next.n + 1, bytes: known.position.bytes + next.length, chain: next.chain };
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, ProgressState> {
        self.state.lock()
    }
}

fn continues(before: &blake3::Hash, chunk: &ChunkHeader) -> bool {
    link(before, chunk.n, chunk.length, &chunk.hash) == chunk.chain
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CHAIN_START;

    fn chunks(count: u32) -> Vec<ChunkHeader> {
        let mut chain = CHAIN_START;
        let header = |n| {
            let hash = blake3::hash(&[n as u8]);
            chain = link(&chain, n, 1, &hash);
            ChunkHeader { n, length: 1, put_at_ms: 0, writer: WriterMark::from_bytes([0; 16]), hash, chain }
        };
        (0..count).map(header).collect()
    }

    #[test]
    fn chunks_in_any_order_give_the_same_position() {
        let all = chunks(4);
        for order in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 0, 3, 2], [2, 3, 0, 1]] {
            let progress = Progress::new(WriterMark::from_bytes([0; 16]), 0);
            for n in order {
                assert_eq!(progress.check_links(&all[n]), Ok(()));
                assert_eq!(progress.add(all[n], 1), Ok(()));
            }
            assert_eq!(progress.position(), Position { chunks: 4, bytes: 4, chain: all[3].chain });
            assert!(!progress.has_gap());
        }
    }

    #[test]
    fn a_repeated_chunk_changes_nothing() {
        let all = chunks(2);
        let progress = Progress::new(WriterMark::from_bytes([0; 16]), 0);
        for n in [0, 0, 1, 1, 0] {
            assert_eq!(progress.add(all[n], 1), Ok(()));
        }
        assert_eq!(progress.position().bytes, 2);
    }

    #[test]
    fn a_broken_chain_is_found_from_the_chunk_before_and_after() {
        let mut all = chunks(3);
        all[1].chain = CHAIN_START;
        let progress = Progress::new(WriterMark::from_bytes([0; 16]), 0);
        assert_eq!(progress.add(all[0], 1), Ok(()));
        assert_eq!(progress.check_links(&all[1]), Err(ChainBreak { n: 1 }));

        let progress = Progress::new(WriterMark::from_bytes([0; 16]), 0);
        assert_eq!(progress.add(all[1], 1), Ok(()));
        assert_eq!(progress.check_links(&all[2]), Err(ChainBreak { n: 2 }));
        let progress = Progress::new(WriterMark::from_bytes([0; 16]), 0);
        assert_eq!(progress.add(all[2], 1), Ok(()));
        assert_eq!(progress.check_links(&all[1]), Err(ChainBreak { n: 2 }));
        // The writer stored both at the same time, so neither could be compared with the other.
        assert_eq!(progress.add(all[0], 1), Ok(()));
        assert_eq!(progress.add(all[1], 1), Err(ChainBreak { n: 1 }));
        assert_eq!(progress.position().chunks, 1);
    }
}
