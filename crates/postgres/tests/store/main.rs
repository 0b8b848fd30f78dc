//! The store against real PostgreSQL servers, which the tests start and stop.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod conformance;
mod dump;
mod enqueue;
mod events;
mod failover;
mod faults;
mod harness;
mod killed;
mod lost_commit;
mod news;
mod opening;
mod plans;
mod races;
mod reclaim;
mod server;
mod tenants;
mod tls;
mod upgrades;
mod words;
