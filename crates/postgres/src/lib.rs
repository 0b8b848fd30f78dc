//! The store on PostgreSQL: any number of servers, one database.
//!
//! Calls are gathered into batches by a few workers, each with a connection of its own. A batch is one transaction of
//! two round trips: one fetches and locks what its operations name, the other writes what [`towline_domain::decide()`]
//! made of it and commits. Each operation has its own answer.
//!
//! **Invariants:** whoever changes anything of an item holds the lock of its page. Locks that are waited for
//! are taken in one order everywhere (the store, queues, pages by sequence number, finished ones after the others, then rows that are inserted in order
//! of their keys), so nobody waits in a circle; receiving and sweeping never wait. What is answered is committed; after
//! a lost connection the outcome of a commit is found out, not guessed.

mod batch;
mod catalog;
mod clock;
mod connection;
mod encoding;
mod error;
mod events;
mod inbox;
mod maintenance;
mod notify;
mod options;
mod pages;
mod read;
mod statements;
mod store;

pub use clock::Time;
pub use connection::address::{Address, AddressError};
pub use maintenance::migrate::{Migrated, SchemaVersion, migrate, schema_version};
pub use notify::peers::Heard;
pub use options::{Kept, Options};
pub use store::Postgres;
