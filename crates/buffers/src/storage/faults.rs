//! From the errors of storage to ours: full, misconfigured, or out of reach.

use std::error::Error;
use std::io;

use object_store::Error as StoreError;

use crate::BufferError;

/// The longest cause that is passed on: services answer with whole pages.
const CAUSE_LEN_MAX: usize = 400;

/// What is being done to which buffer or blob, for the message of a fault.
#[derive(Debug, Clone, Copy)]
pub(crate) struct At<'a> {
    pub doing: &'static str,
    pub id: &'a str,
}

impl<'a> At<'a> {
    pub fn new(doing: &'static str, id: &'a str) -> Self {
        Self { doing, id }
    }

    pub fn damaged(self, what: impl Into<String>) -> BufferError {
        BufferError::Damaged { id: self.id.to_owned(), what: what.into() }
    }

    /// Said to exist and then not found: the storage is between two states, and will settle.
    pub fn unsettled(self) -> BufferError {
        self.unavailable("an object was refused as existing, and then was not there".to_owned())
    }

    pub fn io(self, error: &io::Error) -> BufferError {
        if is_full(error) {
            return BufferError::Full { doing: self.doing, id: self.id.to_owned() };
        }
        self.unavailable(error.to_string())
    }

    fn unavailable(self, cause: String) -> BufferError {
        let cause = cause.chars().take(CAUSE_LEN_MAX).collect();
        BufferError::Unavailable { doing: self.doing, id: self.id.to_owned(), cause }
    }
}

pub(super) fn fault(at: At<'_>, error: StoreError) -> BufferError {
    if causes(&error).filter_map(|cause| cause.downcast_ref::<io::Error>()).any(is_full) {
        return BufferError::Full { doing: at.doing, id: at.id.to_owned() };
    }
    match error {
        StoreError::PermissionDenied { .. }
        | StoreError::Unauthenticated { .. }
        | StoreError::NotImplemented { .. }
        | StoreError::NotSupported { .. } => BufferError::Misconfigured {
            problem: format!("{} \"{}\": {error}", at.doing, at.id).chars().take(CAUSE_LEN_MAX).collect(),
        },
        // A plain get answers a missing object with `None`; here a bucket or directory is missing.
        other => at.unavailable(other.to_string()),
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error: &&'a (dyn Error + 'static)| (*error).source())
}
