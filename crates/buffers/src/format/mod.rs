//! What the stored objects contain.

pub(crate) mod blob;
pub(crate) mod chunk_header;
pub(crate) mod chunk_sizes;
pub(crate) mod records;
pub(crate) mod verify;
