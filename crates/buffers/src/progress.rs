//! What this process knows of a buffer that is being written: how far it goes without a gap, and what came ahead.
//!
//! All of it can be learnt again from the storage. **Invariant:** every chunk up to the position is stored, is the
//! writer's, and continues the chain.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::sizes::Sizes;
use crate::{Header, Position, WriterMark, link};

/// How many chunks past the first that is missing may be stored.
pub(crate) const AHEAD_MAX: u32 = 64;
/// A reader is followed if it asked for a chunk at most this far back.
const CLOSE: u32 = 8;

#[derive(Debug)]
pub(crate) struct Progress {
    pub writer: WriterMark,
    known: Mutex<Known>,
    /// One more than the furthest chunk that a reader asked for.
    asked: AtomicU32,
}

#[derive(Debug)]
struct Known {
    position: Position,
    sizes: Sizes,
    ahead: BTreeMap<u32, Header>,
    last_sign_ms: u64,
}

/// A chunk does not continue the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Broken {
    pub n: u32,
}

impl Progress {
    pub fn new(writer: WriterMark, last_sign_ms: u64) -> Self {
        let known = Known {
            position: Position::START,
            sizes: Sizes::default(),
            ahead: BTreeMap::new(),
            last_sign_ms,
        };
        Self { writer, known: Mutex::new(known), asked: AtomicU32::new(0) }
    }

    pub fn position(&self) -> Position {
        self.lock().position
    }

    pub fn sizes(&self) -> Sizes {
        self.lock().sizes.clone()
    }

    /// Whether chunks are known past a gap.
    pub fn has_ahead(&self) -> bool {
        !self.lock().ahead.is_empty()
    }

    pub fn knows(&self, n: u32) -> bool {
        let known = self.lock();
        n < known.position.chunks || known.ahead.contains_key(&n)
    }

    pub fn last_sign_ms(&self) -> u64 {
        self.lock().last_sign_ms
    }

    pub fn sign(&self, now_ms: u64) {
        let mut known = self.lock();
        known.last_sign_ms = known.last_sign_ms.max(now_ms);
    }

    pub fn ask(&self, n: u32) {
        self.asked.fetch_max(n.saturating_add(1), Ordering::Relaxed);
    }

    /// Whether somebody reads close behind this chunk.
    pub fn is_followed(&self, n: u32) -> bool {
        let asked = self.asked.load(Ordering::Relaxed);
        asked > 0 && n < asked.saturating_add(CLOSE)
    }

    /// Whether a chunk fits its neighbours, as far as they are known.
    pub fn fits(&self, chunk: &Header) -> Result<(), Broken> {
        let known = self.lock();
        let before = match chunk.n.checked_sub(1) {
            _ if chunk.n == known.position.chunks => Some(known.position.chain),
            Some(n) => known.ahead.get(&n).map(|header| header.chain),
            None => None,
        };
        if before.is_some_and(|before| !continues(&before, chunk)) {
            return Err(Broken { n: chunk.n });
        }
        match known.ahead.get(&(chunk.n + 1)) {
            Some(after) if !continues(&chunk.chain, after) => Err(Broken { n: after.n }),
            _ => Ok(()),
        }
    }

    /// Takes in a chunk that is stored, and moves the position over all that is now without a gap.
    pub fn absorb(&self, chunk: Header, now_ms: u64) -> Result<(), Broken> {
        let mut known = self.lock();
        known.last_sign_ms = known.last_sign_ms.max(now_ms);
        if chunk.n >= known.position.chunks {
            known.ahead.insert(chunk.n, chunk);
        }
        while let Some(next) = known.ahead.first_entry().map(|entry| *entry.get())
            && next.n == known.position.chunks
        {
            if !continues(&known.position.chain, &next) {
                return Err(Broken { n: next.n });
            }
            known.ahead.remove(&next.n);
            known.sizes.push(next.length);
            known.position =
                Position { chunks: next.n + 1, bytes: known.position.bytes + next.length, chain: next.chain };
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn continues(before: &blake3::Hash, chunk: &Header) -> bool {
    link(before, chunk.n, chunk.length, &chunk.hash) == chunk.chain
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CHAIN_START;

    fn chunks(count: u32) -> Vec<Header> {
        let mut chain = CHAIN_START;
        let header = |n| {
            let hash = blake3::hash(&[n as u8]);
            chain = link(&chain, n, 1, &hash);
            Header { n, length: 1, put_at_ms: 0, writer: WriterMark::from_bytes([0; 16]), hash, chain }
        };
        (0..count).map(header).collect()
    }

    #[test]
    fn any_order_ends_at_the_same_position() {
        let all = chunks(4);
        for order in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 0, 3, 2], [2, 3, 0, 1]] {
            let progress = Progress::new(WriterMark::from_bytes([0; 16]), 0);
            for n in order {
                assert_eq!(progress.fits(&all[n]), Ok(()));
                assert_eq!(progress.absorb(all[n], 1), Ok(()));
            }
            assert_eq!(progress.position(), Position { chunks: 4, bytes: 4, chain: all[3].chain });
            assert!(!progress.has_ahead());
        }
    }

    #[test]
    fn a_repeat_changes_nothing() {
        let all = chunks(2);
        let progress = Progress::new(WriterMark::from_bytes([0; 16]), 0);
        for n in [0, 0, 1, 1, 0] {
            assert_eq!(progress.absorb(all[n], 1), Ok(()));
        }
        assert_eq!(progress.position().bytes, 2);
    }

    #[test]
    fn a_broken_chain_is_seen_from_either_side() {
        let mut all = chunks(3);
        all[1].chain = CHAIN_START;
        let progress = Progress::new(WriterMark::from_bytes([0; 16]), 0);
        assert_eq!(progress.absorb(all[0], 1), Ok(()));
        assert_eq!(progress.fits(&all[1]), Err(Broken { n: 1 }));

        let progress = Progress::new(WriterMark::from_bytes([0; 16]), 0);
        assert_eq!(progress.absorb(all[1], 1), Ok(()));
        assert_eq!(progress.fits(&all[2]), Err(Broken { n: 2 }));
        let progress = Progress::new(WriterMark::from_bytes([0; 16]), 0);
        assert_eq!(progress.absorb(all[2], 1), Ok(()));
        assert_eq!(progress.fits(&all[1]), Err(Broken { n: 2 }));
        // Both came at once, and nobody could compare.
        assert_eq!(progress.absorb(all[0], 1), Ok(()));
        assert_eq!(progress.absorb(all[1], 1), Err(Broken { n: 1 }));
        assert_eq!(progress.position().chunks, 1);
    }
}
