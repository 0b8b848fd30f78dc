//! Verifying, salvaging, backing up and restoring the files of a store.

pub(crate) mod backup;
pub(crate) mod integrity_scan;
pub(crate) mod verify;
