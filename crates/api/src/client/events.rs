//! Following what happens: one stream after the other, each from where the last one ended.

use super::transport::Call;
use super::{Client, ClientError, Result};
use crate::code::Code;
use crate::event::{EventPage, EventShown};
use crate::problem::Problem;
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use std::collections::HashMap;
use std::time::Duration;

/// The server says something every 15 s: one that does not is not there any more.
const SILENCE_MAX: Duration = Duration::from_secs(50);
/// After a stream that brought nothing.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// An event is far shorter.
const LINE_BYTES_MAX: usize = 1 << 20;

/// Which events, and from where on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EventQuery {
    /// The `id` of an event, or `oldest`; without it: from now on.
    pub after: Option<String>,
    /// Of these queues.
    pub queues: Vec<String>,
    /// Of these kinds, like `item.completed` or `item.*`.
    pub kinds: Vec<String>,
    /// Of these items.
    pub items: Vec<String>,
    /// Of members of these groups.
    pub groups: Vec<String>,
}

impl EventQuery {
    fn pairs(&self, limit: Option<usize>) -> Vec<(&'static str, String)> {
        let mut pairs = Vec::new();
        pairs.extend(self.after.clone().map(|after| ("after", after)));
        pairs.extend(self.queues.iter().map(|queue| ("queue", queue.clone())));
        pairs.extend(self.kinds.iter().map(|kind| ("kind", kind.clone())));
        pairs.extend(self.items.iter().map(|item| ("item", item.clone())));
        pairs.extend(self.groups.iter().map(|group| ("group", group.clone())));
        pairs.extend(limit.map(|limit| ("limit", limit.to_string())));
        pairs
    }
}

impl Client {
    /// A page of what happened: of at most so many events, those that are meant.
    pub async fn events(&self, query: &EventQuery, limit: Option<usize>) -> Result<EventPage> {
        self.transport.call(Call::get("/v1/events".to_owned()).query(query.pairs(limit))).await
    }

    /// Follows what happens. Nothing is asked before the first [`EventStream::next`].
    #[must_use]
    pub fn follow_events(&self, query: EventQuery) -> EventStream {
        let (body, lines) = (None, Lines::default());
        EventStream { client: self.clone(), query, body, begun: false, lines, pause: FIRST_PAUSE }
    }
}

/// What happens, event by event. A stream that breaks off is taken up again where it was.
#[derive(Debug)]
pub struct EventStream {
    client: Client,
    query: EventQuery,
    body: Option<Incoming>,
    begun: bool,
    lines: Lines,
    pause: Duration,
}

impl EventStream {
    /// Whether the server was ever there.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.begun
    }

    /// Where it would go on: the `after` of a later stream. `None`: it has not begun.
    #[must_use]
    pub fn place(&self) -> Option<&str> {
        self.query.after.as_deref()
    }

    /// Waits for the next event. After an error it may be called again, and goes on where it was.
    ///
    /// # Errors
    /// If the server cannot be reached in the time that [`Client::patience`] says, or refuses: with `events_gone`, what came
    /// next is not kept any more.
    pub async fn next(&mut self) -> Result<EventShown> {
        loop {
            while let Some(said) = self.lines.next() {
                if let Some(id) = said.id {
                    self.query.after = Some(id);
                }
                match said.event.as_str() {
                    "" => {}
                    "cut_off" => {
                        self.body = None;
                        self.lines = Lines::default();
                        let problem: Problem = self.read(&said.data)?;
                        // The others pass when it comes back.
                        if Code::parse(&problem.code) == Some(Code::EventsGone) {
                            return Err(ClientError::Refused(Box::new(problem)));
                        }
                    }
                    _ => {
                        self.pause = FIRST_PAUSE;
                        return self.read(&said.data);
                    }
                }
            }
            let Some(body) = &mut self.body else {
                self.begin().await?;
                continue;
            };
            match tokio::time::timeout(SILENCE_MAX, body.frame()).await {
                Ok(Some(Ok(frame))) => {
                    if let Ok(data) = frame.into_data() {
                        self.lines.push(&data)?;
                    }
                }
                // Ended, broken off, or silent.
                Ok(None | Some(Err(_))) | Err(_) => {
                    self.body = None;
                    self.lines = Lines::default();
                    tokio::time::sleep(self.pause).await;
                    self.pause = (self.pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }

    async fn begin(&mut self) -> Result<()> {
        let call = Call::get("/v1/events".to_owned()).query(self.query.pairs(None));
        let answer = self.client.transport.open(call.header("accept", "text/event-stream")?).await?;
        self.body = Some(answer.into_body());
        self.begun = true;
        Ok(())
    }

    fn read<T: serde::de::DeserializeOwned>(&self, data: &str) -> Result<T> {
        serde_json::from_str(data).map_err(|error| self.client.transport.misunderstood(error.to_string()))
    }
}

/// Whether one place in the stream of events is nowhere before another, as far as their words say.
#[must_use]
pub fn has_reached(place: &str, other: &str) -> bool {
    let parts = |place: &str| -> Option<HashMap<String, (u64, u64)>> {
        let part = |part: &str| {
            let mut numbers = part.split('-');
            let (store, group, nth) = (numbers.next()?, numbers.next()?, numbers.next()?);
            Some((store.to_owned(), (group.parse().ok()?, nth.parse().ok()?)))
        };
        place.split('.').map(part).collect()
    };
    let (Some(place), Some(other)) = (parts(place), parts(other)) else { return false };
    other.iter().all(|(store, at)| place.get(store).is_some_and(|mine| mine >= at))
}

/// What was said, up to an empty line.
#[derive(Debug, Default, PartialEq, Eq)]
struct Said {
    id: Option<String>,
    event: String,
    data: String,
}

/// Bytes of a stream of server-sent events, read line by line.
#[derive(Debug, Default)]
struct Lines {
    bytes: Vec<u8>,
    /// How far they were read.
    at: usize,
    said: Said,
}

impl Lines {
    fn push(&mut self, bytes: &Bytes) -> Result<()> {
        self.bytes.drain(..self.at);
        self.at = 0;
        self.bytes.extend_from_slice(bytes);
        if self.bytes.len() > LINE_BYTES_MAX && !self.bytes.contains(&b'\n') {
            return Err(ClientError::Configuration(format!("a line is longer than {LINE_BYTES_MAX} bytes")));
        }
        Ok(())
    }

    fn next(&mut self) -> Option<Said> {
        loop {
            let rest = &self.bytes[self.at..];
            let end = rest.iter().position(|&byte| byte == b'\n')?;
            let line = String::from_utf8_lossy(&rest[..end]).into_owned();
            self.at += end + 1;
            let line = line.strip_suffix('\r').unwrap_or(&line);
            if line.is_empty() {
                return Some(std::mem::take(&mut self.said));
            }
            let (field, value) = line.split_once(':').unwrap_or((line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match field {
                "id" => self.said.id = Some(value.to_owned()),
                "event" => value.clone_into(&mut self.said.event),
                "data" => {
                    if !self.said.data.is_empty() {
                        self.said.data.push('\n');
                    }
                    self.said.data.push_str(value);
                }
                // A comment, or something of a later version.
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_however_they_arrive() {
        let text = b": still here\nid: a-1\n\nid: a-2\r\nevent: item.completed\r\ndata: {\"x\":\ndata:1}\n\nretry: 5\n";
        for size in [1, 2, 7, text.len()] {
            let mut lines = Lines::default();
            let mut said = Vec::new();
            for piece in text.chunks(size) {
                lines.push(&Bytes::copy_from_slice(piece)).unwrap();
                said.extend(std::iter::from_fn(|| lines.next()));
            }
            let first = Said { id: Some("a-1".to_owned()), ..Said::default() };
            let second = Said {
                id: Some("a-2".to_owned()),
                event: "item.completed".to_owned(),
                data: "{\"x\":\n1}".to_owned(),
            };
            assert_eq!(said, [first, second], "{size}");
        }
    }

    #[test]
    fn places_are_compared_part_by_part() {
        assert!(has_reached("0000000a-17-3", "0000000a-17-3"));
        assert!(has_reached("0000000a-17-4.0000000b-2-0", "0000000a-9-12"));
        assert!(!has_reached("0000000a-17-3", "0000000a-17-4"));
        assert!(!has_reached("0000000a-17-3", "0000000a-1-0.0000000b-1-0"), "of one part it says nothing");
        assert!(!has_reached("oldest", "0000000a-1-0") && !has_reached("0000000a-1-0", ""));
    }

    #[test]
    fn a_line_without_end_is_not_gathered() {
        let mut lines = Lines::default();
        let piece = Bytes::from(vec![b'x'; LINE_BYTES_MAX]);
        lines.push(&piece).unwrap();
        assert!(lines.push(&piece).is_err());
    }
}
