//! Merges the replies of several shards into one.

use std::collections::BTreeMap;
use towline_domain::change::Answer;
use towline_domain::{Counts, Queue, QueueState, Tally};
use towline_store::{Answered, Event, EventCursor, QueueView, Reply, TallyRow};

/// The state of a queue is that of its most open part.
pub(crate) fn state(states: impl IntoIterator<Item = QueueState>) -> Option<QueueState> {
    states.into_iter().reduce(|one, other| match (one, other) {
        (QueueState::Open, _) | (_, QueueState::Open) => QueueState::Open,
        (QueueState::Closed { since: one }, QueueState::Closed { since: other }) => {
            QueueState::Closed { since: one.min(other) }
        }
        (closed @ QueueState::Closed { .. }, _) | (_, closed @ QueueState::Closed { .. }) => closed,
        (QueueState::Completed { since: one }, QueueState::Completed { since: other }) => {
            QueueState::Completed { since: one.max(other) }
        }
    })
}

/// Merges the views of one queue.
pub(crate) fn views(parts: Vec<QueueView>) -> Option<QueueView> {
    let state = state(parts.iter().map(|part| part.queue.state))?;
    let counts = parts.iter().fold(Counts::default(), |sum, part| sum.plus(&part.counts));
    let oldest_ready = parts.iter().filter_map(|part| part.oldest_ready).min();
    let first = parts.into_iter().next()?;
    Some(QueueView { queue: Queue { state, ..first.queue }, counts, oldest_ready })
}

/// Adds up tallies by hour and value. `None` if no shard has the queue.
pub(crate) fn tallies(parts: Vec<Vec<TallyRow>>) -> Option<Vec<TallyRow>> {
    if parts.is_empty() {
        return None;
    }
    let mut sums = BTreeMap::new();
    for TallyRow { hour, value, tally } in parts.into_iter().flatten() {
        // The row without a value comes last in its hour.
        let sum: &mut Tally = sums.entry((hour, value.is_none(), value)).or_default();
        *sum = sum.plus(&tally);
    }
    Some(sums.into_iter().map(|((hour, _, value), tally)| TallyRow { hour, value, tally }).collect())
}

/// Merges pages of events by time, keeping the order within each shard. Also returns the end cursor of each page whose
/// events are all in the result.
pub(crate) fn events(
    pages: Vec<(Vec<Event>, EventCursor)>,
    limit: usize,
) -> (Vec<Event>, Vec<Option<EventCursor>>) {
    let mut all = Vec::new();
    let mut pages: Vec<_> = pages.into_iter().map(|(page, end)| (page.into_iter().peekable(), end)).collect();
    while all.len() < limit {
        let times = pages.iter_mut().enumerate().filter_map(|(at, (page, _))| Some((page.peek()?.at, at)));
        let Some((_, first)) = times.min() else { break };
        all.extend(pages[first].0.next());
    }
    let ends = pages.into_iter().map(|(mut page, end)| page.peek().is_none().then_some(end)).collect();
    (all, ends)
}

/// Merges the replies of an operation that every shard carried out. If one shard refused, the result is its refusal.
pub(crate) fn answers(answers: Vec<Answered>) -> Option<Answered> {
    answers.into_iter().reduce(|one, other| match (one, other) {
        (Err(refusal), _) | (_, Err(refusal)) => Err(refusal),
        (Ok(Reply::Swept { changed: one }), Ok(Reply::Swept { changed: other })) => {
            Ok(Reply::Swept { changed: one + other })
        }
        (Ok(Reply::Answer(Answer::Queue(one))), Ok(Reply::Answer(Answer::Queue(other)))) => {
            let state = state([one.state, other.state]).unwrap_or(one.state);
            Ok(Reply::Answer(Answer::Queue(Box::new(Queue { state, ..*one }))))
        }
        (one, _) => one,
    })
}
