//! How values are stored in columns and in packed bytes.

pub(crate) mod bytes;
pub(crate) mod code;
pub(crate) mod sql;
