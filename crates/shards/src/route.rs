//! Where an operation goes.

use crate::Shards;
use towline_domain::{Body, ItemId, QueueName, digest};
use towline_store::Operation;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route {
    One(usize),
    /// To the shard whose turn it is, and to others if that has no room.
    Any,
    /// From the shard whose turn it is, and from others as long as there is less than was asked for.
    From,
    /// Every shard must do it.
    All,
    /// To whoever has the item.
    Item(ItemId),
}

/// The key that items have in common of which one shard must know all: none has both.
fn key_of(body: &Body) -> Option<&str> {
    body.idempotency_key.as_deref().or(body.replace_key.as_deref())
}

impl Shards {
    pub(crate) fn route(&self, operation: &Operation) -> Route {
        match operation {
            // Where the record is that it is tied to: the two change together.
            Operation::Submit { submission, .. } if submission.record_guard.is_some() => {
                let key = submission.record_guard.as_ref().map_or("", |once| once.key.as_str());
                Route::One(self.of_text(key))
            }
            Operation::Submit { queue, submission } => {
                let key = key_of(&submission.body).map(|key| (queue, key));
                self.home(submission.id, key).map_or(Route::Any, Route::One)
            }
            Operation::Restore(restore) => {
                let key = key_of(&restore.item.body);
                let home = self.home(Some(restore.item.head.id), restore.claimed_in.as_ref().zip(key));
                home.map_or(Route::Any, Route::One)
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
            // Every queue is in every shard: the item stays where it is.
            | Operation::Move { id, .. } => Route::Item(*id),
            Operation::Guarded { then, .. } => self.route(then),
            Operation::Kv { key, .. } => Route::One(self.of_text(key)),
            Operation::CreateQueue { .. }
            | Operation::ChangePolicy { .. }
            | Operation::CloseQueue { .. }
            | Operation::PauseQueue { .. }
            | Operation::ResumeQueue { .. }
            | Operation::DeleteQueue { .. }
            | Operation::Sweep => Route::All,
        }
    }

    /// Where an item must go: an id that a shard once made stays that shard's, then the key decides.
    fn home(&self, id: Option<ItemId>, key: Option<(&QueueName, &str)>) -> Option<usize> {
        let of_key = || key.map(|(queue, key)| self.of_text(&format!("{queue}\0{key}")));
        id.and_then(|id| self.maker(id)).or_else(of_key).or_else(|| id.map(|id| self.of_id(id)))
    }

    pub(crate) fn of_text(&self, text: &str) -> usize {
        self.highest(digest::key(text))
    }

    /// Where an id goes that its submitter chose.
    pub(crate) fn of_id(&self, id: ItemId) -> usize {
        self.highest(*id.0.as_bytes())
    }

    /// The shard that draws the highest number for this: of all that belongs somewhere, a shard that is added at the end
    /// takes its share, and the rest stays where it is.
    fn highest(&self, what: [u8; 16]) -> usize {
        let drawn = |shard: usize| {
            let mut drawn = u128::from_le_bytes(what)
                ^ (shard as u128 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
            for _ in 0..2 {
                drawn ^= drawn >> 67;
                drawn = drawn.wrapping_mul(0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645);
            }
            drawn ^ drawn >> 64
        };
        (0..self.shards.len()).max_by_key(|&shard| drawn(shard)).unwrap_or(0)
    }
}
