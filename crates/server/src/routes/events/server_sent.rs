//! Events as server-sent events.

use super::stream::{EventStream, StreamStep};
use crate::response::sse;
use bytes::Bytes;
use towline_api::EventShown;

/// About how many bytes of events are sent at once.
const CHUNK_BYTES: usize = 64 << 10;

/// The state of a stream of server-sent events.
pub(super) enum SseState {
    Start(Box<EventStream>),
    Next(Box<EventStream>),
    /// With events that are not sent yet.
    Rest(Box<EventStream>, std::vec::IntoIter<EventShown>),
    End,
}

impl SseState {
    pub(super) async fn next(self) -> Option<(Bytes, SseState)> {
        let mut out = Vec::new();
        let mut stream = match self {
            SseState::Start(stream) => {
                // Gives the client a cursor, in case it is disconnected before the first event.
                sse::keep_alive(&mut out, stream.cursor().as_deref());
                return Some((out.into(), SseState::Next(stream)));
            }
            SseState::Rest(stream, events) => return Some(SseState::encode(stream, events)),
            SseState::Next(stream) => stream,
            SseState::End => return None,
        };
        loop {
            match stream.next().await {
                StreamStep::Events(events) if events.is_empty() => {}
                StreamStep::Events(events) => return Some(SseState::encode(stream, events.into_iter())),
                StreamStep::Idle => {
                    sse::keep_alive(&mut out, stream.cursor().as_deref());
                    return Some((out.into(), SseState::Next(stream)));
                }
                StreamStep::Ended(problem) => {
                    sse::event(&mut out, None, "cut_off", &problem.problem());
                    return Some((out.into(), SseState::End));
                }
                StreamStep::TimeUp => return None,
            }
        }
    }

    /// Encodes as many events as fit into one chunk.
    fn encode(stream: Box<EventStream>, mut events: std::vec::IntoIter<EventShown>) -> (Bytes, SseState) {
        let mut out = Vec::new();
        for event in events.by_ref() {
            sse::event(&mut out, Some(&event.id), &event.kind, &event);
            if out.len() >= CHUNK_BYTES {
                break;
            }
        }
        let next = if events.len() > 0 { SseState::Rest(stream, events) } else { SseState::Next(stream) };
        (out.into(), next)
    }
}
