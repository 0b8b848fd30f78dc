//! The embedded store: an append-only log of fixed-size segments, and an index in memory.
//!
//! One writer thread owns the [`engine`] and gathers requests into groups. Each group is one atomic frame of the log; groups that
//! wait at the same time share one sync. An acknowledged operation is durable ([`Durability`] says how durable).
//!
//! | folder | content |
//! |---|---|
//! | `log` | files, segments, frames, records, sidecars, and reading items back |
//! | `index` | items, ready queues, labels, keys, tallies, live bytes |
//! | `engine` | operations, queries, segments, collection |
//! | `events` | the log as an event stream |
//! | `recovery` | opening, replay, torn tail or damage |
//! | `repair` | verify, salvage, backup, restore |
//!
//! `docs/storage-format.md` describes the files.
//!
//! **Invariant:** the store answers and shows only synced content. It reports damage; it never serves damaged content and never
//! treats damage as absence.
//!
//! ```rust
//! use std::sync::Arc;
//! use towline_domain::{Policy, Schema, Submission, Timestamp};
//! use towline_embedded::{Embedded, Options};
//! use towline_store::{Clock, Operation, Store};
//!
//! struct SystemClock;
//!
//! impl Clock for SystemClock {
//!     fn now(&self) -> Timestamp {
//!         let since_1970 = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
//!         Timestamp(since_1970.as_millis() as u64)
//!     }
//! }
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let directory = tempfile::tempdir()?;
//!     // The salt identifies the store and makes item ids hard to guess. Draw a random one for each store.
//!     let options = Options { salt: 0x1234_5678_9abc_def0, ..Options::default() };
//!     let store = Embedded::open(directory.path(), options, Arc::new(SystemClock))?;
//!
//!     let create = Operation::CreateQueue {
//!         queue: "jobs".parse()?,
//!         schema: Box::new(Schema::default()),
//!         policy: Box::new(Policy::default()),
//!     };
//!     let submit = Operation::Submit { queue: "jobs".parse()?, submission: Box::new(Submission::default()) };
//!     // Each operation has its own answer. When the answer arrives, the operation is on disk.
//!     let answers = futures::executor::block_on(store.update(vec![create, submit]))?.answers;
//!     assert!(answers.iter().all(Result::is_ok));
//!
//!     let jobs = futures::executor::block_on(store.queue("jobs".parse()?))?;
//!     assert_eq!(jobs.map(|jobs| jobs.counts.pending), Some(1));
//!     Ok(())
//! }
//! ```

pub mod engine;
mod error;
pub mod events;
mod index;
mod log;
mod met_damage;
mod options;
pub mod outcome;
pub mod plant;
mod reader_pool;
mod recovery;
mod repair;
mod store;
mod writer;

pub use engine::{Chore, Engine};
pub use error::OpenError;
pub use log::meta::{INCOMPLETE as META_INCOMPLETE, META_FILE};
pub use log::{disk, reader};
pub use options::{Durability, Options};
pub use repair::backup::{BackupError, BackupReport, Snapshot, SnapshotFile, restore};
pub use repair::damage::Affected;
pub use repair::integrity_scan::Finding;
pub use repair::salvage::{SalvageReport, salvage, salvage_with_progress};
pub use repair::verify::{VerifyReport, verify, verify_with_progress};
pub use store::Embedded;
