//! Buffers: large objects that clients can read while a writer is still writing them. Blobs: small objects for
//! offloaded payload fields. Both are stored in a local directory or on an S3-compatible service.
//!
//! One writer writes a buffer once, in chunks. Each chunk is an object of its own. It carries the hash of its data and
//! the hash chain over all chunks before it, so a reader can use it as soon as the storage acknowledged it.
//!
//! | question | where |
//! |---|---|
//! | how a buffer is created, written, finished, copied, deleted | `write/` |
//! | how a buffer is read, listed, described | `read/` |
//! | what the stored bytes look like | `format/` |
//! | how objects are stored and named | `storage/` |
//! | what is cleaned up | `sweep.rs` |
//! | how all objects are checked at once | `verify.rs` |
//! | which store the location belongs to | `owner.rs` |
//! | which files a backup copies | `files.rs` |
//!
//! **Invariant:** acknowledged data is durable. **Invariant:** the hash of data is checked before a reader gets it.
//! **Invariant:** a reader sees the end of a buffer only if the writer finished it. If the writer vanished, the reader
//! gets an error, never a short buffer that looks complete.
//!
//! Times (ms since 1970) and entropy come in as arguments.

mod blobs;
mod buffers;
mod error;
mod files;
mod format;
mod id;
mod location;
mod options;
mod owner;
mod read;
mod storage;
mod sweep;
mod verify;
mod write;

pub use blobs::{BLOB_BYTES_MAX, BlobPage, ListedBlob};
pub use buffers::Buffers;
pub use error::{BufferError, Result};
pub use files::visit_files;
pub use format::chunk_header::{CHUNK_BYTES_MAX, CHUNK_HEADER_LEN, CHUNKS_MAX, ChunkHeader};
pub use id::ID_LEN_MAX;
pub use location::Location;
pub use options::{Options, S3Options, Secret, WriteOnce};
pub use owner::Owner;
pub use read::chunk::{Chunk, ChunkLookup};
pub use read::list::{ListedBuffer, Page};
pub use read::status::{BufferState, BufferStatus};
pub use sweep::{SweepCursor, SweepReport};
pub use towline_domain::hash_chain::{CHAIN_START, Hash, Position, link};
pub use verify::{ObjectFinding, ObjectReport};
pub use write::create::{Meta, NewBuffer, TAG_NAME_LEN_MAX, TAG_VALUE_LEN_MAX, TAGS_MAX};
pub use write::presign::PresignedRequest;
pub use write::put_chunk::{NewChunk, PutOutcome};
pub use write::writer_id::{WriterId, WriterMark};
