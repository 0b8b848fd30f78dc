//! Request bodies: read within limits, decoded by content type.

use crate::answer::aside;
use crate::app::{App, ROOM_BYTES};
use crate::refuse::Refused;
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
struct Room {
    taken: Option<OwnedSemaphorePermit>,
    bytes: usize,
}

impl Room {
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

async fn read(request: Request, app: &App) -> Result<(Bytes, Room), Refused> {
    let max = app.body_bytes_max;
    let mut room = Room { taken: None, bytes: 0 };
    let length =
        request.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    let expected = match length {
        Some(length) if length > max as u64 => return Err(too_large(length, max)),
        Some(length) => usize::try_from(length).unwrap_or(max),
        None => 0,
    };
    room.grow(&app.room, app.room_pieces, expected)?;
    let mut body = request.into_body();
    let mut first = Bytes::new();
    let mut whole = BytesMut::new();
    loop {
        let frame = match tokio::time::timeout(SILENCE_MAX, body.frame()).await {
            Err(_) => {
                let detail = format!("nothing came for {} s; send the body in one go", SILENCE_MAX.as_secs());
                return Err(Refused::new(Code::RequestTimeout, detail));
            }
            Ok(None) => break,
            Ok(Some(Err(error))) => {
                return Err(Refused::new(Code::MalformedBody, format!("the body broke off: {error}")));
            }
            Ok(Some(Ok(frame))) => frame,
        };
        let Ok(data) = frame.into_data() else { continue };
        if first.is_empty() && whole.is_empty() {
            // Most bodies come in one piece, and need no copy.
            first = data;
            continue;
        }
        let length = first.len() + whole.len() + data.len();
        if length > max {
            return Err(too_large(format!("more than {max}"), max));
        }
        room.grow(&app.room, app.room_pieces, length)?;
        if whole.is_empty() {
            whole.reserve(expected.max(length));
            whole.extend_from_slice(&std::mem::take(&mut first));
        }
        whole.extend_from_slice(&data);
    }
    let body = if whole.is_empty() { first } else { whole.freeze() };
    if body.len() > max {
        return Err(too_large(body.len(), max));
    }
    Ok((body, room))
}
