//! Streamed response bodies. The HTTP library does not poll a body that the client does not read, so a separate task produces it.
//! If the client reads nothing for [`SEND_LIMIT`], the task ends and releases what it holds. Large bodies that are in memory already
//! are sent in pieces by such a task, too. They count against the memory for sending, and have a minimum pace.

use crate::request::{BodyMemory, BodyRoom, SLOW_AFTER};
use axum::body::Body;
use axum::response::IntoResponse;
use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use http::HeaderValue;
use http::header::CONTENT_LENGTH;
use http_body::Body as _;
use std::convert::Infallible;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::mpsc;

/// The body ends with an error if the client reads nothing for this long.
const SEND_LIMIT: Duration = Duration::from_secs(30);

/// Maximum time to send a body that is in memory, besides one second for each of these bytes.
const BYTES_PER_SECOND_MIN: usize = 8 << 10;

/// The source of a large part reads the next one meanwhile.
const HELD_PARTS: usize = 2;
/// A body that is not larger is given to the HTTP library as a whole.
const PIECE_BYTES: usize = 64 << 10;

type PartError = Box<dyn std::error::Error + Send + Sync>;
type Part = Result<Bytes, PartError>;

/// Why a body ends before its end.
const SILENT: &str = "the client read nothing for too long";
const TOO_SLOW: &str = "the client reads too slowly";
const NO_MEMORY: &str = "the server sends too much to slow clients; read on from here in a while";

pub(crate) fn streamed<E: Into<PartError> + Send + 'static>(
    parts: impl Stream<Item = Result<Bytes, E>> + Send + 'static,
) -> Body {
    start(Limits::default(), parts)
}

/// The same for parts that may be large, which count against this memory while they are sent. `first`: an upper bound on the size of
/// the first part.
pub(crate) fn streamed_within<E: Into<PartError> + Send + 'static>(
    memory: BodyMemory,
    first: usize,
    parts: impl Stream<Item = Result<Bytes, E>> + Send + 'static,
) -> Body {
    let memory = SendMemory { memory, held_parts: HELD_PARTS, first };
    start(Limits { memory: Some(memory), time: None }, parts)
}

/// What a body may take while it is sent.
#[derive(Default)]
struct Limits {
    memory: Option<SendMemory>,
    /// From the start to the end.
    time: Option<Duration>,
}

struct SendMemory {
    memory: BodyMemory,
    /// How many parts are in memory at one time.
    held_parts: usize,
    /// An upper bound on the size of the first part.
    first: usize,
}

fn start<E: Into<PartError> + Send + 'static>(
    limits: Limits,
    parts: impl Stream<Item = Result<Bytes, E>> + Send + 'static,
) -> Body {
    let (sender, receiver) = mpsc::channel(1);
    let cut = Arc::new(OnceLock::new());
    let set_cut = Arc::clone(&cut);
    tokio::spawn(async move {
        let Limits { memory, time } = limits;
        let too_slow = async {
            match time {
                Some(time) => tokio::time::sleep(time).await,
                None => std::future::pending().await,
            }
        };
        let cut = tokio::select! {
            forwarded = forward(parts, &sender, memory) => forwarded.err(),
            () = too_slow => Some(TOO_SLOW),
            () = sender.closed() => None,
        };
        if let Some(why) = cut {
            let _ = set_cut.set(why);
        }
    });
    Body::from_stream(stream::unfold(Some((receiver, cut)), |state| async move {
        let (mut receiver, cut) = state?;
        match receiver.recv().await {
            Some(part) => Some((part, Some((receiver, cut)))),
            // An error, so that the client does not take the body for complete.
            None => cut.get().map(|why: &&str| (Err((*why).into()), None)),
        }
    }))
}

/// Sends a large body in pieces, so that a client that does not read makes the server hold one piece of it at most. Headers with the
/// length stay as they are. `room`: the memory that it counts against meanwhile.
pub(crate) fn in_pieces(body: Body, room: &Arc<BodyRoom>) -> Body {
    let Some(bytes) = body.size_hint().exact().and_then(|bytes| usize::try_from(bytes).ok()) else {
        return body;
    };
    if bytes <= PIECE_BYTES {
        return body;
    }
    let memory = SendMemory { memory: BodyMemory::new(room), held_parts: 1, first: bytes };
    let time = SEND_LIMIT + Duration::from_secs((bytes / BYTES_PER_SECOND_MIN) as u64);
    // A body that is in memory has one frame.
    start(Limits { memory: Some(memory), time: Some(time) }, body.into_data_stream())
}

/// A body that the server keeps for further responses. Its pieces need no memory of their own, so no task produces them.
pub(crate) fn kept(whole: Bytes) -> impl IntoResponse {
    let bytes = whole.len();
    let piece = move |at| Ok::<_, Infallible>(whole.slice(at..bytes.min(at + PIECE_BYTES)));
    let pieces = stream::iter((0..bytes).step_by(PIECE_BYTES).map(piece));
    ([(CONTENT_LENGTH, HeaderValue::from(bytes))], Body::from_stream(pieces))
}

/// Ends when all parts are sent or the client has disconnected. The error says why the body ends early.
async fn forward<E: Into<PartError>>(
    parts: impl Stream<Item = Result<Bytes, E>>,
    sender: &mpsc::Sender<Part>,
    memory: Option<SendMemory>,
) -> Result<(), &'static str> {
    let mut parts = pin!(parts);
    let held_parts = memory.as_ref().map_or(0, |memory| memory.held_parts);
    let mut memory = match memory {
        // Before the first part is read: many clients may begin at the same time.
        Some(SendMemory { mut memory, first, .. }) => {
            memory.grow_within(SEND_LIMIT, held_parts * first).await.map_err(|_| NO_MEMORY)?;
            Some(memory)
        }
        None => None,
    };
    loop {
        // Before the next part is read, so that one part is held at most.
        let Some(mut place) = reserve(sender, memory.as_ref()).await? else { return Ok(()) };
        let Some(part) = parts.next().await else { return Ok(()) };
        let mut rest = match part {
            Ok(part) if part.len() > PIECE_BYTES && memory.is_some() => part,
            part => {
                place.send(part.map_err(Into::into));
                continue;
            }
        };
        if let Some(memory) = &mut memory {
            memory.set_received(SEND_LIMIT, held_parts * rest.len()).await.map_err(|_| NO_MEMORY)?;
        }
        loop {
            place.send(Ok(next_piece(&mut rest)));
            if rest.is_empty() {
                break;
            }
            match reserve(sender, memory.as_ref()).await? {
                Some(next) => place = next,
                None => return Ok(()),
            }
        }
    }
}

/// Waits until the client has read what was sent. `None`: it has disconnected. A client that is slow gives way to others that need
/// its memory.
async fn reserve<'a>(
    sender: &'a mpsc::Sender<Part>,
    memory: Option<&BodyMemory>,
) -> Result<Option<mpsc::Permit<'a, Part>>, &'static str> {
    if let Ok(place) = sender.try_reserve() {
        return Ok(Some(place));
    }
    let slow = async {
        let Some(memory) = memory else { return std::future::pending().await };
        tokio::time::sleep(SLOW_AFTER).await;
        memory.slow().cut().await;
    };
    tokio::select! {
        place = sender.reserve() => Ok(place.ok()),
        () = tokio::time::sleep(SEND_LIMIT) => Err(SILENT),
        () = slow => Err(NO_MEMORY),
    }
}

/// A copy: a slice would keep all of it in memory.
fn next_piece(rest: &mut Bytes) -> Bytes {
    Bytes::copy_from_slice(&rest.split_to(rest.len().min(PIECE_BYTES)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Parts that know whether they are still held.
    fn parts(count: usize) -> (Arc<()>, impl Stream<Item = Result<Bytes, Infallible>> + Send + 'static) {
        let held = Arc::new(());
        let copy = Arc::clone(&held);
        let parts = stream::iter(0..count).map(move |_| {
            let _held = &copy;
            Ok(Bytes::from_static(b"part"))
        });
        (held, parts)
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_is_not_read_releases_its_source_and_ends_with_an_error() {
        let (held, parts) = parts(10);
        let mut body = streamed(parts);
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "part");
        tokio::time::sleep(2 * SEND_LIMIT).await;
        assert_eq!(Arc::strong_count(&held), 1);
        assert!(body.collect().await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_is_read_slowly_is_complete() {
        let (held, parts) = parts(10);
        let mut body = streamed(parts);
        let mut bytes = 0;
        while let Some(frame) = body.frame().await {
            bytes += frame.unwrap().into_data().unwrap().len();
            tokio::time::sleep(SEND_LIMIT / 2).await;
        }
        assert_eq!((bytes, Arc::strong_count(&held)), (40, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_disconnects_releases_the_source() {
        let (held, waiting) = parts(1);
        let body = streamed(waiting.chain(stream::pending()));
        drop(body);
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(Arc::strong_count(&held), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_large_body_that_is_not_read_is_released() {
        /// Memory that knows whether it is still held.
        struct Held {
            _memory: Arc<()>,
            content: Vec<u8>,
        }
        impl AsRef<[u8]> for Held {
            fn as_ref(&self) -> &[u8] {
                &self.content
            }
        }
        let content: Vec<u8> = (0..5 * PIECE_BYTES + 7).map(|n| (n / 1000) as u8).collect();
        let held = Arc::new(());
        let body =
            || Body::from(Bytes::from_owner(Held { _memory: Arc::clone(&held), content: content.clone() }));
        let room = BodyRoom::new(8 << 20);
        let read = in_pieces(body(), &room).collect().await.unwrap().to_bytes();
        assert!(read == content && Arc::strong_count(&held) == 1);

        let mut unread = in_pieces(body(), &room);
        let first = unread.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(first.len(), PIECE_BYTES);
        tokio::time::sleep(2 * SEND_LIMIT).await;
        assert_eq!(Arc::strong_count(&held), 1, "the server holds no more than pieces");
        assert!(unread.collect().await.is_err());
        assert_eq!(in_pieces(Body::from("small"), &room).size_hint().exact(), Some(5));
    }

    #[tokio::test(start_paused = true)]
    async fn a_large_body_counts_against_the_memory_until_it_is_sent() {
        let room = BodyRoom::new(1 << 20);
        let held = || room.bytes().0;
        let mut body = in_pieces(Body::from(vec![7; 512 << 10]), &room);
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap().len(), PIECE_BYTES);
        assert_eq!(held(), 448 << 10, "the first 64 KiB of each body are not counted");
        assert_eq!(body.collect().await.unwrap().to_bytes().len(), 448 << 10);
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(held(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_large_body_has_a_minimum_pace() {
        let room = BodyRoom::new(8 << 20);
        let content = vec![7; 20 * PIECE_BYTES];
        for (seconds_per_piece, is_whole) in [(7, true), (29, false)] {
            let mut body = in_pieces(Body::from(content.clone()), &room);
            let mut bytes = 0;
            let ended = loop {
                match body.frame().await {
                    Some(Ok(frame)) => bytes += frame.into_data().unwrap().len(),
                    Some(Err(error)) => break Err(error),
                    None => break Ok(bytes),
                }
                tokio::time::sleep(Duration::from_secs(seconds_per_piece)).await;
            };
            assert_eq!(ended.is_ok_and(|bytes| bytes == content.len()), is_whole);
        }
    }

    #[tokio::test]
    async fn the_pieces_of_a_kept_body_are_no_copies() {
        let whole = Bytes::from(vec![7; 2 * PIECE_BYTES + 1]);
        let response = kept(whole.clone()).into_response();
        assert_eq!(response.headers()[CONTENT_LENGTH], whole.len().to_string());
        let mut pieces = Vec::new();
        let mut body = in_pieces(response.into_body(), &BodyRoom::new(0));
        while let Some(frame) = body.frame().await {
            pieces.push(frame.unwrap().into_data().unwrap());
        }
        assert_eq!(pieces.iter().map(Bytes::len).collect::<Vec<_>>(), [PIECE_BYTES, PIECE_BYTES, 1]);
        assert!(pieces.iter().all(|piece| whole.as_ptr_range().contains(&piece.as_ptr())));
    }

    #[tokio::test(start_paused = true)]
    async fn clients_that_do_not_read_share_the_memory_and_give_way_to_others() {
        const PART: usize = 256 << 10;
        let room = BodyRoom::new(1 << 20);
        let read = Arc::new(AtomicUsize::new(0));
        let start = || {
            let count = Arc::clone(&read);
            let parts = stream::iter(0..3).map(move |_| {
                count.fetch_add(1, Ordering::Relaxed);
                Ok::<_, Infallible>(Bytes::from(vec![7; PART]))
            });
            streamed_within(BodyMemory::new(&room), PART, parts)
        };
        let mut silent: Vec<Body> = (0..20).map(|_| start()).collect();
        for body in &mut silent[..2] {
            assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap().len(), PIECE_BYTES);
        }
        // Two fit into the memory. The others wait for it, and so does a client that reads.
        tokio::time::sleep(2 * SLOW_AFTER).await;
        assert_eq!(read.load(Ordering::Relaxed), 2);
        let bytes = start().collect().await.unwrap().to_bytes().len();
        assert_eq!(bytes, 3 * PART, "the silent clients give way");
        tokio::time::sleep(4 * SEND_LIMIT).await;
        for body in silent {
            assert!(body.collect().await.is_err());
        }
        assert!(
            read.load(Ordering::Relaxed) <= 20 + 3,
            "the server reads at most one part for a silent client"
        );
        let all = start().collect().await.unwrap().to_bytes().len();
        assert_eq!(all, 3 * PART, "all memory is free again");
    }
}
