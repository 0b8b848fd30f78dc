//! Faults: the store could not answer. A refusal, in contrast, is an answer.

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
    #[error("the store cannot be reached: {cause}")]
    Unavailable { cause: String },
}

impl StoreError {
    /// Limits the list of a call.
    pub fn check_size(what: &'static str, given: usize, max: usize) -> Result<(), StoreError> {
        if given > max {
            return Err(StoreError::BatchTooLarge { what, given, max });
        }
        Ok(())
    }
}
