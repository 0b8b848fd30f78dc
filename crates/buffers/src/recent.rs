//! Chunks that were just stored, kept for readers that are close behind their writer: they need not be read back and
//! hashed again.
//!
//! **Invariant:** what is here is durable, and its hash was checked.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::Chunk;

/// Of all buffers together.
const BYTES_KEPT: u64 = 32 << 20;
/// Another server may delete a buffer without a word to this one.
const MS_KEPT: u64 = 2_000;

#[derive(Debug, Default)]
pub(crate) struct Recent {
    kept: Mutex<Kept>,
}

/// The oldest first.
#[derive(Debug, Default)]
struct Kept {
    chunks: VecDeque<(String, Chunk)>,
    bytes: u64,
}

impl Recent {
    pub fn keep(&self, id: &str, chunk: Chunk) {
        let mut kept = self.lock();
        kept.bytes += chunk.header.length;
        kept.chunks.push_back((id.to_owned(), chunk));
        while kept.bytes > BYTES_KEPT
            && let Some((_, oldest)) = kept.chunks.pop_front()
        {
            kept.bytes -= oldest.header.length;
        }
    }

    pub fn get(&self, id: &str, n: u32, now_ms: u64) -> Option<Chunk> {
        let kept = self.lock();
        let found = kept.chunks.iter().find(|(of, chunk)| chunk.header.n == n && of == id);
        let fresh = found.filter(|(_, chunk)| now_ms.saturating_sub(chunk.header.put_at_ms) <= MS_KEPT);
        fresh.map(|(_, chunk)| chunk.clone())
    }

    /// For a buffer that has ended, or is another now.
    pub fn forget(&self, id: &str) {
        let Kept { chunks, bytes } = &mut *self.lock();
        chunks.retain(|(of, chunk)| {
            let stays = of != id;
            *bytes -= if stays { 0 } else { chunk.header.length };
            stays
        });
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CHAIN_START, Header, WriterMark};
    use bytes::Bytes;

    fn chunk(n: u32, length: u64) -> Chunk {
        let hash = blake3::hash(&[n as u8]);
        let writer = WriterMark::from_bytes([0; 16]);
        let header = Header { n, length, put_at_ms: 1_000, writer, hash, chain: CHAIN_START };
        Chunk { header, data: vec![Bytes::from(vec![n as u8])] }
    }

    #[test]
    fn the_oldest_make_room() {
        let recent = Recent::default();
        for n in 0..10 {
            recent.keep("a", chunk(n, BYTES_KEPT / 4));
        }
        let there: Vec<u32> = (0..10).filter(|n| recent.get("a", *n, 1_000).is_some()).collect();
        assert_eq!(there, [6, 7, 8, 9]);
        // What is larger than all room is not kept.
        recent.keep("a", chunk(10, BYTES_KEPT + 1));
        assert!((0..11).all(|n| recent.get("a", n, 1_000).is_none()));
        assert_eq!(recent.lock().bytes, 0);
    }

    #[test]
    fn only_its_own_and_only_for_a_while() {
        let recent = Recent::default();
        recent.keep("a", chunk(0, 1));
        recent.keep("b", chunk(0, 2));
        assert_eq!(recent.get("a", 0, 1_000 + MS_KEPT).unwrap().header.length, 1);
        assert_eq!(recent.get("b", 0, 0).unwrap().header.length, 2);
        assert!(recent.get("a", 0, 1_001 + MS_KEPT).is_none());
        assert!(recent.get("c", 0, 1_000).is_none());
        recent.forget("a");
        assert!(recent.get("a", 0, 1_000).is_none());
        assert!(recent.get("b", 0, 1_000).is_some());
        assert_eq!(recent.lock().bytes, 2);
    }
}
