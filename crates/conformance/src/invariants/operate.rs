//! Checks replies to operations without a lease: invariants 1 and 6.

use super::Checker;
use super::history::{Cause, Open, Span, Tick};
use towline_domain::{ItemId, ItemState, Timestamp};
use towline_store::Operation;

impl Checker {
    /// A cancel, pause, resume, redrive, move or change of priority was acknowledged.
    pub(super) fn operated(&mut self, id: ItemId, operation: &Operation, state: ItemState, span: &Span) {
        let key = span.key;
        let Some(record) = self.items.get(&id) else {
            match self.gone.get(&id) {
                Some(&removed) if removed >= span.invoked => {}
                _ => {
                    let message = format!("{key}: item {id} became {state}, but it does not exist");
                    self.unless(self.rebirth(id), 2, message);
                }
            }
            return;
        };
        let cancel = |open: &&Open| matches!(open.operation(), Operation::Cancel { .. });
        // A cancel without a known reply may have caused it.
        let twins = || self.open_on(id).iter().filter(cancel);
        let from = twins().map(|open| open.at).fold(span.from, Timestamp::min);
        let invoked = twins().map(|open| open.invoked).fold(span.invoked, Tick::min);
        let since = Span { invoked, ..*span };
        let (verb, expected) = match operation {
            Operation::Cancel { .. } => ("cancel", ItemState::Failed),
            Operation::Pause { .. } => ("pause", ItemState::Paused),
            Operation::Resume { .. } => ("resume", ItemState::Pending),
            Operation::SetPriority { .. } if state == ItemState::Paused => ("change of priority", state),
            Operation::SetPriority { .. } => ("change of priority", ItemState::Pending),
            Operation::Move { .. } if state == ItemState::Paused => ("move", state),
            Operation::Move { .. } => ("move", ItemState::Pending),
            _ => ("redrive", ItemState::Pending),
        };
        if state != expected {
            self.report(6, format!("{key}: after {verb}, item {id} is {state}"));
            return;
        }
        if let Some(ended) = record.ended.filter(|ended| ended.span.before(span)) {
            let fits = !ended.completed && matches!(verb, "cancel" | "redrive");
            let redriven = match ended.completed {
                true => Cause::None,
                false => record.redrive(ended.span.invoked, self.open_on(id)),
            };
            let cause = if record.id_chosen { redriven.or(|| self.rebirth(id)) } else { redriven };
            if !fits {
                let how = if ended.completed { "completed" } else { "failed" };
                self.unless(
                    cause,
                    6,
                    format!("{key}: {verb} of item {id} was accepted; it is {how} since {}", ended.span.key),
                );
            }
        }
        let Some(record) = self.items.get_mut(&id) else {
            return;
        };
        match operation {
            Operation::Cancel { .. } => {
                record.cancelled = Some(*span);
                record.end(false, from, None, &since);
                for delivery in &mut record.deliveries {
                    if delivery.received.unwrap_or(delivery.extended).before(span) {
                        delivery.dead.get_or_insert(*span);
                    }
                }
            }
            Operation::Redrive { .. } => {
                record.redriven = Some(*span);
                record.reopened(None, span);
                record.not_before = (0, Timestamp(0));
                record.alive(span.from);
                record.changed(span);
            }
            Operation::Move { .. } => {
                record.moved = true;
                record.alive(span.from);
            }
            _ => record.alive(span.from),
        }
    }

    /// A delete was acknowledged.
    pub(super) fn removed(&mut self, id: ItemId, span: &Span) {
        let Some(record) = self.items.get_mut(&id) else {
            if self.gone.get(&id).is_some_and(|&removed| removed < span.invoked) {
                self.unless(self.rebirth(id), 2, format!("{}: item {id} was removed twice", span.key));
            }
            return;
        };
        if record.id_chosen && !record.born.before(span) {
            // The delete may have removed an earlier item with this id.
            record.maybe_deleted = true;
            return;
        }
        self.forget(id);
    }

    /// A call was refused because the item does not exist.
    pub(super) fn not_found(&mut self, id: ItemId, span: &Span) {
        let Some(record) = self.items.get(&id).filter(|record| record.born.before(span)) else {
            return;
        };
        let cause = self.absence(id, record, span.to);
        let message = format!("{}: item {id}, submitted at {}, is not found", span.key, record.origin);
        self.unless(cause, 1, message);
    }
}
