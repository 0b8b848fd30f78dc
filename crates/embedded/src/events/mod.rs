//! Events, read from the log.

pub(crate) mod queue_names;
mod reader;

pub use reader::{EventRange, EventStart};
pub(crate) use reader::{EventReader, RetiredSegment};
