//! Why a call about compute was not carried out.

use towline_api::Code;
use towline_broker::store::{OperationError, StoreError};
use towline_buffers::BufferError;
use towline_domain::Refusal;

#[derive(Debug, thiserror::Error)]
pub enum ComputeError {
    #[error("no codespec {name:?}; create it with `towline codespec create`")]
    CodespecNotFound { name: String },
    #[error("codespec {name:?} is used by {user}; delete that first")]
    CodespecInUse { name: String, user: String },
    #[error("no run {id}; it was never created, or it was removed")]
    RunNotFound { id: String },
    #[error("no service named {name:?}; create it first")]
    ServiceNotFound { name: String },
    #[error("service {name:?} exists; delete it first, or use another name")]
    ServiceExists { name: String },
    #[error("no trigger named {name:?}; create it first")]
    TriggerNotFound { name: String },
    #[error("trigger {name:?} exists; delete it first, or use another name")]
    TriggerExists { name: String },
    #[error("queue {queue:?} has a trigger already: {trigger:?}; delete that one, or use another queue")]
    QueueHasTrigger { queue: String, trigger: String },
    /// What the call asks for does not fit the codespec or the queue.
    #[error("{0}")]
    Mismatch(String),
    #[error(transparent)]
    Operation(#[from] OperationError),
    #[error(transparent)]
    Buffer(#[from] BufferError),
}

impl ComputeError {
    /// The code of the errors that are this crate's own. The server has codes for the others.
    #[must_use]
    pub fn code(&self) -> Option<Code> {
        Some(match self {
            ComputeError::CodespecNotFound { .. } => Code::CodespecNotFound,
            ComputeError::CodespecInUse { .. } => Code::CodespecInUse,
            ComputeError::RunNotFound { .. } => Code::RunNotFound,
            ComputeError::ServiceNotFound { .. } => Code::ServiceNotFound,
            ComputeError::ServiceExists { .. } => Code::ServiceExists,
            ComputeError::TriggerNotFound { .. } => Code::TriggerNotFound,
            ComputeError::TriggerExists { .. } | ComputeError::QueueHasTrigger { .. } => Code::TriggerExists,
            ComputeError::Mismatch(_) => Code::SchemaMismatch,
            ComputeError::Operation(_) | ComputeError::Buffer(_) => return None,
        })
    }

    pub(crate) fn invalid(what: &'static str, message: impl Into<String>) -> ComputeError {
        Refusal::Invalid { what, message: message.into() }.into()
    }
}

impl From<Refusal> for ComputeError {
    fn from(refusal: Refusal) -> ComputeError {
        ComputeError::Operation(refusal.into())
    }
}

impl From<StoreError> for ComputeError {
    fn from(fault: StoreError) -> ComputeError {
        ComputeError::Operation(fault.into())
    }
}
