//! What changes a buffer: create, begin, put chunks, finish or fail, copy, delete.

mod begin;
mod copy;
pub(crate) mod create;
mod delete;
mod finish;
pub(crate) mod presign;
pub(crate) mod progress;
pub(crate) mod put_chunk;
mod signed_length;
pub(crate) mod writer_id;
