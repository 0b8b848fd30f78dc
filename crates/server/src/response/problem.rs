//! Error responses in the format `application/problem+json`. Only this file maps errors to codes and statuses.

use crate::auth::AuthChallenge;
use crate::transfer::TransferError;
use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use towline_api::{Code, DecodeError, ErrorBody, PROBLEM_JSON, Problem};
use towline_broker::AccessError;
use towline_buffers::BufferError;
use towline_compute::ComputeError;
use towline_domain::Refusal;
use towline_store::{OperationError, StoreError};

/// Boxed, so that `Result`s of routes stay small.
#[derive(Debug)]
pub(crate) struct ProblemResponse(Box<Inner>);

#[derive(Debug)]
struct Inner {
    code: Code,
    problem: Problem,
    retry_after: u64,
    challenge: Option<AuthChallenge>,
}

impl ProblemResponse {
    pub(crate) fn new(code: Code, detail: impl Into<String>) -> ProblemResponse {
        ProblemResponse::of(code, Problem::new(code, detail))
    }

    fn of(code: Code, problem: Problem) -> ProblemResponse {
        ProblemResponse(Box::new(Inner { code, problem, retry_after: 1, challenge: None }))
    }

    /// Sets the `Retry-After` header.
    pub(crate) fn retry_after(mut self, seconds: u64) -> ProblemResponse {
        self.0.retry_after = seconds;
        self
    }

    /// Says first what the failed call did.
    pub(crate) fn prefixed(mut self, done: &str) -> ProblemResponse {
        self.0.problem.detail = format!("{done}: {}", self.0.problem.detail);
        self
    }

    /// Sets the error in the `WWW-Authenticate` header.
    pub(crate) fn with_challenge(mut self, challenge: AuthChallenge) -> ProblemResponse {
        self.0.challenge = Some(challenge);
        self
    }

    /// The problem itself, for the end of a stream.
    pub(crate) fn problem(&self) -> &Problem {
        &self.0.problem
    }

    pub(crate) fn code(&self) -> Code {
        self.0.code
    }

    pub(crate) fn into_code_and_detail(self) -> (Code, String) {
        (self.0.code, self.0.problem.detail)
    }

    /// The error of one element of a batch.
    pub(crate) fn into_element_error(self) -> ErrorBody {
        let Problem { code, detail, .. } = self.0.problem;
        ErrorBody { code, message: detail }
    }
}

impl From<Refusal> for ProblemResponse {
    fn from(refusal: Refusal) -> ProblemResponse {
        ProblemResponse::of(Code::of(&refusal), (&refusal).into())
    }
}

impl From<OperationError> for ProblemResponse {
    fn from(error: OperationError) -> ProblemResponse {
        match error {
            OperationError::Refused(refusal) => refusal.into(),
            OperationError::Failed(fault) => fault.into(),
        }
    }
}

impl From<ComputeError> for ProblemResponse {
    fn from(error: ComputeError) -> ProblemResponse {
        match (error.code(), error) {
            (_, ComputeError::Operation(error)) => error.into(),
            (_, ComputeError::Buffer(error)) => error.into(),
            (code, error) => ProblemResponse::new(code.unwrap_or(Code::Internal), error.to_string()),
        }
    }
}

impl From<AccessError> for ProblemResponse {
    fn from(error: AccessError) -> ProblemResponse {
        match error {
            AccessError::Buffer(error) => error.into(),
            AccessError::Store(fault) => fault.into(),
        }
    }
}

impl From<StoreError> for ProblemResponse {
    fn from(fault: StoreError) -> ProblemResponse {
        let code = Code::parse(fault.code()).unwrap_or(Code::Internal);
        if code.status() >= 500 {
            tracing::error!(code = code.name(), "{fault}");
        }
        ProblemResponse::new(code, fault.to_string())
    }
}

impl From<TransferError> for ProblemResponse {
    fn from(error: TransferError) -> ProblemResponse {
        let detail = error.to_string();
        let code = match error {
            TransferError::Refused { line, error } => {
                return ProblemResponse::from(error).prefixed(&format!("line {line} of the export"));
            }
            TransferError::Store(fault) => return fault.into(),
            TransferError::Request { code, .. } => code,
            TransferError::NotEmpty(_) | TransferError::HasTokens => Code::StoreNotEmpty,
            TransferError::Line { .. } => Code::Invalid,
            TransferError::NoPlace(_) => Code::NotSupported,
            TransferError::Payload { .. } => Code::StorageUnavailable,
            // Of the command `towline import` without a server.
            TransferError::Open(_)
            | TransferError::Output(_)
            | TransferError::Input(_)
            | TransferError::NoStore(_) => Code::Internal,
        };
        ProblemResponse::new(code, detail)
    }
}

impl From<DecodeError> for ProblemResponse {
    fn from(error: DecodeError) -> ProblemResponse {
        let code = match error {
            DecodeError::Malformed(_) => Code::MalformedBody,
            DecodeError::ListTooLong { .. } | DecodeError::TooLarge { .. } => Code::TooLarge,
            DecodeError::NoMemory => Code::Busy,
        };
        ProblemResponse::new(code, error.to_string())
    }
}

impl From<BufferError> for ProblemResponse {
    fn from(error: BufferError) -> ProblemResponse {
        let code = match &error {
            BufferError::BadId { .. } | BufferError::BadMeta { .. } | BufferError::BadWriter { .. } => {
                Code::Invalid
            }
            BufferError::ChunkSize { bytes: 0, .. } => Code::Invalid,
            BufferError::ChunkSize { .. } | BufferError::TooManyChunks { .. } => Code::TooLarge,
            BufferError::NotFound { .. } => Code::BufferNotFound,
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
            // The server chooses the ids of buffers, so `Exists` is a fault of the server, too.
            _ => Code::Internal,
        };
        if code.status() >= 500 {
            tracing::error!(code = code.name(), "{error}");
        }
        ProblemResponse::new(code, error.to_string())
    }
}

impl IntoResponse for ProblemResponse {
    fn into_response(self) -> Response {
        let Inner { code, problem, retry_after, challenge } = *self.0;
        let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        // Cannot fail: a struct of strings always has a JSON form.
        let body = serde_json::to_vec(&problem).unwrap_or_default();
        let mut response =
            (status, [(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON))], body).into_response();
        if matches!(status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS) {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(retry_after));
        }
        let challenge = match challenge {
            Some(AuthChallenge::InvalidToken) => Some("Bearer realm=\"towline\", error=\"invalid_token\""),
            Some(AuthChallenge::InsufficientScope) => {
                Some("Bearer realm=\"towline\", error=\"insufficient_scope\"")
            }
            None if status == StatusCode::UNAUTHORIZED => Some("Bearer realm=\"towline\""),
            None => None,
        };
        if let Some(challenge) = challenge {
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
        }
        // The audit log reads it.
        response.extensions_mut().insert(code);
        response
    }
}
