//! Encodes responses in the format that the client asked for.

use super::ProblemResponse;
use axum::extract::FromRequestParts;
use axum::response::{IntoResponse, Response};
use http::header::{ACCEPT, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue};
use serde::Serialize;
use std::convert::Infallible;
use towline_api::{Code, Format};

/// Larger bodies are encoded and decoded with [`tokio::task::block_in_place`], so that they do not block other tasks.
const LARGE_BYTES: usize = 1 << 20;

/// Responds in the format named by `Accept`, or else in the format of the request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Responder(pub(crate) Format);

impl Responder {
    pub(crate) fn of(headers: &HeaderMap) -> Responder {
        let accepted = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("*/*");
        let named = accepted.split(',').find_map(Format::of);
        let sent = || headers.get(CONTENT_TYPE).and_then(|value| Format::of(value.to_str().ok()?));
        Responder(named.or_else(sent).unwrap_or_default())
    }

    pub(crate) fn with<T: Serialize>(self, value: &T) -> Result<Response, ProblemResponse> {
        let body =
            self.0.encode(value).map_err(|error| ProblemResponse::new(Code::Internal, error.to_string()))?;
        Ok(([(CONTENT_TYPE, HeaderValue::from_static(self.0.content_type()))], body).into_response())
    }

    /// Responds with a list of `elements` elements.
    pub(crate) fn with_many<T: Serialize>(
        self,
        value: &T,
        elements: usize,
    ) -> Result<Response, ProblemResponse> {
        // Assumes 256 bytes an element.
        run_blocking_if_large(elements * 256, || self.with(value))
    }
}

impl<S: Sync> FromRequestParts<S> for Responder {
    type Rejection = Infallible;
    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Responder, Infallible> {
        Ok(Responder::of(&parts.headers))
    }
}

/// Runs work on this many bytes. Large work does not block other tasks.
pub(crate) fn run_blocking_if_large<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    if bytes > LARGE_BYTES { tokio::task::block_in_place(work) } else { work() }
}
