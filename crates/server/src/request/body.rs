//! Request bodies: read within limits, and decoded by content type.
//!
//! The memory of a body counts against `bodies_bytes_max` while it arrives, while it is decoded and until its route ends. While
//! it is decoded, [`DecodeBudget`] reserves what is built, not what was sent: a list of empty objects takes a hundred times
//! the memory of its text.

use super::excerpt;
use crate::app::{App, BODY_MEMORY_UNIT};
use crate::response::{ProblemResponse, run_blocking_if_large};
use axum::body::Body;
use axum::extract::{FromRequest, Request};
use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;
use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use towline_api::{Code, DecodeBudget, DecodeError, Format};

/// The request fails if the client sends nothing for this long.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// The start of each body is not counted, because the buffer of its connection has this size anyway. As much of what is decoded
/// is not counted either, so that small calls work while the server is busy.
const FREE_BYTES: usize = 64 << 10;

/// A decoded body may take this many times the memory of the largest body that the server accepts...
const DECODED_TIMES_MAX: usize = 4;
/// ...or this much, so that the largest batch of empty elements fits even if bodies must be small.
const DECODED_BYTES_MIN: usize = 16 << 20;

/// The body of a request, decoded, and the memory reserved for it. A route that binds only the first field still holds the
/// memory until it ends.
pub(crate) struct DecodedBody<T>(
    pub(crate) T,
    #[expect(dead_code, reason = "held until the route ends")] pub(crate) BodyMemory,
);

impl<T: DeserializeOwned> FromRequest<App> for DecodedBody<T> {
    type Rejection = ProblemResponse;

    async fn from_request(request: Request, app: &App) -> Result<DecodedBody<T>, ProblemResponse> {
        let format = format(request.headers())?;
        let (body, memory) = read(request, app).await?;
        let format = match format {
            Some(format) => format,
            None if body.is_empty() => Format::Json,
            None => {
                let detail = "the body has no content type; send content-type: application/json or application/msgpack";
                return Err(ProblemResponse::new(Code::UnsupportedMediaType, detail));
            }
        };
        run_blocking_if_large(body.len(), || decode(app, format, &body, memory))
    }
}

fn decode<T: DeserializeOwned>(
    app: &App,
    format: Format,
    body: &[u8],
    memory: BodyMemory,
) -> Result<DecodedBody<T>, ProblemResponse> {
    let memory = RefCell::new(memory);
    let reserve = |bytes| memory.borrow_mut().resize(app, body.len(), bytes).is_ok();
    let bytes_max = app.body_bytes_max.saturating_mul(DECODED_TIMES_MAX).max(DECODED_BYTES_MIN);
    let budget = DecodeBudget::new(bytes_max, &reserve);
    let decoded = format.decode_within(body, &budget).map_err(undecodable)?;
    let built = budget.used();
    let mut memory = memory.into_inner();
    memory.resize(app, 0, built)?;
    Ok(DecodedBody(decoded, memory))
}

fn undecodable(error: DecodeError) -> ProblemResponse {
    let code = match &error {
        DecodeError::Malformed(_) => Code::MalformedBody,
        DecodeError::ListTooLong { .. } | DecodeError::TooLarge { .. } => Code::TooLarge,
        DecodeError::NoMemory => return busy(),
    };
    ProblemResponse::new(code, error.to_string())
}

/// The format of the body. A content type is required: pages of other sites can make a browser send a body in the formats
/// of HTML forms, but not in these.
fn format(headers: &HeaderMap) -> Result<Option<Format>, ProblemResponse> {
    let Some(value) = headers.get(CONTENT_TYPE) else { return Ok(None) };
    match value.to_str().ok().and_then(Format::of) {
        Some(format) => Ok(Some(format)),
        None => {
            let value = String::from_utf8_lossy(value.as_bytes());
            let detail =
                format!("content type {:?}; use application/json or application/msgpack", excerpt(&value));
            Err(ProblemResponse::new(Code::UnsupportedMediaType, detail))
        }
    }
}

fn too_large(bytes: impl std::fmt::Display, max: usize) -> ProblemResponse {
    let detail = format!("the body is {bytes} bytes, the maximum is {max}; split the request");
    ProblemResponse::new(Code::TooLarge, detail)
}

fn busy() -> ProblemResponse {
    ProblemResponse::new(Code::Busy, "too many large requests at the same time; try again shortly")
}

/// Memory reserved for one body, from the limit for all bodies. Dropping it releases the memory.
#[derive(Default)]
pub(crate) struct BodyMemory(Option<OwnedSemaphorePermit>);

impl BodyMemory {
    /// Reserves memory for a body of which at most `bytes` bytes are in memory at once.
    pub(crate) fn reserve(app: &App, bytes: usize) -> Result<BodyMemory, ProblemResponse> {
        let mut memory = BodyMemory::default();
        memory.resize(app, bytes, 0)?;
        Ok(memory)
    }

    /// Changes the reservation to what is in memory now: bytes as they were received, and bytes of what was decoded from them.
    fn resize(&mut self, app: &App, received: usize, decoded: usize) -> Result<(), ProblemResponse> {
        let bytes = received.saturating_sub(FREE_BYTES).saturating_add(decoded.saturating_sub(FREE_BYTES));
        let units = bytes.div_ceil(BODY_MEMORY_UNIT).min(app.body_memory_units);
        let held = self.0.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        if units < held {
            drop(self.0.as_mut().and_then(|permit| permit.split(held - units)));
        } else if units > held {
            let more = u32::try_from(units - held).unwrap_or(u32::MAX);
            let permit = Arc::clone(&app.body_memory).try_acquire_many_owned(more).map_err(|_| busy())?;
            match &mut self.0 {
                Some(held) => held.merge(permit),
                none => *none = Some(permit),
            }
        }
        Ok(())
    }
}

/// A body, frame by frame. Its size, its memory and the pauses between frames are limited.
pub(crate) struct BodyStream {
    body: Body,
    memory: BodyMemory,
    bytes: usize,
    /// The content length, if there is one.
    expected: usize,
    bytes_max: usize,
}

impl BodyStream {
    pub(crate) fn new(request: Request, app: &App, bytes_max: usize) -> Result<BodyStream, ProblemResponse> {
        let expected = match length(request.headers()) {
            Some(length) if length > bytes_max as u64 => return Err(too_large(length, bytes_max)),
            Some(length) => usize::try_from(length).unwrap_or(bytes_max),
            None => 0,
        };
        let memory = BodyMemory::reserve(app, expected)?;
        Ok(BodyStream { body: request.into_body(), memory, bytes: 0, expected, bytes_max })
    }

    pub(crate) async fn next(&mut self, app: &App) -> Result<Option<Bytes>, ProblemResponse> {
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
            self.memory.resize(app, self.bytes.max(self.expected), 0)?;
            return Ok(Some(data));
        }
    }

    /// Reads the whole body without copying it. Keep the reservation as long as the data.
    pub(crate) async fn all(mut self, app: &App) -> Result<(Vec<Bytes>, BodyMemory), ProblemResponse> {
        let mut frames = Vec::new();
        while let Some(frame) = self.next(app).await? {
            frames.push(frame);
        }
        Ok((frames, self.memory))
    }
}

fn length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok())
}

pub(crate) fn silent(time: Duration) -> ProblemResponse {
    let detail = format!("the client sent nothing for {} s; send the body without pauses", time.as_secs());
    ProblemResponse::new(Code::RequestTimeout, detail)
}

pub(crate) fn broken_off(error: &axum::Error) -> ProblemResponse {
    ProblemResponse::new(Code::MalformedBody, format!("the body is incomplete: {error}"))
}

async fn read(request: Request, app: &App) -> Result<(Bytes, BodyMemory), ProblemResponse> {
    let expected = length(request.headers()).and_then(|length| usize::try_from(length).ok()).unwrap_or(0);
    let mut stream = BodyStream::new(request, app, app.body_bytes_max)?;
    // Most bodies are one frame and need no copy.
    let Some(first) = stream.next(app).await? else { return Ok((Bytes::new(), stream.memory)) };
    let Some(second) = stream.next(app).await? else { return Ok((first, stream.memory)) };
    let mut whole = BytesMut::with_capacity(expected.max(first.len() + second.len()));
    whole.extend_from_slice(&first);
    whole.extend_from_slice(&second);
    while let Some(frame) = stream.next(app).await? {
        whole.extend_from_slice(&frame);
    }
    Ok((whole.freeze(), stream.memory))
}
