//! Callers that wait: receivers for items, submitters for room, result waiters for the end of an item or a group.
//!
//! They are woken by the store's effects (`pipeline/wake.rs`) and by hints of peers.

pub(crate) mod receivers;
pub(crate) mod results;
pub(crate) mod submitters;
