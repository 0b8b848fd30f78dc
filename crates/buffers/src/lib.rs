//! Large objects that are read while they are written, and small ones for offloaded payload fields, on a local
//! directory or an S3-compatible service.
//!
//! A buffer is written once, by one writer, in chunks. Every chunk is an object of its own with its hash and a chain
//! over all chunks before it, so it can be read as soon as it is acknowledged.
//!
//! **Invariant:** what is acknowledged is durable. **Invariant:** data is handed out only after its hash was checked.
//! **Invariant:** a reader sees the end of a buffer only if its writer finished it; a writer that vanished leaves an
//! error, never a short buffer that looks whole.
//!
//! Times (ms since 1970) and entropy come in as arguments. No other crate of Towline is imported here.

mod blob_format;
mod blobs;
mod buffers;
mod copying;
mod create;
mod deleting;
mod doorbell;
mod ending;
mod error;
mod header;
mod id;
mod listing;
mod location;
mod options;
mod presigning;
mod progress;
mod reading;
mod recent;
mod records;
mod showing;
mod sizes;
mod storage;
mod stored;
mod sweeping;
mod verify;
mod waiting;
mod writer_id;
mod writing;

pub use blake3::Hash;
pub use blobs::BLOB_BYTES_MAX;
pub use buffers::Buffers;
pub use error::{BufferError, Result};
pub use header::{CHAIN_START, CHUNK_BYTES_MAX, CHUNKS_MAX, HEADER_LEN, Header, link};
pub use id::ID_LEN_MAX;
pub use location::Location;
pub use options::{Options, S3Options, Secret, WriteOnce};
pub use records::{
    BlobPage, Chunk, Listed, ListedBlob, Meta, NewBuffer, NewChunk, Next, Page, Position, Shown, Signed,
    State, Stored, SweepFrom, Swept, TAG_NAME_LEN_MAX, TAG_VALUE_LEN_MAX, TAGS_MAX,
};
pub use writer_id::{WriterId, WriterMark};
