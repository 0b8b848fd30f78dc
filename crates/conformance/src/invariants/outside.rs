//! Snapshots read through an interface that does not show everything.

use super::item::{lease_call, settle_verb};
use super::{Checker, Snapshot};
use towline_domain::{Head, LeaseCall, LeaseToken, SettleVerb, State, Timestamp, TokenSeed};

/// Settles remembered of each item that may have been carried out unseen.
const UNSEEN_KEPT: usize = 8;

impl Checker {
    /// [`Checker::observed`] for a snapshot that was read through a server, which shows neither the tokens of leases nor
    /// revisions nor settles: whatever stands in their place is not looked at. No receive may be in flight.
    pub fn observed_from_outside(&mut self, mut snapshot: Snapshot) {
        for stored in &mut snapshot.items {
            self.fill_in(&mut stored.item.head);
            self.note_unseen(&stored.item.head);
        }
        self.observed(&snapshot);
    }

    /// Puts what is known of the item, or else what suits the store best, where nothing is shown.
    fn fill_in(&self, head: &mut Head) {
        let record = self.items.get(&head.id);
        let base = record.and_then(|record| record.base.as_deref()).map(|base| &base.head);
        head.last_settle = None;
        let (number, unseen) = (head.deliveries, unseen(head));
        if let State::Processing(lease) = &mut head.state {
            let delivery =
                record.and_then(|record| record.deliveries.iter().find(|delivery| delivery.number == number));
            match delivery {
                Some(delivery) => (lease.token, lease.visibility) = (delivery.token, delivery.visibility),
                None => lease.token = unseen,
            }
        }
        let changes = record.map_or(0, |record| record.changes);
        // An item that nobody was told of may have been changed, even moved, since its submit.
        let least = if record.is_none() { 2 } else { 1 };
        head.revision = base.map_or(least, |base| base.revision).saturating_add(changes);
        if base.is_some_and(|base| changes == 0 && base != head) {
            head.revision = head.revision.saturating_add(1);
        }
    }

    /// Settles that were lost, of leases that are over: if one was carried out its repetition gets the same answer, and
    /// nothing that is shown tells whether it was.
    fn note_unseen(&mut self, head: &Head) {
        let current = head.lease().map(|lease| lease.token);
        let completed = matches!(head.state, State::Completed { .. });
        let unseen: Vec<LeaseCall> = self
            .open_on(head.id)
            .iter()
            .filter(|open| open.is_lost())
            .filter_map(lease_call)
            .filter(|call| Some(call.token) != current)
            .filter(|call| match settle_verb(&call.verb) {
                None => false,
                Some(SettleVerb::Commit) => completed,
                Some(_) => true,
            })
            .cloned()
            .collect();
        if let Some(record) = self.items.get_mut(&head.id) {
            record.unseen.extend(unseen);
            let old = record.unseen.len().saturating_sub(UNSEEN_KEPT);
            record.unseen.drain(..old);
        }
    }
}

/// A token that stands for the one of a delivery nobody was told of.
fn unseen(head: &Head) -> LeaseToken {
    let mut seed = [0xff; 32];
    seed[..16].copy_from_slice(head.id.0.as_bytes());
    TokenSeed(seed).token(head.deliveries, Timestamp(0))
}
