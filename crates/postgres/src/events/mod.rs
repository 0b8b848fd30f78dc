//! Events: written with the batch that caused them, read in order.

pub(crate) mod codec;
pub(crate) mod reader;
