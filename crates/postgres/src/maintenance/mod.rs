//! Work that no client waits for: migrations, removal of expired rows, and giving disk space back.

pub(crate) mod expiry;
pub(crate) mod migrate;
pub(crate) mod reclaim;
pub(crate) mod sweep_progress;
