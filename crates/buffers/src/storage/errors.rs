//! Converts errors of the object store and of file operations into [`BufferError`].

use std::error::Error;
use std::io;

use object_store::Error as StoreError;

use crate::BufferError;

/// The maximum length of a cause, in characters. Some services answer with whole HTML pages.
const CAUSE_LEN_MAX: usize = 400;

/// What this crate is doing to which buffer or blob, for error messages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ErrorContext<'a> {
    pub action: &'static str,
    pub id: &'a str,
}

impl<'a> ErrorContext<'a> {
    pub fn new(action: &'static str, id: &'a str) -> Self {
        Self { action, id }
    }

    pub fn damaged(self, what: impl Into<String>) -> BufferError {
        BufferError::Damaged { id: self.id.to_owned(), what: what.into() }
    }

    /// The storage said that an object exists and then did not find it. A retry can succeed.
    pub fn inconsistent(self) -> BufferError {
        self.unavailable("the storage said that an object exists, and then did not find it".to_owned())
    }

    pub fn io(self, error: &io::Error) -> BufferError {
        if is_full(error) {
            return BufferError::Full { action: self.action, id: self.id.to_owned() };
        }
        self.unavailable(error.to_string())
    }

    pub fn unavailable(self, cause: String) -> BufferError {
        let cause = cause.chars().take(CAUSE_LEN_MAX).collect();
        BufferError::Unavailable { action: self.action, id: self.id.to_owned(), cause }
    }
}

pub(super) fn convert(context: ErrorContext<'_>, error: StoreError) -> BufferError {
    if causes(&error).filter_map(|cause| cause.downcast_ref::<io::Error>()).any(is_full) {
        return BufferError::Full { action: context.action, id: context.id.to_owned() };
    }
    match error {
        StoreError::PermissionDenied { .. }
        | StoreError::Unauthenticated { .. }
        | StoreError::NotImplemented { .. }
        | StoreError::NotSupported { .. } => BufferError::Misconfigured {
            problem: format!("{} \"{}\": {error}", context.action, context.id)
                .chars()
                .take(CAUSE_LEN_MAX)
                .collect(),
        },
        // The calls return `None` for a missing object, so this `NotFound` means a missing bucket or directory.
        other => context.unavailable(other.to_string()),
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error: &&'a (dyn Error + 'static)| (*error).source())
}
