//! What reads a buffer: one chunk, a range of bytes, its status, a list of buffers.

pub(crate) mod chunk;
pub(crate) mod chunk_cache;
pub(crate) mod list;
pub(crate) mod notifier;
mod range;
pub(crate) mod status;
