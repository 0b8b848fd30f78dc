//! Answers in the format the caller asked for.

use crate::refuse::Refused;
use axum::extract::FromRequestParts;
use axum::response::{IntoResponse, Response};
use http::header::{ACCEPT, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue};
use serde::Serialize;
use std::convert::Infallible;
use towline_api::{Code, Format};

/// Bodies larger than this are read and written aside, so that others on the same thread do not wait for them.
const ASIDE_BYTES: usize = 1 << 20;

/// The format of the answer: what `Accept` names, or the format of the request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reply(pub(crate) Format);

impl Reply {
    pub(crate) fn of(headers: &HeaderMap) -> Reply {
        let accepted = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("*/*");
        let named = accepted.split(',').find_map(Format::of);
        let sent = || headers.get(CONTENT_TYPE).and_then(|value| Format::of(value.to_str().ok()?));
        Reply(named.or_else(sent).unwrap_or_default())
    }

    pub(crate) fn with<T: Serialize>(self, value: &T) -> Result<Response, Refused> {
        let body = self.0.encode(value).map_err(|error| Refused::new(Code::Internal, error.to_string()))?;
        Ok(([(CONTENT_TYPE, HeaderValue::from_static(self.0.content_type()))], body).into_response())
    }

    /// For answers that may be long.
    pub(crate) fn with_long<T: Serialize>(self, value: &T, elements: usize) -> Result<Response, Refused> {
        // About what an element takes at least.
        aside(elements * 256, || self.with(value))
    }
}

impl<S: Sync> FromRequestParts<S> for Reply {
    type Rejection = Infallible;
    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Reply, Infallible> {
        Ok(Reply::of(&parts.headers))
    }
}

/// Runs work of this many bytes without holding up the thread's other tasks.
pub(crate) fn aside<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    if bytes > ASIDE_BYTES { tokio::task::block_in_place(work) } else { work() }
}
