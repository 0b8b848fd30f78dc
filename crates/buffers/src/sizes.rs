//! The sizes of a buffer's chunks, as runs of equal ones: what it takes to find the chunk at an offset.

use serde::{Deserialize, Serialize};

/// `[count, bytes]` for each run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Sizes(Vec<(u32, u64)>);

/// Which chunk has an offset, and at which offset that chunk begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Found {
    pub n: u32,
    pub begins_at: u64,
}

impl Sizes {
    pub fn push(&mut self, bytes: u64) {
        match self.0.last_mut() {
            Some((count, last)) if *last == bytes => *count += 1,
            _ => self.0.push((1, bytes)),
        }
    }

    /// Chunks and bytes in all; `None` if they are more than any number holds.
    pub fn totals(&self) -> Option<(u32, u64)> {
        self.0.iter().try_fold((0_u32, 0_u64), |(chunks, sum), &(count, bytes)| {
            Some((chunks.checked_add(count)?, sum.checked_add(bytes.checked_mul(u64::from(count))?)?))
        })
    }

    /// The chunk with the byte at `offset`, or what comes after the last chunk.
    pub fn find(&self, offset: u64) -> Found {
        let mut found = Found { n: 0, begins_at: 0 };
        for &(count, bytes) in &self.0 {
            let whole = (offset - found.begins_at).checked_div(bytes).unwrap_or(0).min(u64::from(count));
            found.n += whole as u32;
            found.begins_at += whole * bytes;
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
        fn an_offset_is_found_where_counting_finds_it(sizes in proptest::collection::vec(1_u64..5, 0..40), offset in 0_u64..200) {
            let mut runs = Sizes::default();
            sizes.iter().for_each(|&bytes| runs.push(bytes));
            let total: u64 = sizes.iter().sum();
            prop_assert_eq!(runs.totals(), Some((sizes.len() as u32, total)));

            let (mut n, mut begins_at) = (0, 0);
            while n < sizes.len() && begins_at + sizes[n] <= offset {
                begins_at += sizes[n];
                n += 1;
            }
            prop_assert_eq!(runs.find(offset), Found { n: n as u32, begins_at });
        }
    }

    #[test]
    fn equal_sizes_are_one_run() {
        let mut runs = Sizes::default();
        [4, 4, 4, 1].into_iter().for_each(|bytes| runs.push(bytes));
        assert_eq!(serde_json::to_string(&runs).unwrap(), "[[3,4],[1,1]]");
    }

    #[test]
    fn totals_beyond_any_number_are_none() {
        assert_eq!(Sizes(vec![(2, u64::MAX)]).totals(), None);
        assert_eq!(Sizes(vec![(u32::MAX, 1), (1, 1)]).totals(), None);
    }
}
