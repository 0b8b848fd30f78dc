//! Codes and JSON that stand for parts of an item in the tables. They are stored: never reuse a code.

use serde::Serialize;
use serde::de::DeserializeOwned;
use towline_domain::item::Settled;
use towline_domain::{FailureKind, SettleVerb};

pub(crate) const PENDING: u8 = 0;
pub(crate) const PROCESSING: u8 = 1;
pub(crate) const PAUSED: u8 = 2;
pub(crate) const COMPLETED: u8 = 3;
pub(crate) const FAILED: u8 = 4;

macro_rules! codes {
    ($of:ident, $from:ident, $kind:ty { $($variant:path = $code:literal,)* }) => {
        pub(crate) fn $of(kind: $kind) -> u8 {
            match kind { $($variant => $code,)* }
        }

        pub(crate) fn $from(code: u8) -> Option<$kind> {
            match code { $($code => Some($variant),)* _ => None }
        }
    };
}

codes!(of_failure, failure, FailureKind {
    FailureKind::Explicit = 1,
    FailureKind::RetriesExhausted = 2,
    FailureKind::Expired = 3,
    FailureKind::Cancelled = 4,
    FailureKind::Poison = 5,
});

codes!(of_verb, verb, SettleVerb {
    SettleVerb::Commit = 1,
    SettleVerb::Fail = 2,
    SettleVerb::Retry = 3,
    SettleVerb::Release = 4,
    SettleVerb::Defer = 5,
    SettleVerb::Pause = 6,
    SettleVerb::Cancel = 7,
});

codes!(of_settled, settled, Settled {
    Settled::Pending = 1,
    Settled::Completed = 2,
    Settled::Failed = 3,
    Settled::Paused = 4,
});

/// Rare properties are stored as JSON, so that a later version can add names.
pub(crate) fn to_json(value: &impl Serialize) -> String {
    // Cannot fail: the types have string keys, and no `Serialize` of theirs fails.
    serde_json::to_string(value).unwrap_or_else(|error| unreachable!("{error}"))
}

pub(crate) fn from_json<T: DeserializeOwned>(text: &str) -> Result<T, serde_json::Error> {
    serde_json::from_str(text)
}
