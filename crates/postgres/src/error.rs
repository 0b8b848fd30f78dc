//! Errors of the database as errors of the store.

use std::error::Error as _;
use tokio_postgres::Error;
use tokio_postgres::error::SqlState;
use towline_store::StoreError;

/// How an attempt at a batch failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Another transaction came first. A new attempt sees what it did.
    Conflict(String),
    /// The connection was lost. It is unknown whether a commit that was under way took place.
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

/// The store's error for an error of the database.
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

/// The message of the database, which `Display` leaves out.
pub(crate) fn describe(error: &Error) -> String {
    match error.as_db_error() {
        Some(error) => format!("{} ({})", error.message(), error.code().code()),
        None => match error.source() {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        },
    }
}

/// An error for a row that this store cannot have written.
pub(crate) fn damaged(row: impl std::fmt::Display, what: impl std::fmt::Display) -> StoreError {
    StoreError::Corrupt { file: format!("row {row}"), what: what.to_string() }
}
