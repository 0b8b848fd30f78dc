//! The sizes of a buffer's chunks, run-length encoded. Finds the chunk at an offset.

use serde::{Deserialize, Serialize};

/// `[count, bytes]` for each run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct ChunkSizes(Vec<(u32, u64)>);

/// A chunk number and the offset at which that chunk starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChunkOffset {
    pub n: u32,
    pub start: u64,
}

impl ChunkSizes {
    pub fn push(&mut self, bytes: u64) {
        match self.0.last_mut() {
            Some((count, last)) if *last == bytes => *count += 1,
            _ => self.0.push((1, bytes)),
        }
    }

    /// The number of chunks and bytes; `None` on overflow.
    pub fn totals(&self) -> Option<(u32, u64)> {
        self.0.iter().try_fold((0_u32, 0_u64), |(chunks, sum), &(count, bytes)| {
            Some((chunks.checked_add(count)?, sum.checked_add(bytes.checked_mul(u64::from(count))?)?))
        })
    }

    /// The chunk that contains the byte at `offset`, or the position after the last chunk.
    pub fn find(&self, offset: u64) -> ChunkOffset {
        let mut found = ChunkOffset { n: 0, start: 0 };
        for &(count, bytes) in &self.0 {
            let whole = (offset - found.start).checked_div(bytes).unwrap_or(0).min(u64::from(count));
            found.n += whole as u32;
            found.start += whole * bytes;
            if whole < u64::from(count) {
                break;
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn find_agrees_with_counting_chunk_by_chunk(sizes in proptest::collection::vec(1_u64..5, 0..40), offset in 0_u64..200) {
            let mut runs = ChunkSizes::default();
            sizes.iter().for_each(|&bytes| runs.push(bytes));
            let total: u64 = sizes.iter().sum();
            prop_assert_eq!(runs.totals(), Some((sizes.len() as u32, total)));

            let (mut n, mut start) = (0, 0);
            while n < sizes.len() && start + sizes[n] <= offset {
                start += sizes[n];
                n += 1;
            }
            prop_assert_eq!(runs.find(offset), ChunkOffset { n: n as u32, start });
        }
    }

    #[test]
    fn equal_sizes_are_stored_as_one_run() {
        let mut runs = ChunkSizes::default();
        [4, 4, 4, 1].into_iter().for_each(|bytes| runs.push(bytes));
        assert_eq!(serde_json::to_string(&runs).unwrap(), "[[3,4],[1,1]]");
    }

    #[test]
    fn totals_that_overflow_are_none() {
        assert_eq!(ChunkSizes(vec![(2, u64::MAX)]).totals(), None);
        assert_eq!(ChunkSizes(vec![(u32::MAX, 1), (1, 1)]).totals(), None);
    }
}
