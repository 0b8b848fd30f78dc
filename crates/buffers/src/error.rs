//! Every way in which a call on buffers can end badly: what was wrong, with which buffer, and what to do.

/// Refusals are answers to the caller; [`Unavailable`](BufferError::Unavailable), [`Damaged`](BufferError::Damaged),
/// [`Full`](BufferError::Full) and [`Misconfigured`](BufferError::Misconfigured) are faults
/// ([`is_fault`](BufferError::is_fault)).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BufferError {
    #[error(
        "\"{id}\" is no id of a buffer: use 1 to 240 of A-Z a-z 0-9 . _ -, beginning with a letter or digit"
    )]
    BadId { id: String },
    #[error("{what} of buffer \"{id}\": {problem}")]
    BadMeta { id: String, what: &'static str, problem: String },
    #[error("a text of {len} bytes is no writer: give 128 random bits as 32 hexadecimal digits")]
    BadWriter { len: usize },
    #[error("\"{text}\" is no place for buffers: {problem}; give a directory or s3://bucket/prefix")]
    BadLocation { text: String, problem: &'static str },

    #[error("there is no buffer \"{id}\"; create it, or look whether it expired or was deleted")]
    NotFound { id: String },
    #[error(
        "buffer \"{id}\" exists already, or what is left of it is still being removed; choose another id"
    )]
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
        "buffer \"{id}\" failed: {reason}; write another buffer, and do not use what was read of this one"
    )]
    Failed { id: String, reason: String },
    #[error("buffer \"{id}\" has no writer yet; begin before sending chunks")]
    NotBegun { id: String },
    #[error("buffer \"{id}\" is not complete; wait until its writer finished")]
    NotComplete { id: String },

    #[error("chunk {n} of buffer \"{id}\" has another hash than was said; send it again")]
    WrongHash { id: String, n: u32 },
    #[error(
        "chunk {n} of buffer \"{id}\" was stored before with another content; fail the buffer and write another"
    )]
    ChunkConflict { id: String, n: u32 },
    #[error(
        "chunk {n} of buffer \"{id}\" is too far ahead: the next is {next}, at most {ahead_max} may be ahead; send it later"
    )]
    ChunkTooFar { id: String, n: u32, next: u32, ahead_max: u32 },
    #[error("chunk {n} of buffer \"{id}\" has {bytes} bytes; a chunk has 1 to {bytes_max}")]
    ChunkSize { id: String, n: u32, bytes: u64, bytes_max: u64 },
    #[error(
        "chunk {n} of buffer \"{id}\" is one too many: a buffer has at most {chunks_max}; use larger chunks"
    )]
    TooManyChunks { id: String, n: u32, chunks_max: u32 },
    #[error(
        "chunk {n} of buffer \"{id}\" does not continue the chain of the chunks before it; fail the buffer and write another"
    )]
    ChainBroken { id: String, n: u32 },
    #[error("chunk {n} of buffer \"{id}\", as the client put it, is refused: {problem}; put it again")]
    BadChunk { id: String, n: u32, problem: &'static str },
    #[error("chunk {n} of buffer \"{id}\" is not there; put it (again)")]
    ChunkMissing { id: String, n: u32 },
    #[error(
        "buffer \"{id}\" has {chunks} chunks, {bytes} bytes and chain {chain}, not what finish said; count again or fail it"
    )]
    TotalsDiffer { id: String, chunks: u32, bytes: u64, chain: String },

    #[error("buffer \"{id}\" has {bytes} bytes; nothing is at {start}")]
    RangeOutside { id: String, start: u64, bytes: u64 },
    #[error("chunk {n} of buffer \"{id}\" did not come in the time given; read on from there later")]
    NotYet { id: String, n: u32 },

    #[error("there is no blob \"{key}\"; the item that named it may be gone")]
    BlobNotFound { key: String },
    #[error("blob \"{key}\" exists with another content; a blob is written once: choose another key")]
    BlobConflict { key: String },
    #[error("blob \"{key}\" has {bytes} bytes; at most {bytes_max} are allowed here")]
    BlobTooLarge { key: String, bytes: u64, bytes_max: u64 },

    #[error(
        "{what} is not possible with buffers in a directory; use s3://, or move the bytes through the server"
    )]
    NotSupported { what: &'static str },

    #[error("{doing} \"{id}\": the storage did not answer as it should; try again later ({cause})")]
    Unavailable { doing: &'static str, id: String, cause: String },
    #[error("{doing} \"{id}\": no space left; free some, nothing was acknowledged")]
    Full { doing: &'static str, id: String },
    #[error("\"{id}\" is damaged: {what}; restore it from a copy, or write it again")]
    Damaged { id: String, what: String },
    #[error("buffers cannot be used as configured: {problem}")]
    Misconfigured { problem: String },
}

impl BufferError {
    /// Nobody's answer: the storage, the disk or the configuration is at fault.
    pub fn is_fault(&self) -> bool {
        matches!(
            self,
            Self::Unavailable { .. } | Self::Full { .. } | Self::Damaged { .. } | Self::Misconfigured { .. }
        )
    }
}

/// What every call here answers with.
pub type Result<T, E = BufferError> = std::result::Result<T, E>;
