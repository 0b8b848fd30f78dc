//! Wire types of events.

use crate::time::Time;
use serde::{Deserialize, Serialize};
use towline_domain::{EventKind, ItemEvent, ItemEventState, ItemId, QueueName, Timestamp};
use utoipa::ToSchema;

/// Something that happened. An event is a hint: read the item or queue to learn its current state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EventShown {
    /// The event's cursor. Pass it as `cursor` to continue behind this event.
    pub id: String,
    #[schema(value_type = String, format = DateTime)]
    pub at: Time,
    /// What happened, for example `item.completed`.
    pub kind: String,
    /// The queue that the item is in now. A dead letter is in the dead-letter queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = Uuid)]
    pub item: Option<ItemId>,
    /// The item's state after the event. Absent: the item was deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// How many times the item was delivered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deliveries: Option<u32>,
    /// When the lease ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub deadline: Option<Time>,
    /// How the item failed: explicit, retries_exhausted, expired, cancelled or poison.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// Why the attempt ended, at most 512 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The queue in which a dead letter failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
}

impl EventShown {
    #[must_use]
    pub fn new(
        id: String,
        at: Timestamp,
        kind: EventKind,
        queue: Option<&QueueName>,
        item: Option<&ItemEvent>,
    ) -> EventShown {
        let after = item.and_then(|item| item.after.as_ref());
        EventShown {
            id,
            at: at.into(),
            kind: kind.name().to_owned(),
            queue: queue.map(ToString::to_string),
            item: item.map(|item| item.id),
            state: after.map(|after| after.state.name().to_owned()),
            attempt: after.map(|after| after.attempt),
            deliveries: after.map(|after| after.deliveries),
            deadline: after.and_then(|after| after.deadline).map(Time::from),
            failure: after.and_then(|after| after.failure).map(|failure| failure.name().to_owned()),
            reason: after.and_then(|after| after.reason.clone()),
            origin: after.and_then(|after: &ItemEventState| after.origin.as_ref()).map(ToString::to_string),
        }
    }
}

/// A page of events, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EventPage {
    pub events: Vec<EventShown>,
    /// Pass this as `cursor` to get the next page. Never `null`: there will be more events.
    pub next: String,
    /// Whether more events are available now. `false`: ask again later.
    pub more: bool,
}
