//! Checking and salvaging an embedded store that no server uses.

pub use towline_embedded::{
    Affected, BackupError, Finding, OpenError, SalvageReport, VerifyReport, salvage, verify,
};
