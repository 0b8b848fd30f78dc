//! Filters, pages and cursors of lists and counts.

use crate::{StoreError, StoredItem};
use towline_domain::{Body, Errors, HeadFilter, Precondition, QueueName, Timestamp, Traits, limits};

/// All set fields must match.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Filter {
    pub queue: Option<QueueName>,
    pub head: HeadFilter,
    pub tags: Vec<(String, String)>,
    /// Tags with this value or a value under it: see [`is_under`].
    pub tag_prefixes: Vec<(String, String)>,
    pub group: Option<String>,
    pub idempotency_key: Option<String>,
    pub error: Option<ErrorText>,
    pub not: Exclusions,
}

/// What a matching item does not have: none of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Exclusions {
    pub tags: Vec<(String, String)>,
    pub tag_prefixes: Vec<(String, String)>,
    /// Tags with any value.
    pub tag_names: Vec<String>,
    pub groups: Vec<String>,
}

impl Exclusions {
    fn len(&self) -> usize {
        self.tags.len() + self.tag_prefixes.len() + self.tag_names.len() + self.groups.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn exclude(&self, body: &Body) -> bool {
        let is = |name: &String, matches: &dyn Fn(&String) -> bool| body.tags.get(name).is_some_and(matches);
        self.tags.iter().any(|(name, value)| is(name, &|tag| tag == value))
            || self.tag_prefixes.iter().any(|(name, top)| is(name, &|tag| is_under(tag, top)))
            || self.tag_names.iter().any(|name| body.tags.contains_key(name))
            || body.group.as_ref().is_some_and(|group| self.groups.contains(group))
    }
}

/// Text contained in an error's message, ignoring case.
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

/// Whether a path is `top` or under it, by whole segments: `/abc` is not under `/ab`.
#[must_use]
pub fn is_under(path: &str, top: &str) -> bool {
    let top = without_end(top);
    path.strip_prefix(top).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The path without a trailing slash: `/a/` and `/a` are the same.
#[must_use]
pub fn without_end(path: &str) -> &str {
    path.strip_suffix('/').unwrap_or(path)
}

impl Filter {
    /// Refuses too many tags and too long error texts.
    pub fn check(&self) -> Result<(), StoreError> {
        StoreError::check_size(
            "tags",
            self.tags.len() + self.tag_prefixes.len() + self.not.len(),
            limits::TAGS_MAX,
        )?;
        let text = self.error.as_ref().map_or(0, |text| text.0.len());
        StoreError::check_size("bytes of error text", text, limits::ERROR_TEXT_BYTES_MAX)
    }

    #[must_use]
    pub fn matches(&self, stored: &StoredItem, now: Timestamp) -> bool {
        let head = &stored.item.head;
        self.queue.as_ref().is_none_or(|queue| *queue == stored.queue)
            && self.head.matches(&Traits::of(head, head.count_kind(now)))
            && self.matches_body(&stored.item.body)
            && self.error.as_ref().is_none_or(|text| text.is_in(&stored.item.errors))
    }

    fn matches_body(&self, body: &Body) -> bool {
        self.tags.iter().all(|(name, value)| body.tags.get(name) == Some(value))
            && self
                .tag_prefixes
                .iter()
                .all(|(name, top)| body.tags.get(name).is_some_and(|value| is_under(value, top)))
            && self.group.as_ref().is_none_or(|group| body.group.as_ref() == Some(group))
            && self.idempotency_key.as_ref().is_none_or(|key| body.idempotency_key.as_ref() == Some(key))
            && !self.not.exclude(body)
    }

    /// Whether the filter has anything besides a queue.
    #[must_use]
    pub fn asks(&self) -> bool {
        *self != Filter { queue: self.queue.clone(), ..Filter::default() }
    }

    /// Whether the filter is on queue and state alone, so that counts answer it.
    #[must_use]
    pub fn is_state_alone(&self) -> bool {
        let rest = Filter { queue: None, head: HeadFilter::default(), ..self.clone() };
        self.head.is_state_alone() && rest == Filter::default()
    }

    /// Whether heads suffice to match.
    #[must_use]
    pub fn is_of_heads(&self) -> bool {
        *self == Filter { queue: self.queue.clone(), head: self.head, ..Filter::default() }
    }

    /// What must still match when the item is changed. The rest of the filter is on the body, which changes only when the
    /// item is replaced: see [`Precondition::unless_replaced`].
    #[must_use]
    pub fn precondition(&self) -> Precondition {
        Precondition { queue: self.queue.clone(), head: self.head, version: None }
    }
}

/// The position after the item with this sequence number, in order of submission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor(pub u64);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    pub items: Vec<StoredItem>,
    /// `None`: no more items. A page may be short or empty although more items follow.
    pub next: Option<Cursor>,
}

/// A part of a count. The sum of all parts is the number of matching items.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CountPage {
    pub count: u64,
    /// Continue here. `None`: this was the last part.
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
