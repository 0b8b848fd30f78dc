//! Decisions about an item that waits for others.

use super::{Context, error, fail, item_change, step, unchanged};
use crate::after::{Observed, Turn};
use crate::change::{Answer, Change};
use crate::event::EventKind;
use crate::item::{ErrorKind, FailureKind, Head, State};
use crate::refusal::Refusal;
use crate::time::Timestamp;

/// Lets it go, ends it, or keeps in mind what was seen. One that waits for nothing any more is left alone: whoever saw
/// the same, before or at the same time, has done what was to be done.
pub(super) fn observe(context: &Context<'_>, seen: &Observed, now: Timestamp) -> Result<Change, Refusal> {
    let head = context.item()?;
    let Some(waits) = head.after() else {
        return Ok(unchanged(Answer::State(head.state_name())));
    };
    let (known, turn) = waits.observe(seen);
    match turn {
        Turn::NotYet if known == *waits => Ok(unchanged(Answer::State(head.state_name()))),
        Turn::NotYet => {
            let mut after = Head { revision: head.revision.wrapping_add(1), ..head.clone() };
            after.extras_mut().after = Some(Box::new(known));
            let change = item_change(head, after, EventKind::Edited, Answer::State(head.state_name()));
            // It goes on waiting: nothing to tell.
            Ok(Change { event: None, ..change })
        }
        // It keeps its `ready_at`, and with it its place in the queue.
        Turn::Go => {
            let mut after = step(head, State::Pending);
            after.wait_no_more();
            Ok(item_change(head, after, EventKind::Resumed, Answer::State("pending")))
        }
        Turn::Never(why) => {
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
