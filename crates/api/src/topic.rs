//! Topics: messages that the server passes to current subscribers and does not store.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TopicMessage {
    /// At most 16 KiB.
    pub message: String,
}

/// How many listened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Published {
    pub listeners: usize,
}

/// The last words to a listener who was too slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CutOff {
    /// How many messages went by.
    pub missed: u64,
}
