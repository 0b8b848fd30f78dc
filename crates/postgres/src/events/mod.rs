//! Events: a batch writes them in its transaction, readers get them in order.

pub(crate) mod codec;
pub(crate) mod reader;
pub(crate) mod watermark;
