//! The embedded store: an append-only log of fixed-size segments, with its index in memory.
//!
//! One writer thread owns the [`engine`] and gathers requests into groups; each group is one atomic frame and shares
//! one sync with the groups beside it. Acknowledged means durable ([`Durability`] says how durable).
//! `docs/storage-format.md` describes the files.
//!
//! **Invariant:** nothing unsynced is answered or shown; damage is reported, never served and never taken for empty.

mod backup;
mod collect;
pub mod disk;
mod doctor;
pub mod engine;
mod entry;
mod error;
mod frame;
mod index;
mod lane;
mod meta;
mod options;
pub mod outcome;
pub mod plant;
mod query;
pub mod reader;
mod record;
mod recovery;
mod scan;
mod segment;
mod sidecar;
mod store;
mod survey;
mod table;
mod writer;

pub use backup::{BackupError, BackupReport, restore};
pub use doctor::{Affected, SalvageReport, Verdict, salvage, verify};
pub use engine::{Chore, Engine};
pub use error::OpenError;
pub use options::{Durability, Options};
pub use store::Embedded;
pub use survey::Finding;

/// The README's example is run with the documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
