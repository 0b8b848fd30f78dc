//! Decides which shard an operation goes to.

use crate::Shards;
use towline_domain::{Body, HandOff, ItemId, QueueName, Refusal, digest};
use towline_store::Operation;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route {
    One(usize),
    /// To the shard whose turn it is, and to the other shards if that shard's queue is full.
    Any,
    /// From the shard whose turn it is, and from the other shards until the receive has as many items as it asked for.
    From,
    /// Every shard must carry it out.
    All,
    /// To the shard that has the item.
    Item(ItemId),
    /// To no shard: it was refused.
    Refused,
}

/// The key of an item that must be unique within a queue. One shard must know all items with this key. An item never has
/// both kinds of keys.
fn unique_key(body: &Body) -> Option<&str> {
    body.idempotency_key.as_deref().or(body.replace_key.as_deref())
}

impl Shards {
    pub(crate) fn route(&self, operation: &Operation) -> Route {
        match operation {
            Operation::Submit { queue, submission } => match &submission.record_guard {
                // To the shard of the guarded record, because the item and the record change together.
                Some(guard) => Route::One(self.shard_of_text(&guard.key)),
                None => {
                    let key = unique_key(&submission.body).map(|key| (queue, key));
                    self.shard_of_item(submission.id, key).map_or(Route::Any, Route::One)
                }
            },
            Operation::Restore(restore) => {
                let key = restore.claimed_in.as_ref().zip(unique_key(&restore.item.body));
                self.shard_of_item(Some(restore.item.head.id), key).map_or(Route::Any, Route::One)
            }
            Operation::Receive(_) => Route::From,
            Operation::Lease { id, .. }
            | Operation::Cancel { id, .. }
            | Operation::Pause { id }
            | Operation::Resume { id }
            | Operation::Redrive { id }
            | Operation::Delete { id, .. }
            | Operation::SetPriority { id, .. }
            | Operation::ResolveDependency { id, .. }
            // Every shard has every queue, so a moved item stays in its shard.
            | Operation::Move { id, .. } => Route::Item(*id),
            Operation::Guarded { then, .. } => self.route(then),
            Operation::Kv { key, .. } => Route::One(self.shard_of_text(key)),
            Operation::CreateQueue { .. }
            | Operation::ChangePolicy { .. }
            | Operation::CloseQueue { .. }
            | Operation::PauseQueue { .. }
            | Operation::ResumeQueue { .. }
            | Operation::DeleteQueue { .. }
            | Operation::Sweep => Route::All,
        }
    }

    /// The shard that an item must go to, if any: the shard that issued its id, else the shard of its key, else the shard
    /// of its id.
    fn shard_of_item(&self, id: Option<ItemId>, key: Option<(&QueueName, &str)>) -> Option<usize> {
        let of_key = || key.map(|(queue, key)| self.shard_of_text(&format!("{queue}\0{key}")));
        id.and_then(|id| self.issuer(id)).or_else(of_key).or_else(|| id.map(|id| self.shard_of_id(id)))
    }

    /// Refuses a commit on this shard if one of the items it submits must go to another: a step changes one shard.
    pub(crate) fn check_hand_off(&self, operation: &Operation, shard: usize) -> Result<(), Refusal> {
        for (index, HandOff { queue, submission }) in operation.handed_off().iter().enumerate() {
            let body = &submission.body;
            let key = unique_key(body).map(|key| (queue, key));
            let elsewhere = self.shard_of_item(submission.id, key).is_some_and(|other| other != shard);
            if elsewhere {
                let what = match (&body.idempotency_key, &body.replace_key) {
                    (Some(_), _) => "idempotency_key",
                    (None, Some(_)) => "replace_key",
                    (None, None) => "id",
                };
                let message = "it belongs to another shard than the committed item, and a commit changes one shard; \
                               leave it out, or submit this item before the commit";
                return Err(Refusal::invalid(what, message).of_hand_off(index));
            }
        }
        Ok(())
    }

    pub(crate) fn shard_of_text(&self, text: &str) -> usize {
        self.rendezvous(digest::key(text))
    }

    /// The shard of an id that the submitter chose.
    pub(crate) fn shard_of_id(&self, id: ItemId) -> usize {
        self.rendezvous(*id.0.as_bytes())
    }

    /// Rendezvous hashing: the shard with the highest hash of its number and the key. A shard added at the end takes its
    /// share of the keys, and all other keys stay where they are.
    fn rendezvous(&self, key: [u8; 16]) -> usize {
        let hash = |shard: usize| {
            let mut hash = u128::from_le_bytes(key)
                ^ (shard as u128 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
            for _ in 0..2 {
                hash ^= hash >> 67;
                hash = hash.wrapping_mul(0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645);
            }
            hash ^ hash >> 64
        };
        (0..self.shards.len()).max_by_key(|&shard| hash(shard)).unwrap_or(0)
    }
}
