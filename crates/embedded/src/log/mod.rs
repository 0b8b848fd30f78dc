//! The append-only log: files, segments, frames, records, and reading them back.

pub mod disk;
pub mod frame;
pub mod meta;
pub mod reader;
pub mod record;
pub mod scan;
pub mod segment;
pub mod sidecar;
