//! Pages: rows that hold many items each.

pub(crate) mod codec;
pub(crate) mod columns;
pub(crate) mod extras;
pub(crate) mod layout;
pub(crate) mod payloads;
pub(crate) mod snapshot;
pub(crate) mod split;
