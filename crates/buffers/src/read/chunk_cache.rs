//! A cache of recently stored chunks, for readers close behind the writer. A hit saves reading and hashing the chunk.
//!
//! **Invariant:** a cached chunk is durable and its hash was checked.

use parking_lot::{Mutex, MutexGuard};
use std::collections::VecDeque;

use crate::Chunk;

/// Maximum size of the cache, over all buffers.
const CACHED_BYTES_MAX: u64 = 32 << 20;
/// Short, because another server may delete a buffer and this one would not notice.
const CACHED_MS_MAX: u64 = 2_000;

#[derive(Debug, Default)]
pub(crate) struct ChunkCache {
    contents: Mutex<CacheContents>,
}

#[derive(Debug, Default)]
struct CacheContents {
    /// Oldest first, with the id of the buffer.
    chunks: VecDeque<(String, Chunk)>,
    bytes: u64,
}

impl ChunkCache {
    pub fn insert(&self, id: &str, chunk: Chunk) {
        let mut contents = self.lock();
        contents.bytes += chunk.header.length;
        contents.chunks.push_back((id.to_owned(), chunk));
        while contents.bytes > CACHED_BYTES_MAX
            && let Some((_, oldest)) = contents.chunks.pop_front()
        {
            contents.bytes -= oldest.header.length;
        }
    }

    pub fn get(&self, id: &str, n: u32, now_ms: u64) -> Option<Chunk> {
        let contents = self.lock();
        let found = contents.chunks.iter().find(|(of, chunk)| chunk.header.n == n && of == id);
        let fresh = found.filter(|(_, chunk)| now_ms.saturating_sub(chunk.header.put_at_ms) <= CACHED_MS_MAX);
        fresh.map(|(_, chunk)| chunk.clone())
    }

    /// Removes all chunks of a buffer that ended or was deleted.
    pub fn remove(&self, id: &str) {
        let CacheContents { chunks, bytes } = &mut *self.lock();
        chunks.retain(|(of, chunk)| {
            let stays = of != id;
            *bytes -= if stays { 0 } else { chunk.header.length };
            stays
        });
    }

    fn lock(&self) -> MutexGuard<'_, CacheContents> {
        self.contents.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CHAIN_START, ChunkHeader, WriterMark};
    use bytes::Bytes;

    fn chunk(n: u32, length: u64) -> Chunk {
        let hash = blake3::hash(&[n as u8]);
        let writer = WriterMark::from_bytes([0; 16]);
        let header = ChunkHeader { n, length, put_at_ms: 1_000, writer, hash, chain: CHAIN_START };
        Chunk { header, data: vec![Bytes::from(vec![n as u8])] }
    }

    #[test]
    fn the_oldest_chunks_are_evicted_first() {
        let cache = ChunkCache::default();
        for n in 0..10 {
            cache.insert("a", chunk(n, CACHED_BYTES_MAX / 4));
        }
        let cached: Vec<u32> = (0..10).filter(|n| cache.get("a", *n, 1_000).is_some()).collect();
        assert_eq!(cached, [6, 7, 8, 9]);
        // A chunk larger than the cache is not cached.
        cache.insert("a", chunk(10, CACHED_BYTES_MAX + 1));
        assert!((0..11).all(|n| cache.get("a", n, 1_000).is_none()));
        assert_eq!(cache.lock().bytes, 0);
    }

    #[test]
    fn chunks_are_found_by_buffer_and_expire() {
        let cache = ChunkCache::default();
        cache.insert("a", chunk(0, 1));
        cache.insert("b", chunk(0, 2));
        assert_eq!(cache.get("a", 0, 1_000 + CACHED_MS_MAX).unwrap().header.length, 1);
        assert_eq!(cache.get("b", 0, 0).unwrap().header.length, 2);
        assert!(cache.get("a", 0, 1_001 + CACHED_MS_MAX).is_none());
        assert!(cache.get("c", 0, 1_000).is_none());
        cache.remove("a");
        assert!(cache.get("a", 0, 1_000).is_none());
        assert!(cache.get("b", 0, 1_000).is_some());
        assert_eq!(cache.lock().bytes, 2);
    }
}
