//! Decisions about an item that waits for a dependency.

use super::{Context, error, fail, item_change, step, unchanged};
use crate::change::{Answer, Change};
use crate::dependency::{DependencyState, DependencyVerdict};
use crate::event::EventKind;
use crate::item::{ErrorKind, FailureKind, Head, State};
use crate::item_state::ItemState;
use crate::refusal::Refusal;
use crate::time::Timestamp;

/// Resumes the item, cancels it, or records what was seen. An item that no longer waits stays unchanged, because several
/// servers may report the same.
pub(super) fn observe(
    context: &Context<'_>,
    seen: &DependencyState,
    now: Timestamp,
) -> Result<Change, Refusal> {
    let head = context.item()?;
    let Some(waits) = head.dependency() else {
        return Ok(unchanged(Answer::State(head.item_state())));
    };
    let (known, verdict) = waits.observe(seen);
    match verdict {
        DependencyVerdict::Waiting if known == *waits => Ok(unchanged(Answer::State(head.item_state()))),
        DependencyVerdict::Waiting => {
            let mut after = Head { revision: head.revision.wrapping_add(1), ..head.clone() };
            after.extras_mut().after = Some(Box::new(known));
            let change = item_change(head, after, EventKind::Edited, Answer::State(head.item_state()));
            // The item still waits, so there is no event.
            Ok(Change { event: None, ..change })
        }
        // It keeps its `ready_at`, so it keeps its position in the queue.
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
