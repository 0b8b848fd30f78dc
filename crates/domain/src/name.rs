//! Names. They are parsed once at the edge, so every name inside is valid.

use crate::digest;
use crate::id::{ItemId, LeaseToken};
use crate::limits;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error("a {what} name must not be empty")]
    Empty { what: &'static str },
    #[error("{what} name {name:?}… is {length} bytes long; at most {max} are allowed")]
    TooLong { what: &'static str, name: String, length: usize, max: usize },
    #[error("{what} name {name:?} is not allowed; use {rule}")]
    Malformed { what: &'static str, name: String, rule: &'static str },
}

impl NameError {
    /// The same error about a name of another kind that follows the same rule.
    #[must_use]
    pub fn about(mut self, kind: &'static str) -> NameError {
        let (NameError::Empty { what } | NameError::TooLong { what, .. } | NameError::Malformed { what, .. }) =
            &mut self;
        *what = kind;
        self
    }
}

fn check_length(what: &'static str, text: &str, max: usize) -> Result<(), NameError> {
    if text.is_empty() {
        return Err(NameError::Empty { what });
    }
    if text.len() > max {
        let name = text.chars().take(40).collect();
        return Err(NameError::TooLong { what, name, length: text.len(), max });
    }
    Ok(())
}

macro_rules! name {
    ($(#[$doc:meta])* $type:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $type(Arc<str>);

        impl $type {
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl TryFrom<String> for $type {
            type Error = NameError;
            fn try_from(text: String) -> Result<Self, NameError> {
                text.parse()
            }
        }

        impl From<$type> for String {
            fn from(name: $type) -> String {
                name.0.to_string()
            }
        }
    };
}

name! {
    /// A queue's name: letters, digits, `.`, `_`, `-`, `:`, beginning with a letter, digit or `_`.
    QueueName
}
name! {
    /// A schedule's name: like a queue's.
    ScheduleName
}
name! {
    /// A buffer slot or a declared parameter: `[a-z0-9]([a-z0-9_-]*[a-z0-9])?`, at most 63 bytes.
    SlotName
}
name! {
    /// A buffer, by the name its creator chose. The `buffers` crate says what it refers to.
    BufferId
}

impl std::str::FromStr for QueueName {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        check_word("queue", text)?;
        Ok(QueueName(text.into()))
    }
}

impl std::str::FromStr for ScheduleName {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        check_word("schedule", text)?;
        Ok(ScheduleName(text.into()))
    }
}

fn check_word(what: &'static str, text: &str) -> Result<(), NameError> {
    check_length(what, text, limits::QUEUE_NAME_BYTES_MAX)?;
    let first = text.as_bytes()[0];
    let good = (first.is_ascii_alphanumeric() || first == b'_')
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-:".contains(&b));
    if !good {
        let rule = "letters, digits, '.', '_', '-' and ':', beginning with a letter, a digit or '_'";
        return Err(NameError::Malformed { what, name: text.to_owned(), rule });
    }
    Ok(())
}

impl std::str::FromStr for SlotName {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        check_length("slot or parameter", text, limits::SLOT_NAME_BYTES_MAX)?;
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        let bytes = text.as_bytes();
        let good = plain(bytes[0])
            && plain(bytes[bytes.len() - 1])
            && bytes.iter().all(|&b| plain(b) || b == b'_' || b == b'-');
        if !good {
            let rule = "lower-case letters, digits, '_' and '-', beginning and ending with a letter or digit";
            return Err(NameError::Malformed { what: "slot or parameter", name: text.to_owned(), rule });
        }
        Ok(SlotName(text.into()))
    }
}

impl std::str::FromStr for BufferId {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        check_length("buffer", text, limits::BUFFER_ID_BYTES_MAX)?;
        if !text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b)) {
            let rule = "letters, digits, '.', '_' and '-'";
            return Err(NameError::Malformed { what: "buffer", name: text.to_owned(), rule });
        }
        Ok(BufferId(text.into()))
    }
}

/// The prefix of output buffers of an attempt: `out.<item>.<slot>.<digest of the lease>`.
const OF_ATTEMPT: &str = "out.";

impl BufferId {
    /// The buffer of one slot and one attempt. It cannot be guessed from the item's id.
    #[must_use]
    pub fn of_attempt(id: ItemId, slot: &SlotName, token: LeaseToken) -> BufferId {
        let fence = digest::attempt(token, slot.as_str());
        BufferId(format!("{OF_ATTEMPT}{id}.{}.{fence:016x}", slot.as_str()).into())
    }

    /// The item whose attempt this buffer belongs to, if any.
    #[must_use]
    pub fn attempted(&self) -> Option<ItemId> {
        self.0.strip_prefix(OF_ATTEMPT)?.split('.').next()?.parse().ok()
    }
}

/// Allows slot lookup by a client's text without parsing it.
impl std::borrow::Borrow<str> for SlotName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_names() {
        for good in ["jobs", "_dead", "a.b-c_d", "9", "Jobs", "queue:hog:dlq", "_cyclotron_dead_letter"] {
            assert!(good.parse::<QueueName>().is_ok(), "{good}");
        }
        for bad in ["", "-a", ".a", ":a", "a b", "a/b", "a?b", "a%b", "a*b", "ü", "a\n", &"x".repeat(256)] {
            assert!(bad.parse::<QueueName>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn slot_names() {
        for good in ["a", "raw_signal", "x-1", "0", &"x".repeat(63)] {
            assert!(good.parse::<SlotName>().is_ok(), "{good}");
        }
        for bad in ["", "_a", "a-", "A", "a.b", "é", &"x".repeat(64)] {
            assert!(bad.parse::<SlotName>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_refused_name_says_what_is_allowed() {
        let message = "My Slot".parse::<SlotName>().unwrap_err().to_string();
        assert!(message.contains("My Slot") && message.contains("lower-case"), "{message}");
    }
}
