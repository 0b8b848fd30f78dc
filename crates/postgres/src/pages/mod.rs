//! Pages: rows of `pages` and `terminal_pages`, each with many items.
//!
//! One row an item would cost PostgreSQL more for row headers, index entries and dead versions than for the item itself.

pub(crate) mod codec;
pub(crate) mod columns;
pub(crate) mod extras;
pub(crate) mod layout;
pub(crate) mod payloads;
pub(crate) mod snapshot;
pub(crate) mod split;
