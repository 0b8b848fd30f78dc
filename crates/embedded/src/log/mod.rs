//! The log: segments of frames, frames of records, and the files that contain them.
//!
//! [`record`] is one change, [`frame`] one atomic batch of records, [`segment`] a file of frames, [`sidecar`] the cached index of a
//! segment. [`scan`] walks frames, [`reader`] reads items back, [`meta`] marks a directory as a store, and [`disk`] is all file
//! access.

pub mod disk;
pub mod frame;
pub mod meta;
pub mod reader;
pub mod record;
pub mod scan;
pub mod segment;
pub mod sidecar;
