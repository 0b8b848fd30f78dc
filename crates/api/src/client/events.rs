//! Following events. If a stream breaks, the client opens a new one where the last one ended.

use super::sse::{SseBody, SseEnd};
use super::transport::Call;
use super::{Client, ClientError, Result};
use crate::code::Code;
use crate::event::{EventPage, EventShown};
use crate::problem::Problem;
use std::collections::HashMap;
use std::time::Duration;

/// The first pause before the client opens a broken stream again.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// A filter of events, and where to start.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EventQuery {
    /// An event's `id`, or `oldest`. Default: only new events.
    pub cursor: Option<String>,
    /// Only events of these queues.
    pub queues: Vec<String>,
    /// Only these kinds, for example `item.completed` or `item.*`.
    pub kinds: Vec<String>,
    /// Only events of these items.
    pub items: Vec<String>,
    /// Only events of members of these groups.
    pub groups: Vec<String>,
}

impl EventQuery {
    fn pairs(&self, limit: Option<usize>) -> Vec<(&'static str, String)> {
        let mut pairs = Vec::new();
        pairs.extend(self.cursor.clone().map(|cursor| ("cursor", cursor)));
        pairs.extend(self.queues.iter().map(|queue| ("queue", queue.clone())));
        pairs.extend(self.kinds.iter().map(|kind| ("kind", kind.clone())));
        pairs.extend(self.items.iter().map(|item| ("item", item.clone())));
        pairs.extend(self.groups.iter().map(|group| ("group", group.clone())));
        pairs.extend(limit.map(|limit| ("limit", limit.to_string())));
        pairs
    }
}

impl Client {
    /// Returns a page of events. The server reads at most `limit` events and returns those that match.
    pub async fn events(&self, query: &EventQuery, limit: Option<usize>) -> Result<EventPage> {
        self.transport.call(Call::get("/v1/events".to_owned()).query(query.pairs(limit))).await
    }

    /// Follows events. Connects at the first [`EventStream::next`].
    #[must_use]
    pub fn follow_events(&self, query: EventQuery) -> EventStream {
        EventStream { client: self.clone(), query, body: None, begun: false, pause: FIRST_PAUSE }
    }
}

/// A stream of events. It reconnects by itself and misses nothing.
#[derive(Debug)]
pub struct EventStream {
    client: Client,
    query: EventQuery,
    body: Option<SseBody>,
    begun: bool,
    pause: Duration,
}

impl EventStream {
    /// Whether the stream has ever been connected.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.begun
    }

    /// The cursor to continue from: the `cursor` of a later stream. `None` before the first connection.
    #[must_use]
    pub fn cursor(&self) -> Option<&str> {
        self.query.cursor.as_deref()
    }

    /// Waits for the next event. After an error, call again to continue.
    ///
    /// # Errors
    ///
    /// If the server does not answer within [`Client::retry_for`], or refuses. The code `events_gone` means
    /// that the next events are no longer kept.
    pub async fn next(&mut self) -> Result<EventShown> {
        loop {
            let Some(body) = &mut self.body else {
                self.begin().await?;
                continue;
            };
            let event = match body.next().await {
                Ok(event) => event,
                Err(end @ SseEnd::TooLong) => {
                    self.body = None;
                    return Err(self.client.transport.misunderstood(end.to_string()));
                }
                Err(SseEnd::Closed | SseEnd::Broken(_) | SseEnd::Silent) => {
                    self.body = None;
                    tokio::time::sleep(self.pause).await;
                    self.pause = (self.pause * 2).min(LONGEST_PAUSE);
                    continue;
                }
            };
            if let Some(id) = event.id {
                self.query.cursor = Some(id);
            }
            match event.event.as_str() {
                "" => {}
                "cut_off" => {
                    self.body = None;
                    let problem: Problem = self.read(&event.data)?;
                    // Any other reason is gone when the client connects again.
                    if Code::parse(&problem.code) == Some(Code::EventsGone) {
                        return Err(ClientError::Refused(Box::new(problem)));
                    }
                }
                _ => {
                    self.pause = FIRST_PAUSE;
                    return self.read(&event.data);
                }
            }
        }
    }

    async fn begin(&mut self) -> Result<()> {
        let call = Call::get("/v1/events".to_owned()).query(self.query.pairs(None));
        let answer = self.client.transport.open(call.header("accept", "text/event-stream")?).await?;
        self.body = Some(SseBody::new(answer.into_body()));
        self.begun = true;
        Ok(())
    }

    fn read<T: serde::de::DeserializeOwned>(&self, data: &str) -> Result<T> {
        serde_json::from_str(data).map_err(|error| self.client.transport.misunderstood(error.to_string()))
    }
}

/// Whether `cursor` is at or behind `target` in every store. False if either is malformed.
#[must_use]
pub fn cursor_has_reached(cursor: &str, target: &str) -> bool {
    let positions = |cursor: &str| -> Option<HashMap<String, (u64, u64)>> {
        let position = |part: &str| {
            let mut numbers = part.split('-');
            let (store, group, nth) = (numbers.next()?, numbers.next()?, numbers.next()?);
            Some((store.to_owned(), (group.parse().ok()?, nth.parse().ok()?)))
        };
        cursor.split('.').map(position).collect()
    };
    let (Some(cursor), Some(target)) = (positions(cursor), positions(target)) else { return false };
    target.iter().all(|(store, at)| cursor.get(store).is_some_and(|reached| reached >= at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_are_compared_store_by_store() {
        assert!(cursor_has_reached("0000000a-17-3", "0000000a-17-3"));
        assert!(cursor_has_reached("0000000a-17-4.0000000b-2-0", "0000000a-9-12"));
        assert!(!cursor_has_reached("0000000a-17-3", "0000000a-17-4"));
        assert!(
            !cursor_has_reached("0000000a-17-3", "0000000a-1-0.0000000b-1-0"),
            "of one part it says nothing"
        );
        assert!(!cursor_has_reached("oldest", "0000000a-1-0") && !cursor_has_reached("0000000a-1-0", ""));
    }
}
