//! The errors of submitting work and of waiting for it.

use crate::codec::CodecError;
use crate::ports::PortError;
use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error(transparent)]
    Port(#[from] PortError),
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// The work failed.
    #[error("{kind} {id} failed: {error}")]
    Failed { id: String, kind: String, error: String },
    /// The work completed without a result, or it submitted other work that has one.
    #[error("{id} completed without a result; return one, or wait for its group")]
    NoResult { id: String },
    /// The queue was full for the whole time that [`crate::Builder::backpressure`] allows a submitter to wait.
    #[error("the queue still held {limit} waiting items after {wait:?}; start more workers, or submit later")]
    QueueFull { limit: u64, wait: Duration },
    /// The program asked for something that cannot work.
    #[error("{0}")]
    Configuration(String),
}
