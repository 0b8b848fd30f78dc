//! [`BufferError`]: every error of this crate. A message says what is wrong, with which buffer, and what to do.

/// [`Unavailable`](BufferError::Unavailable), [`Damaged`](BufferError::Damaged), [`Full`](BufferError::Full) and
/// [`Misconfigured`](BufferError::Misconfigured) are faults ([`is_fault`](BufferError::is_fault)). All other
/// errors are refusals: answers to the client.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BufferError {
    #[error(
        "\"{id}\" is not a buffer id: use 1 to 240 of A-Z a-z 0-9 . _ -, starting with a letter or digit"
    )]
    BadId { id: String },
    #[error("{what} of buffer \"{id}\": {problem}")]
    BadMeta { id: String, what: &'static str, problem: String },
    #[error("a text of {len} bytes is not a writer id: give 128 random bits as 32 hexadecimal digits")]
    BadWriter { len: usize },
    #[error("\"{text}\" is not a location for buffers: {problem}; give a directory or s3://bucket/prefix")]
    BadLocation { text: String, problem: &'static str },

    #[error("there is no buffer \"{id}\"; create it, or check whether it expired or was deleted")]
    NotFound { id: String },
    #[error("buffer \"{id}\" exists already, or its data is still being deleted; choose another id")]
    Exists { id: String },
    #[error(
        "overwrite refused: buffer \"{id}\" is being written by another writer; a buffer has one writer: create another buffer"
    )]
    BeingWritten { id: String },
    #[error(
        "overwrite refused: buffer \"{id}\" was written already; a buffer is written once: create another buffer"
    )]
    AlreadyWritten { id: String },
    #[error(
        "buffer \"{id}\" failed: {reason}; write another buffer, and discard the data read from this one"
    )]
    Failed { id: String, reason: String },
    #[error("buffer \"{id}\" has no writer yet; begin before sending chunks")]
    NotBegun { id: String },
    #[error("buffer \"{id}\" is not complete; wait until its writer finishes it")]
    NotComplete { id: String },

    #[error("the data of chunk {n} of buffer \"{id}\" does not have the given hash; send it again")]
    WrongHash { id: String, n: u32 },
    #[error(
        "chunk {n} of buffer \"{id}\" was stored before with different content; fail the buffer and write another"
    )]
    ChunkConflict { id: String, n: u32 },
    #[error(
        "chunk {n} of buffer \"{id}\" is too far ahead: the next chunk is {next}, and at most {ahead_max} may be ahead; send it later"
    )]
    ChunkTooFar { id: String, n: u32, next: u32, ahead_max: u32 },
    #[error("chunk {n} of buffer \"{id}\" has {bytes} bytes; a chunk has 1 to {bytes_max}")]
    ChunkSize { id: String, n: u32, bytes: u64, bytes_max: u64 },
    #[error(
        "chunk {n} of buffer \"{id}\" is refused: a buffer has at most {chunks_max} chunks; use larger chunks"
    )]
    TooManyChunks { id: String, n: u32, chunks_max: u32 },
    #[error(
        "chunk {n} of buffer \"{id}\" does not continue the hash chain; fail the buffer and write another"
    )]
    ChainBroken { id: String, n: u32 },
    #[error("chunk {n} of buffer \"{id}\" is refused: {problem}; put it again")]
    BadChunk { id: String, n: u32, problem: &'static str },
    #[error("chunk {n} of buffer \"{id}\" is missing; put it (again)")]
    ChunkMissing { id: String, n: u32 },
    #[error(
        "the totals differ: buffer \"{id}\" has {chunks} chunks, {bytes} bytes and chain {chain}; correct them or fail the buffer"
    )]
    TotalsDiffer { id: String, chunks: u32, bytes: u64, chain: String },

    #[error("buffer \"{id}\" has {bytes} bytes; {start} is past its end")]
    RangeOutside { id: String, start: u64, bytes: u64 },
    #[error(
        "the writer did not store chunk {n} of buffer \"{id}\" in time; continue reading from there later"
    )]
    NotYet { id: String, n: u32 },

    #[error("there is no blob \"{key}\"; its item may be deleted")]
    BlobNotFound { key: String },
    #[error("blob \"{key}\" exists with different content; a blob is written once: choose another key")]
    BlobConflict { key: String },
    #[error("blob \"{key}\" has {bytes} bytes; at most {bytes_max} are allowed here")]
    BlobTooLarge { key: String, bytes: u64, bytes_max: u64 },

    #[error(
        "{what} is not possible with buffers in a directory; use s3://, or move the bytes through the server"
    )]
    NotSupported { what: &'static str },

    #[error("{action} \"{id}\": the storage is unavailable; try again later ({cause})")]
    Unavailable { action: &'static str, id: String, cause: String },
    #[error("{action} \"{id}\": no space left, so nothing was stored; free some space")]
    Full { action: &'static str, id: String },
    #[error("\"{id}\" is damaged: {what}; restore it from a backup or write it again")]
    Damaged { id: String, what: String },
    #[error("buffers cannot be used as configured: {problem}")]
    Misconfigured { problem: String },
}

impl BufferError {
    /// Whether the storage, the disk or the configuration is at fault, not the client's call.
    pub fn is_fault(&self) -> bool {
        matches!(
            self,
            Self::Unavailable { .. } | Self::Full { .. } | Self::Damaged { .. } | Self::Misconfigured { .. }
        )
    }
}

pub type Result<T, E = BufferError> = std::result::Result<T, E>;
