//! Snapshots read through a server, which does not show everything.

use super::item::{lease_call, same_settle, settle_verb};
use super::{Checker, Snapshot};
use towline_domain::{Head, LeaseCall, LeaseToken, SettleVerb, State, Timestamp, TokenSeed};

/// The maximum number of settles for each item that may have been carried out unseen.
const UNSEEN_KEPT: usize = 8;

impl Checker {
    /// [`Checker::observed`] for a snapshot read through a server. It shows no lease tokens, revisions or settles, and
    /// their placeholders are ignored. No receive may be in flight.
    pub fn observed_from_outside(&mut self, mut snapshot: Snapshot) {
        for stored in &mut snapshot.items {
            self.fill_in(&mut stored.item.head);
            self.note_unseen(&stored.item.head);
        }
        self.observed(&snapshot);
    }

    /// Replaces placeholders with known values, or with values that cause no violation.
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
        // An item without a known reply may have changed or moved since its submit.
        let least = if record.is_none() { 2 } else { 1 };
        head.revision = base.map_or(least, |base| base.revision).saturating_add(changes);
        if base.is_some_and(|base| changes == 0 && base != head) {
            head.revision = head.revision.saturating_add(1);
        }
    }

    /// Remembers lost settles of leases that are over. If one was carried out, its repeat gets the same reply, and the
    /// snapshot does not show whether it was.
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
            // A client repeats a lost call until a server answers, so most of them are the same.
            for call in unseen {
                if !record.unseen.iter().any(|known| same_settle(known, &call)) {
                    record.unseen.push(call);
                }
            }
            let old = record.unseen.len().saturating_sub(UNSEEN_KEPT);
            record.unseen.drain(..old);
        }
    }
}

/// A placeholder for the token of a delivery without a known reply.
fn unseen(head: &Head) -> LeaseToken {
    let mut seed = [0xff; 32];
    seed[..16].copy_from_slice(head.id.0.as_bytes());
    TokenSeed(seed).token(head.deliveries, Timestamp(0))
}
