//! Faults of the database as the store's faults.

use std::error::Error as _;
use tokio_postgres::Error;
use tokio_postgres::error::SqlState;
use towline_store::StoreError;

/// How an attempt at a batch ended without an answer.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Somebody else came first: the same again sees what they did.
    Conflict(String),
    /// The connection is gone; whether a commit that was under way took place is not known.
    Lost(String),
    Fault(StoreError),
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Failure {
        Failure::Fault(error)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let Some(code) = error.code() else {
            return match error.is_closed()
                || error.source().is_some_and(|source| source.is::<std::io::Error>())
            {
                true => Failure::Lost(describe(&error)),
                false => Failure::Fault(StoreError::Unavailable { cause: describe(&error) }),
            };
        };
        match *code {
            SqlState::UNIQUE_VIOLATION
            | SqlState::T_R_DEADLOCK_DETECTED
            | SqlState::T_R_SERIALIZATION_FAILURE => Failure::Conflict(describe(&error)),
            SqlState::ADMIN_SHUTDOWN | SqlState::CRASH_SHUTDOWN | SqlState::CANNOT_CONNECT_NOW => {
                Failure::Lost(describe(&error))
            }
            _ => Failure::Fault(fault(&error)),
        }
    }
}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> StoreError {
        match failure {
            Failure::Conflict(cause) | Failure::Lost(cause) => StoreError::Unavailable { cause },
            Failure::Fault(error) => error,
        }
    }
}

/// The fault that an error of the database stands for.
pub(crate) fn fault(error: &Error) -> StoreError {
    match error.code() {
        Some(&SqlState::DISK_FULL) => StoreError::Full { detail: describe(error) },
        Some(&SqlState::DATA_CORRUPTED | &SqlState::INDEX_CORRUPTED) => {
            StoreError::Corrupt { file: "the database".to_owned(), what: describe(error) }
        }
        Some(&SqlState::TOO_MANY_CONNECTIONS) => {
            let cause = format!("{}; raise max_connections, or run fewer servers", describe(error));
            StoreError::Unavailable { cause }
        }
        _ => StoreError::Unavailable { cause: describe(error) },
    }
}

/// What the database said, not only that it said something.
pub(crate) fn describe(error: &Error) -> String {
    match error.as_db_error() {
        Some(said) => format!("{} ({})", said.message(), said.code().code()),
        None => match error.source() {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        },
    }
}

/// A row that cannot be what this store wrote.
pub(crate) fn damaged(row: impl std::fmt::Display, what: impl std::fmt::Display) -> StoreError {
    StoreError::Corrupt { file: format!("row {row}"), what: what.to_string() }
}
