//! Request bodies: read within limits, decoded by content type.

use crate::answer::aside;
use crate::app::{App, ROOM_BYTES};
use crate::refuse::Refused;
use axum::body::Body;
use axum::extract::{FromRequest, Request};
use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use towline_api::{Code, Format};

/// A sender that is silent for this long is not waited for.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// Held for every body without asking for room: what a connection's buffer takes anyway.
const FREE_BYTES: usize = 64 << 10;

/// The body of a request, decoded.
pub(crate) struct Wire<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<App> for Wire<T> {
    type Rejection = Refused;

    async fn from_request(request: Request, app: &App) -> Result<Wire<T>, Refused> {
        let format = format(request.headers())?;
        let (body, _room) = read(request, app).await?;
        let format = match format {
            Some(format) => format,
            None if body.is_empty() => Format::Json,
            None => {
                let detail = "the body has no content type; say content-type: application/json, or application/msgpack";
                return Err(Refused::new(Code::UnsupportedMediaType, detail));
            }
        };
        let decoded = aside(body.len(), || format.decode(&body));
        decoded.map(Wire).map_err(|error| Refused::new(Code::MalformedBody, error.to_string()))
    }
}

/// The format must be named. A page of another site can make a browser send a body without being asked first only in
/// formats that are not ours.
fn format(headers: &HeaderMap) -> Result<Option<Format>, Refused> {
    let Some(value) = headers.get(CONTENT_TYPE) else { return Ok(None) };
    match value.to_str().ok().and_then(Format::of) {
        Some(format) => Ok(Some(format)),
        None => {
            let shown: String = String::from_utf8_lossy(value.as_bytes()).chars().take(100).collect();
            let detail = format!("content type {shown:?}; use application/json or application/msgpack");
            Err(Refused::new(Code::UnsupportedMediaType, detail))
        }
    }
}

fn too_large(bytes: impl std::fmt::Display, max: usize) -> Refused {
    let detail = format!("the body is {bytes} bytes; at most {max} are allowed, split the call");
    Refused::new(Code::TooLarge, detail)
}

/// Room taken from what all bodies share, given back when the body is done with.
pub(crate) struct Room {
    taken: Option<OwnedSemaphorePermit>,
    bytes: usize,
}

impl Room {
    /// Room for a body that is passed on in parts of which no more than so many bytes are held.
    pub(crate) fn of(app: &App, bytes: usize) -> Result<Room, Refused> {
        let mut room = Room { taken: None, bytes: 0 };
        room.grow(&app.room, app.room_pieces, bytes)?;
        Ok(room)
    }

    fn grow(&mut self, room: &Arc<Semaphore>, pieces_max: usize, bytes: usize) -> Result<(), Refused> {
        let more = bytes.saturating_sub(self.bytes.max(FREE_BYTES)).div_ceil(ROOM_BYTES);
        if more == 0 {
            return Ok(());
        }
        let pieces = u32::try_from(more.min(pieces_max)).unwrap_or(u32::MAX);
        let permit = Arc::clone(room).try_acquire_many_owned(pieces).map_err(|_| {
            Refused::new(Code::Busy, "too many large requests at one time; try again shortly")
        })?;
        match &mut self.taken {
            Some(taken) => taken.merge(permit),
            taken => *taken = Some(permit),
        }
        self.bytes = self.bytes.max(FREE_BYTES) + more * ROOM_BYTES;
        Ok(())
    }
}

/// A body as it comes: bounded in size, in the room it takes, and in silence.
pub(crate) struct Pieces {
    body: Body,
    room: Room,
    bytes: usize,
    bytes_max: usize,
}

impl Pieces {
    pub(crate) fn of(request: Request, app: &App, bytes_max: usize) -> Result<Pieces, Refused> {
        let expected = match length(request.headers()) {
            Some(length) if length > bytes_max as u64 => return Err(too_large(length, bytes_max)),
            Some(length) => usize::try_from(length).unwrap_or(bytes_max),
            None => 0,
        };
        let room = Room::of(app, expected)?;
        Ok(Pieces { body: request.into_body(), room, bytes: 0, bytes_max })
    }

    pub(crate) async fn next(&mut self, app: &App) -> Result<Option<Bytes>, Refused> {
        loop {
            let frame = match tokio::time::timeout(SILENCE_MAX, self.body.frame()).await {
                Err(_) => return Err(silent(SILENCE_MAX)),
                Ok(None) => return Ok(None),
                Ok(Some(Err(error))) => return Err(broken_off(&error)),
                Ok(Some(Ok(frame))) => frame,
            };
            let Ok(data) = frame.into_data() else { continue };
            self.bytes += data.len();
            if self.bytes > self.bytes_max {
                return Err(too_large(format!("more than {}", self.bytes_max), self.bytes_max));
            }
            self.room.grow(&app.room, app.room_pieces, self.bytes)?;
            return Ok(Some(data));
        }
    }

    /// All of it, not copied. The room is taken for as long as the second part is held.
    pub(crate) async fn all(mut self, app: &App) -> Result<(Vec<Bytes>, Room), Refused> {
        let mut pieces = Vec::new();
        while let Some(piece) = self.next(app).await? {
            pieces.push(piece);
        }
        Ok((pieces, self.room))
    }
}

fn length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok())
}

pub(crate) fn silent(time: Duration) -> Refused {
    let detail = format!("nothing came for {} s; send the body in one go", time.as_secs());
    Refused::new(Code::RequestTimeout, detail)
}

pub(crate) fn broken_off(error: &axum::Error) -> Refused {
    Refused::new(Code::MalformedBody, format!("the body broke off: {error}"))
}

async fn read(request: Request, app: &App) -> Result<(Bytes, Room), Refused> {
    let expected = length(request.headers()).and_then(|length| usize::try_from(length).ok()).unwrap_or(0);
    let mut pieces = Pieces::of(request, app, app.body_bytes_max)?;
    // Most bodies come in one piece, and need no copy.
    let Some(first) = pieces.next(app).await? else { return Ok((Bytes::new(), pieces.room)) };
    let Some(second) = pieces.next(app).await? else { return Ok((first, pieces.room)) };
    let mut whole = BytesMut::with_capacity(expected.max(first.len() + second.len()));
    whole.extend_from_slice(&first);
    whole.extend_from_slice(&second);
    while let Some(piece) = pieces.next(app).await? {
        whole.extend_from_slice(&piece);
    }
    Ok((whole.freeze(), pieces.room))
}
