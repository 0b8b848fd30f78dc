//! Faults: the store could not answer. A refusal, in contrast, is an answer.

use towline_domain::Refusal;

/// Cloneable, because one fault fails every caller in the batch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    #[error("{given} {what} in one call; at most {max} are allowed, split the call")]
    BatchTooLarge { what: &'static str, given: usize, max: usize },
    #[error("the store has {waiting} requests waiting, its limit; try again shortly")]
    Busy { waiting: usize },
    #[error("the store stopped taking requests after a failure: {cause}; reopen it")]
    Poisoned { cause: String },
    #[error("the store is closed")]
    Closed,
    #[error("no space left: {detail}; free some and try again")]
    Full { detail: String },
    #[error("{file} is damaged: {what}; run `towline doctor` on the directory")]
    Corrupt { file: String, what: String },
    #[error("the store cannot be reached: {cause}; try again later")]
    Unavailable { cause: String },
    #[error("object storage cannot be used: {cause}; try again later")]
    ObjectStorage { cause: String },
    /// A payload that is kept in object storage is lost, or is not what was stored.
    #[error("{detail}")]
    PayloadDamaged { detail: String },
}

impl StoreError {
    /// The stable code that clients match on.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            StoreError::BatchTooLarge { .. } => "too_large",
            StoreError::Busy { .. } => "busy",
            StoreError::Full { .. } => "disk_full",
            StoreError::Corrupt { .. } | StoreError::PayloadDamaged { .. } => "damaged",
            StoreError::Poisoned { .. } | StoreError::Closed | StoreError::Unavailable { .. } => {
                "unavailable"
            }
            StoreError::ObjectStorage { .. } => "storage_unavailable",
        }
    }

    /// Limits the list of a call.
    pub fn check_size(what: &'static str, given: usize, max: usize) -> Result<(), StoreError> {
        if given > max {
            return Err(StoreError::BatchTooLarge { what, given, max });
        }
        Ok(())
    }
}

/// Why one operation was not carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OperationError {
    /// Nothing changed.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A fault of the part of the store that this operation needs. It may have been carried out.
    #[error(transparent)]
    Failed(#[from] StoreError),
}

impl OperationError {
    /// The stable code that clients match on.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            OperationError::Refused(refusal) => refusal.code(),
            OperationError::Failed(fault) => fault.code(),
        }
    }

    /// Makes a fault of a refusal, for operations that the server needs for itself: it tries them again.
    #[must_use]
    pub fn into_fault(self) -> StoreError {
        match self {
            OperationError::Refused(refusal) => StoreError::Unavailable { cause: refusal.to_string() },
            OperationError::Failed(fault) => fault,
        }
    }

    #[must_use]
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            OperationError::Refused(refusal) => Some(refusal),
            OperationError::Failed(_) => None,
        }
    }
}
