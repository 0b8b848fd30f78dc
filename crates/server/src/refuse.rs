//! How a call that was not carried out is answered. Only here are responses to errors chosen.

use crate::auth::Failed;
use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use towline_api::{Code, ErrorBody, PROBLEM_JSON, Problem};
use towline_buffers::BufferError;
use towline_domain::Refusal;
use towline_store::StoreError;

/// Boxed: the good way is the common one.
#[derive(Debug)]
pub(crate) struct Refused(Box<Inner>);

#[derive(Debug)]
struct Inner {
    code: Code,
    problem: Problem,
    retry_after: u64,
    failed: Option<Failed>,
}

impl Refused {
    pub(crate) fn new(code: Code, detail: impl Into<String>) -> Refused {
        Refused::of(code, Problem::new(code, detail))
    }

    fn of(code: Code, problem: Problem) -> Refused {
        Refused(Box::new(Inner { code, problem, retry_after: 1, failed: None }))
    }

    /// In so many seconds it may go well.
    pub(crate) fn retry_after(mut self, seconds: u64) -> Refused {
        self.0.retry_after = seconds;
        self
    }

    /// What was wrong with the token.
    pub(crate) fn after(mut self, failed: Failed) -> Refused {
        self.0.failed = Some(failed);
        self
    }

    /// As the last word of an answer that was begun.
    pub(crate) fn problem(&self) -> &Problem {
        &self.0.problem
    }

    /// As one element of an answer to many.
    pub(crate) fn element(self) -> ErrorBody {
        let Problem { code, detail, .. } = self.0.problem;
        ErrorBody { code, message: detail }
    }
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Refused {
        Refused::of(Code::of(&refusal), (&refusal).into())
    }
}

impl From<StoreError> for Refused {
    fn from(fault: StoreError) -> Refused {
        let code = match &fault {
            StoreError::BatchTooLarge { .. } => Code::TooLarge,
            StoreError::Busy { .. } => Code::Busy,
            StoreError::Full { .. } => Code::DiskFull,
            StoreError::Corrupt { .. } => Code::Damaged,
            StoreError::Poisoned { .. } | StoreError::Closed | StoreError::Unavailable { .. } => {
                Code::Unavailable
            }
        };
        if code.status() >= 500 {
            tracing::error!(code = code.name(), "{fault}");
        }
        Refused::new(code, fault.to_string())
    }
}

impl From<BufferError> for Refused {
    fn from(error: BufferError) -> Refused {
        let code = match &error {
            BufferError::BadId { .. } | BufferError::BadMeta { .. } | BufferError::BadWriter { .. } => {
                Code::Invalid
            }
            BufferError::ChunkSize { bytes: 0, .. } => Code::Invalid,
            BufferError::ChunkSize { .. } | BufferError::TooManyChunks { .. } => Code::TooLarge,
            BufferError::NotFound { .. } => Code::BufferNotFound,
            BufferError::Exists { .. } => Code::BufferExists,
            BufferError::BeingWritten { .. } | BufferError::AlreadyWritten { .. } => Code::BufferWritten,
            BufferError::Failed { .. } => Code::BufferFailed,
            BufferError::NotBegun { .. } | BufferError::NotComplete { .. } | BufferError::NotYet { .. } => {
                Code::BufferNotReady
            }
            BufferError::WrongHash { .. } => Code::HashMismatch,
            BufferError::ChunkConflict { .. }
            | BufferError::ChunkTooFar { .. }
            | BufferError::ChainBroken { .. }
            | BufferError::ChunkMissing { .. }
            | BufferError::TotalsDiffer { .. } => Code::ChunkRefused,
            BufferError::RangeOutside { .. } => Code::RangeNotSatisfiable,
            BufferError::NotSupported { .. } => Code::NotSupported,
            BufferError::Unavailable { .. } => Code::StorageUnavailable,
            BufferError::Full { .. } => Code::DiskFull,
            BufferError::Damaged { .. } => Code::Damaged,
            _ => Code::Internal,
        };
        if code.status() >= 500 {
            tracing::error!(code = code.name(), "{error}");
        }
        Refused::new(code, error.to_string())
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let Inner { code, problem, retry_after, failed } = *self.0;
        let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        // A struct of strings always has a JSON form.
        let body = serde_json::to_vec(&problem).unwrap_or_default();
        let mut response =
            (status, [(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON))], body).into_response();
        if matches!(status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS) {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(retry_after));
        }
        let challenge = match failed {
            Some(Failed::BadToken) => Some("Bearer realm=\"towline\", error=\"invalid_token\""),
            Some(Failed::Scope) => Some("Bearer realm=\"towline\", error=\"insufficient_scope\""),
            None if status == StatusCode::UNAUTHORIZED => Some("Bearer realm=\"towline\""),
            None => None,
        };
        if let Some(challenge) = challenge {
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
        }
        // For the audit log.
        response.extensions_mut().insert(code);
        response
    }
}
