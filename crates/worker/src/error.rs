//! What can go wrong for who queues and waits.

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
    /// The work ended, and not well.
    #[error("{kind} {id} failed: {error}")]
    Failed { id: String, kind: String, error: String },
    /// It ended well without saying anything, or it queued others that do.
    #[error("{id} ended without a result; return one, or wait for its group")]
    NoResult { id: String },
    /// Too much waits, and whoever queued it has waited for as long as was said.
    #[error(
        "for {wait:?} there was no room in a queue in which {limit} may wait; start more workers, or queue it later"
    )]
    Full { limit: u64, wait: Duration },
    /// The program asks for something that cannot work.
    #[error("{0}")]
    Configuration(String),
}
