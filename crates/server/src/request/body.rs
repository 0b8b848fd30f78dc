//! Request bodies: read within limits, and decoded by content type.
//!
//! The memory of a body counts against `bodies_bytes_max` while it arrives, while it is decoded and until its route ends. While
//! it is decoded, [`DecodeBudget`] reserves what is built, not what was sent: a list of empty objects takes a hundred times
//! the memory of its text.

use super::body_stream::BodyStream;
use super::excerpt;
use super::room::BodyMemory;
use crate::app::App;
use crate::response::{ProblemResponse, run_blocking_if_large};
use axum::extract::{FromRequest, Request};
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use serde::de::DeserializeOwned;
use std::cell::{Cell, RefCell};
use towline_api::{Code, DecodeBudget, DecodeError, Format};

/// A decoded body may take this many times the memory of the largest body that the server accepts...
const DECODED_TIMES_MAX: usize = 4;
/// ...or this much, so that the largest batch of empty elements fits even if bodies must be small.
const DECODED_BYTES_MIN: usize = 16 << 20;

/// The body of a request, decoded, and the memory reserved for it. A route that binds only the first field still holds the
/// memory until it ends.
pub(crate) struct DecodedBody<T>(pub(crate) T, pub(crate) BodyMemory);

impl<T: DeserializeOwned + Send> FromRequest<App> for DecodedBody<T> {
    type Rejection = ProblemResponse;

    async fn from_request(request: Request, app: &App) -> Result<DecodedBody<T>, ProblemResponse> {
        let format = format(request.headers())?;
        let (body, mut memory) = BodyStream::new(request, app, app.body_bytes_max)?.joined().await?;
        let format = match format {
            Some(format) => format,
            None if body.is_empty() => Format::Json,
            None => {
                let detail = "the body has no content type; send content-type: application/json or application/msgpack";
                return Err(ProblemResponse::new(Code::UnsupportedMediaType, detail));
            }
        };
        loop {
            let decoding = Decoding { app, format, body: &body, memory };
            match run_blocking_if_large(body.len(), || decoding.run()) {
                Ok(decoded) => return Ok(decoded),
                Err(Undecoded::Refused(problem)) => return Err(problem),
                Err(Undecoded::NoMemory { held, wanted }) => {
                    // Decoding cannot wait until slow bodies are cut, so it starts again when they are.
                    memory = held;
                    memory.grow(body.len(), wanted.saturating_mul(2)).await?;
                }
            }
        }
    }
}

struct Decoding<'a> {
    app: &'a App,
    format: Format,
    body: &'a [u8],
    memory: BodyMemory,
}

enum Undecoded {
    Refused(ProblemResponse),
    NoMemory { held: BodyMemory, wanted: usize },
}

impl Decoding<'_> {
    fn run<T: DeserializeOwned>(self) -> Result<DecodedBody<T>, Undecoded> {
        let Decoding { app, format, body, memory } = self;
        let (memory, wanted) = (RefCell::new(memory), Cell::new(0));
        let reserve = |bytes| {
            wanted.set(bytes);
            memory.borrow_mut().try_grow(body.len(), bytes)
        };
        let bytes_max = app.body_bytes_max.saturating_mul(DECODED_TIMES_MAX).max(DECODED_BYTES_MIN);
        let budget = DecodeBudget::new(bytes_max, &reserve);
        let decoded = format.decode_within(body, &budget);
        let built = budget.used();
        let mut memory = memory.into_inner();
        match decoded {
            Ok(decoded) => {
                memory.keep_decoded(built);
                Ok(DecodedBody(decoded, memory))
            }
            Err(DecodeError::NoMemory) => Err(Undecoded::NoMemory { held: memory, wanted: wanted.get() }),
            Err(error) => Err(Undecoded::Refused(error.into())),
        }
    }
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
