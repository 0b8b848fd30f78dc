//! What can go wrong for who queues and waits.

use crate::codec::CodecError;
use crate::ports::PortError;

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
    /// The program asks for something that cannot work.
    #[error("{0}")]
    Configuration(String),
}
