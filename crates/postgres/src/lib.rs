//! The store on PostgreSQL: any number of servers, one database.
//!
//! A few workers, each with its own connection, gather calls into batches. A batch is one transaction of two round trips: the
//! first one fetches and locks what the operations name, the second one writes what [`towline_domain::decide()`] decided
//! and commits. Each operation has its own answer.
//!
//! **Invariants:**
//! - A transaction that changes an item holds the lock of its page.
//! - All transactions wait for locks in the same order: the store, queues, pages by sequence number, terminal pages, then
//!   inserted rows by their keys. So no two of them wait for each other. Receives and sweeps never wait for a lock.
//! - An answer means that the operation is committed. After a lost connection, the worker finds out whether its commit took
//!   place.

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
pub use connection::session::connect_elsewhere as connect;
pub use maintenance::migrate::{Migrated, SchemaVersion, migrate, schema_version};
pub use options::{EventRetention, Options};
pub use store::Postgres;
