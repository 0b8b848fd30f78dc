//! Work that no client waits for: migrations, removal of what has expired, disk space.

pub(crate) mod expiry;
pub(crate) mod migrate;
pub(crate) mod reclaim;
pub(crate) mod sweep_progress;
