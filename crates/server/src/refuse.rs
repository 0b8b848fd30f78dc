//! How a call that was not carried out is answered. Only here are responses to errors chosen.

use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, StatusCode};
use towline_api::{Code, PROBLEM_JSON, Problem};
use towline_buffers::BufferError;
use towline_domain::Refusal;
use towline_store::StoreError;

/// Boxed: the good way is the common one.
#[derive(Debug)]
pub(crate) struct Refused(Box<Problem>);

impl Refused {
    pub(crate) fn new(code: Code, detail: impl Into<String>) -> Refused {
        Refused(Box::new(Problem::new(code, detail)))
    }
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Refused {
        Refused(Box::new((&refusal).into()))
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
        let problem = *self.0;
        let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        // A struct of strings always has a JSON form.
        let body = serde_json::to_vec(&problem).unwrap_or_default();
        let mut response =
            (status, [(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON))], body).into_response();
        if matches!(status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS) {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}
