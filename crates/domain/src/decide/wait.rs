//! Decisions about an item that waits for others.

use super::{Context, error, fail, item_change, step, unchanged};
use crate::change::{Answer, Change};
use crate::dependency::{DependencyState, DependencyVerdict};
use crate::event::EventKind;
use crate::item::{ErrorKind, FailureKind, Head, State};
use crate::item_state::ItemState;
use crate::refusal::Refusal;
use crate::time::Timestamp;

/// Lets it go, ends it, or keeps in mind what was seen. One that waits for nothing any more is left alone: whoever saw
/// the same, before or at the same time, has done what was to be done.
pub(super) fn observe(
    context: &Context<'_>,
    seen: &DependencyState,
    now: Timestamp,
) -> Result<Change, Refusal> {
    let head = context.item()?;
    let Some(waits) = head.dependency() else {
        return Ok(unchanged(Answer::State(head.item_state())));
    };
    let (known, turn) = waits.observe(seen);
    match turn {
        DependencyVerdict::Waiting if known == *waits => Ok(unchanged(Answer::State(head.item_state()))),
        DependencyVerdict::Waiting => {
            let mut after = Head { revision: head.revision.wrapping_add(1), ..head.clone() };
            after.extras_mut().after = Some(Box::new(known));
            let change = item_change(head, after, EventKind::Edited, Answer::State(head.item_state()));
            // It goes on waiting: nothing to tell.
            Ok(Change { event: None, ..change })
        }
        // It keeps its `ready_at`, and with it its place in the queue.
        DependencyVerdict::Met => {
            let mut after = step(head, State::Pending);
            after.clear_dependency();
            Ok(item_change(head, after, EventKind::Resumed, Answer::State(ItemState::Pending)))
        }
        DependencyVerdict::Impossible(why) => {
            let error = error(head, ErrorKind::Cancelled, &why, now);
            fail(
                context,
                step(head, State::Pending),
                FailureKind::Cancelled,
                error,
                EventKind::Cancelled,
                now,
            )
        }
    }
}
