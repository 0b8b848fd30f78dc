//! Which items a reader wants, and where a page of them ended.

use crate::{StoreError, StoredItem};
use towline_domain::{Body, Errors, HeadFilter, Precondition, QueueName, Timestamp, Traits, limits};

/// Everything that is set must hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Filter {
    pub queue: Option<QueueName>,
    pub head: HeadFilter,
    pub tags: Vec<(String, String)>,
    /// Tags that are this, or lie under it: see [`is_under`].
    pub tag_prefixes: Vec<(String, String)>,
    pub group: Option<String>,
    pub idempotency_key: Option<String>,
    pub error: Option<ErrorText>,
}

/// Text that an error's message holds, whatever its case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorText(String);

impl ErrorText {
    #[must_use]
    pub fn new(text: &str) -> ErrorText {
        ErrorText(text.to_lowercase())
    }

    #[must_use]
    pub fn is_in(&self, errors: &Errors) -> bool {
        errors.iter().any(|error| error.message.to_lowercase().contains(&self.0))
    }
}

/// Whether a path is `top`, or below it. By whole segments: `/abc` is not under `/ab`.
#[must_use]
pub fn is_under(path: &str, top: &str) -> bool {
    let top = without_end(top);
    path.strip_prefix(top).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// `/a/` and `/a` are the same place.
#[must_use]
pub fn without_end(path: &str) -> &str {
    path.strip_suffix('/').unwrap_or(path)
}

impl Filter {
    /// Refuses more tags than an item can have, and text longer than any error's.
    pub fn check(&self) -> Result<(), StoreError> {
        StoreError::check_size("tags", self.tags.len() + self.tag_prefixes.len(), limits::TAGS_MAX)?;
        let text = self.error.as_ref().map_or(0, |text| text.0.len());
        StoreError::check_size("bytes of error text", text, limits::ERROR_TEXT_BYTES_MAX)
    }

    #[must_use]
    pub fn matches(&self, stored: &StoredItem, now: Timestamp) -> bool {
        let head = &stored.item.head;
        self.queue.as_ref().is_none_or(|queue| *queue == stored.queue)
            && self.head.matches(&Traits::of(head, head.count_kind(now)))
            && self.has_body(&stored.item.body)
            && self.error.as_ref().is_none_or(|text| text.is_in(&stored.item.errors))
    }

    fn has_body(&self, body: &Body) -> bool {
        self.tags.iter().all(|(name, value)| body.tags.get(name) == Some(value))
            && self
                .tag_prefixes
                .iter()
                .all(|(name, top)| body.tags.get(name).is_some_and(|value| is_under(value, top)))
            && self.group.as_ref().is_none_or(|group| body.group.as_ref() == Some(group))
            && self.idempotency_key.as_ref().is_none_or(|key| body.idempotency_key.as_ref() == Some(key))
    }

    /// Whether anything but the queue is asked for.
    #[must_use]
    pub fn asks(&self) -> bool {
        *self != Filter { queue: self.queue.clone(), ..Filter::default() }
    }

    /// Whether nothing but queue and state is asked for: counters know how many there are.
    #[must_use]
    pub fn is_state_alone(&self) -> bool {
        let rest = Filter { queue: None, head: HeadFilter::default(), ..self.clone() };
        self.head.is_state_alone() && rest == Filter::default()
    }

    /// Whether heads tell all that is asked for.
    #[must_use]
    pub fn is_of_heads(&self) -> bool {
        *self == Filter { queue: self.queue.clone(), head: self.head, ..Filter::default() }
    }

    /// What must still hold of an item when its turn comes. The rest changes only when it is replaced: see [`Precondition::unless_replaced`].
    #[must_use]
    pub fn precondition(&self) -> Precondition {
        Precondition { queue: self.queue.clone(), head: self.head, version: None }
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

/// A part of a count: the sum of all parts is how many match.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CountPage {
    pub count: u64,
    /// Where to go on; `None`: that was all.
    pub next: Option<Cursor>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_under_another_by_whole_segments() {
        for (path, top, expected) in [
            ("/ab", "/ab", true),
            ("/ab/c", "/ab", true),
            ("/ab/c", "/ab/", true),
            ("/ab", "/ab/", true),
            ("/abc", "/ab", false),
            ("/a", "/ab", false),
            ("/", "/", true),
            ("/ab", "/", true),
            ("ab", "/", false),
            ("", "/", true),
            ("eu/west", "eu", true),
            ("europe", "eu", false),
            ("/é/x", "/é", true),
        ] {
            assert_eq!(is_under(path, top), expected, "{path} under {top}");
        }
    }
}
