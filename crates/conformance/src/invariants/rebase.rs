//! Replaces the known state of an item by that of a snapshot.

use super::Checker;
use super::history::Span;
use super::item::{Base, Delivery, Ended, LastSettle, Remove};
use towline_domain::{State, Timestamp};
use towline_store::StoredItem;

impl Checker {
    /// Records the item as the snapshot shows it. Earlier uncertainty ends.
    pub(super) fn rebase(&mut self, stored: &StoredItem, span: &Span) {
        let (head, fields) = (&stored.item.head, &stored.item.fields);
        let quiet = self.calls.is_empty();
        let Some(record) = self.items.get_mut(&head.id) else {
            return;
        };
        record.queue = stored.queue.clone();
        record.fields.observed(fields);
        if quiet {
            record.moved = false;
            record.redriven = None;
            record.cancelled = None;
        }
        record.received = 0;
        record.changes = 0;
        let token = head.lease().map(|lease| lease.token);
        if quiet {
            record.deliveries.retain(|delivery| Some(delivery.token) == token);
        }
        if let Some(lease) = head.lease() {
            let at = match record.delivery(lease.token) {
                Some(at) => at,
                None => record.keep(Delivery::new(head, lease, None, span)),
            };
            let delivery = &mut record.deliveries[at];
            (delivery.deadline_least, delivery.deadline_most) = (lease.deadline, lease.deadline);
            (delivery.extended, delivery.expires_at) = (*span, head.expires_at);
            delivery.visibility = delivery.visibility.max(lease.visibility);
        }
        if let Some(settle) = &head.last_settle
            && record.settles.last().is_none_or(|last| last.token != settle.token)
        {
            record.settle(LastSettle {
                token: settle.token,
                left: settle.left.into(),
                number: head.deliveries,
                span: *span,
                call: None,
            });
        }
        record.ended = match head.state {
            State::Completed { remove_at, .. } | State::Failed { remove_at, .. } => Some(Ended {
                span: *span,
                completed: matches!(head.state, State::Completed { .. }),
                remove: Remove::At(remove_at),
                deliveries: Some(head.deliveries),
            }),
            _ => None,
        };
        // The snapshot was read at a quiet moment, so its number of deliveries is exact.
        record.not_before =
            (head.deliveries, if head.state == State::Pending { head.ready_at } else { Timestamp(0) });
        if let Some(base) = &mut record.base {
            base.head.clone_from(head);
            base.tick = span.answered;
        } else {
            record.base = Some(Box::new(Base { head: head.clone(), tick: span.answered }));
        }
    }
}
