//! Reads server-sent events from the body of an answer, for event streams and for topic subscriptions.
//!
//! Written by hand: `eventsource-stream` had its last release in 2022 and puts no bound on the length of an event.

use http_body_util::BodyExt;
use hyper::body::Incoming;
use std::time::Duration;

/// The server sends at least a comment every 15 s. After this much silence the client treats the connection
/// as dead.
const SILENCE_MAX: Duration = Duration::from_secs(50);
/// Maximum length of a line. Real events are far shorter.
const LINE_BYTES_MAX: usize = 1 << 20;

/// One event. A block of comments has an empty `event`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ServerSentEvent {
    pub(super) id: Option<String>,
    pub(super) event: String,
    pub(super) data: String,
}

/// Why this body has no more events.
#[derive(Debug, thiserror::Error)]
pub(super) enum SseEnd {
    #[error("the server closed the stream")]
    Closed,
    #[error(transparent)]
    Broken(hyper::Error),
    #[error("the server sent nothing for {} s", SILENCE_MAX.as_secs())]
    Silent,
    #[error("a line is longer than {LINE_BYTES_MAX} bytes")]
    TooLong,
}

#[derive(Debug)]
pub(super) struct SseBody {
    body: Incoming,
    decoder: Decoder,
}

impl SseBody {
    pub(super) fn new(body: Incoming) -> SseBody {
        SseBody { body, decoder: Decoder::default() }
    }

    /// Waits for the next event.
    pub(super) async fn next(&mut self) -> Result<ServerSentEvent, SseEnd> {
        loop {
            if let Some(event) = self.decoder.next() {
                return Ok(event);
            }
            match tokio::time::timeout(SILENCE_MAX, self.body.frame()).await {
                Err(_) => return Err(SseEnd::Silent),
                Ok(None) => return Err(SseEnd::Closed),
                Ok(Some(Err(error))) => return Err(SseEnd::Broken(error)),
                Ok(Some(Ok(frame))) => self.decoder.push(&frame.into_data().unwrap_or_default())?,
            }
        }
    }
}

#[derive(Debug, Default)]
struct Decoder {
    bytes: Vec<u8>,
    /// How many of the bytes are decoded.
    decoded: usize,
    partial: ServerSentEvent,
}

impl Decoder {
    fn push(&mut self, bytes: &[u8]) -> Result<(), SseEnd> {
        self.bytes.drain(..self.decoded);
        self.decoded = 0;
        self.bytes.extend_from_slice(bytes);
        if self.bytes.len() > LINE_BYTES_MAX && !self.bytes.contains(&b'\n') {
            return Err(SseEnd::TooLong);
        }
        Ok(())
    }

    fn next(&mut self) -> Option<ServerSentEvent> {
        loop {
            let rest = &self.bytes[self.decoded..];
            let end = rest.iter().position(|&byte| byte == b'\n')?;
            let line = String::from_utf8_lossy(&rest[..end]).into_owned();
            self.decoded += end + 1;
            let line = line.strip_suffix('\r').unwrap_or(&line);
            if line.is_empty() {
                return Some(std::mem::take(&mut self.partial));
            }
            let (field, value) = line.split_once(':').unwrap_or((line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match field {
                "id" => self.partial.id = Some(value.to_owned()),
                "event" => value.clone_into(&mut self.partial.event),
                "data" => {
                    if !self.partial.data.is_empty() {
                        self.partial.data.push('\n');
                    }
                    self.partial.data.push_str(value);
                }
                // A comment, or a field that a later version adds.
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_decode_the_same_however_the_bytes_are_split() {
        let text = b": still here\nid: a-1\n\nid: a-2\r\nevent: item.completed\r\ndata: {\"x\":\ndata:1}\n\nretry: 5\n";
        for size in [1, 2, 7, text.len()] {
            let mut decoder = Decoder::default();
            let mut events = Vec::new();
            for piece in text.chunks(size) {
                decoder.push(piece).unwrap();
                events.extend(std::iter::from_fn(|| decoder.next()));
            }
            let first = ServerSentEvent { id: Some("a-1".to_owned()), ..ServerSentEvent::default() };
            let second = ServerSentEvent {
                id: Some("a-2".to_owned()),
                event: "item.completed".to_owned(),
                data: "{\"x\":\n1}".to_owned(),
            };
            assert_eq!(events, [first, second], "{size}");
        }
    }

    #[test]
    fn a_line_without_an_end_is_not_buffered_for_ever() {
        let mut decoder = Decoder::default();
        let piece = vec![b'x'; LINE_BYTES_MAX];
        decoder.push(&piece).unwrap();
        assert!(decoder.push(&piece).is_err());
    }
}
