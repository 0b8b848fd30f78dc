//! Topics: messages that the server passes to current subscribers and does not store.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TopicMessage {
    /// The message, at most 16 KiB.
    pub message: String,
}

/// The result of a publish: how many subscribers got the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Published {
    pub subscribers: usize,
}

/// The last event to a subscriber that was too slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CutOff {
    /// How many messages the subscriber missed.
    pub missed: u64,
}
