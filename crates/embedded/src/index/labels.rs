//! Intersects the label sets of items.

use std::collections::BTreeSet;
use std::collections::btree_set::Range;

/// Maximum number of steps through a set before a new search in it.
const STEPS_MAX: usize = 16;

/// The numbers that are in all of several sets, in order. Walks the smallest set and looks each number up in the rest.
pub struct AllOf<'a> {
    smallest: Option<Range<'a, u64>>,
    rest: Vec<SetCursor<'a>>,
}

struct SetCursor<'a> {
    set: &'a BTreeSet<u64>,
    range: Range<'a, u64>,
    at: Option<u64>,
}

impl<'a> AllOf<'a> {
    /// `None` is an empty set.
    pub fn new(sets: impl Iterator<Item = Option<&'a BTreeSet<u64>>>, first: u64) -> AllOf<'a> {
        let Some(mut sets) = sets.collect::<Option<Vec<_>>>() else {
            return AllOf { smallest: None, rest: Vec::new() };
        };
        sets.sort_by_key(|set| set.len());
        let mut sets = sets.into_iter();
        let smallest = sets.next().map(|set| set.range(first..));
        let cursor = |set: &'a BTreeSet<u64>| {
            let mut range = set.range(first..);
            let at = range.next().copied();
            SetCursor { set, range, at }
        };
        AllOf { smallest, rest: sets.map(cursor).collect() }
    }

    /// The next number of the smallest set, and whether all sets contain it.
    pub fn step(&mut self) -> Option<(u64, bool)> {
        let number = *self.smallest.as_mut()?.next()?;
        Some((number, self.rest.iter_mut().all(|set| set.contains(number))))
    }
}

impl SetCursor<'_> {
    /// The caller asks for numbers in ascending order.
    fn contains(&mut self, number: u64) -> bool {
        for _ in 0..STEPS_MAX {
            match self.at {
                Some(at) if at < number => self.at = self.range.next().copied(),
                at => return at == Some(number),
            }
        }
        self.range = self.set.range(number..);
        self.at = self.range.next().copied();
        self.at == Some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_all_sets_are_found_in_order() {
        let every = |step: usize| (0..1000).step_by(step).collect::<BTreeSet<u64>>();
        let (twos, threes, hundreds) = (every(2), every(3), every(100));
        let common = |sets: &[Option<&BTreeSet<u64>>], first| {
            let mut all = AllOf::new(sets.iter().copied(), first);
            let steps = std::iter::from_fn(|| all.step());
            steps.filter(|step| step.1).map(|step| step.0).collect::<Vec<u64>>()
        };
        assert_eq!(common(&[Some(&twos), Some(&threes)], 0), every(6).into_iter().collect::<Vec<_>>());
        assert_eq!(common(&[Some(&threes), Some(&hundreds)], 1), [300, 600, 900]);
        assert_eq!(common(&[Some(&twos)], 995), [996, 998]);
        assert!(common(&[Some(&twos), None], 0).is_empty());
    }
}
