//! Up to which number all events are visible.
//!
//! A transaction draws the number of its event row first and commits later, so rows become visible out of order. But every
//! such transaction locks the table before it draws a number, and holds the lock until its row is visible. Hence, when
//! number `n` is visible, a transaction with a smaller number is visible too, or still holds its lock. Once all
//! transactions that held a lock at that moment have ended, no row can appear below `n`: `n` is the watermark, and readers
//! get no event above it. Transactions that write no events are not waited for.

use parking_lot::Mutex;

/// The highest watermark that this server knows.
#[derive(Debug, Default)]
pub(crate) struct EventWatermark(Mutex<WatermarkState>);

#[derive(Debug, Default)]
struct WatermarkState {
    through: i64,
    candidate: Option<Candidate>,
    /// How many candidates there were.
    generation: u64,
}

/// Becomes the watermark when these transactions have ended.
#[derive(Debug)]
struct Candidate {
    number: i64,
    writers: Vec<String>,
}

impl EventWatermark {
    fn with<T>(&self, change: impl FnOnce(&mut WatermarkState) -> T) -> T {
        change(&mut self.0.lock())
    }

    /// Call this before reading locks, and pass it to [`EventWatermark::observe`]: an observation that began before a
    /// candidate was set says nothing about its writers.
    pub(super) fn generation(&self) -> u64 {
        self.with(|state| state.generation)
    }

    /// Takes the last visible number and the transactions that are writing events. Returns the watermark.
    pub(super) fn observe(&self, generation: u64, visible: i64, writers: Vec<String>) -> i64 {
        self.with(|state| {
            let ended = |candidate: &Candidate| {
                generation == state.generation && !candidate.writers.iter().any(|one| writers.contains(one))
            };
            if let Some(candidate) = state.candidate.take_if(|candidate| ended(candidate)) {
                state.through = state.through.max(candidate.number);
            }
            if writers.is_empty() {
                state.through = state.through.max(visible);
            } else if state.candidate.is_none() && visible > state.through {
                state.candidate = Some(Candidate { number: visible, writers });
                state.generation += 1;
            }
            state.through
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writers(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn the_watermark_rises_when_the_writers_of_that_moment_have_ended() {
        let watermark = EventWatermark::default();
        let observe =
            |visible, names: &[&str]| watermark.observe(watermark.generation(), visible, writers(names));
        assert_eq!(observe(5, &["1/1", "2/1"]), 0);
        assert_eq!(observe(7, &["2/1", "3/1"]), 0);
        assert_eq!(observe(8, &["3/1", "4/1"]), 5, "later writers are not waited for");
        assert_eq!(observe(9, &["4/1", "5/1"]), 5);
        assert_eq!(observe(9, &["6/1"]), 8);
        assert_eq!(observe(10, &[]), 10);
    }

    #[test]
    fn an_observation_that_began_before_a_candidate_does_not_confirm_it() {
        let watermark = EventWatermark::default();
        let early = watermark.generation();
        assert_eq!(watermark.observe(watermark.generation(), 5, writers(&["1/1"])), 0);
        assert_eq!(watermark.observe(early, 3, writers(&[])), 3, "what it saw itself is valid");
        assert_eq!(watermark.observe(early, 3, writers(&["2/1"])), 3);
        assert_eq!(watermark.observe(watermark.generation(), 5, writers(&["1/1"])), 3);
        assert_eq!(watermark.observe(watermark.generation(), 5, writers(&["2/1"])), 5);
    }
}
