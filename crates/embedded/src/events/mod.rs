//! Events. Each log record contains the event of its change, so the log is also the event stream.
//!
//! The writer thread only names the frames to read ([`EventRange`]); the caller's thread reads them (`EventReader`).
//!
//! **Invariant:** events come from durable frames only, so an event is never taken back.

mod positions;
pub(crate) mod queue_names;
mod range;
mod reader;
mod window;

pub(crate) use range::RetiredSegment;
pub use range::{EventRange, EventStart};
pub(crate) use reader::EventReader;
