//! Repair and backup of a store's files: verify, salvage, backup, restore.
//!
//! All of them read the files with an [`integrity_scan::IntegrityScan`] or with the same checks.

pub(crate) mod backup;
pub(crate) mod damage;
mod directories;
pub(crate) mod integrity_scan;
pub(crate) mod salvage;
pub(crate) mod verify;
