//! What lies in the queue: a piece of work with everything that was decided about it when it was queued.

use crate::clock::Time;
use crate::options::Retry;
use serde::{Deserialize, Serialize};
use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Envelope {
    pub(crate) id: String,
    pub(crate) kind: String,
    /// As its codec wrote it.
    pub(crate) input: String,
    pub(crate) group: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) parent: Option<String>,
    pub(crate) queued_at: Time,
    /// Not before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) start_at: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) deadline: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) timeout: Option<Duration>,
    #[serde(default)]
    pub(crate) priority: i32,
    pub(crate) retry: Retry,
    /// How often it has ended as a dead letter: what is known of an earlier end is not this one's.
    #[serde(default)]
    pub(crate) round: u32,
}

impl Envelope {
    pub(crate) fn read(body: &str) -> Result<Envelope, String> {
        serde_json::from_str(body).map_err(|error| format!("it is no piece of work: {error}"))
    }

    pub(crate) fn text(&self) -> String {
        // Only strings and numbers: it can always be written.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// As it is kept for who looks at it, and for another try, which must not end at once.
    pub(crate) fn given_up(&self) -> Envelope {
        Envelope { round: self.round + 1, deadline: None, start_at: None, ..self.clone() }
    }
}
