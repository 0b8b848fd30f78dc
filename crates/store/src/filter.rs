//! Which items a reader wants, and where a page of them ended.

use crate::{StoreError, StoredItem};
use towline_domain::{QueueName, StateName, Timestamp, limits};

/// Everything that is set must hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Filter {
    pub queue: Option<QueueName>,
    pub state: Option<StateName>,
    pub tags: Vec<(String, String)>,
    pub group: Option<String>,
    pub idempotency_key: Option<String>,
    pub created_from: Option<Timestamp>,
    pub created_before: Option<Timestamp>,
}

impl Filter {
    /// Refuses more tags than an item can have.
    pub fn check(&self) -> Result<(), StoreError> {
        StoreError::check_size("tags", self.tags.len(), limits::TAGS_MAX)
    }

    #[must_use]
    pub fn matches(&self, stored: &StoredItem, now: Timestamp) -> bool {
        let (head, body) = (&stored.item.head, &stored.item.body);
        self.queue.as_ref().is_none_or(|queue| *queue == stored.queue)
            && self.state.is_none_or(|state| state.matches(head.count_kind(now)))
            && self.tags.iter().all(|(name, value)| body.tags.get(name) == Some(value))
            && self.group.as_ref().is_none_or(|group| body.group.as_ref() == Some(group))
            && self.idempotency_key.as_ref().is_none_or(|key| body.idempotency_key.as_ref() == Some(key))
            && self.created_from.is_none_or(|from| head.created_at >= from)
            && self.created_before.is_none_or(|before| head.created_at < before)
    }
}

/// Where to go on: after the item with this sequence number, in order of submission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor(pub u64);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    pub items: Vec<StoredItem>,
    /// `None`: there are no more. A page may be short, even empty, and still go on.
    pub next: Option<Cursor>,
}
