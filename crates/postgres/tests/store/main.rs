//! Tests of the store on real PostgreSQL servers, which the tests start and stop.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod bounded_reads;
mod calls;
mod conformance;
mod dump;
mod enqueue;
mod events;
mod failover;
mod fairness;
mod faults;
mod harness;
mod killed;
mod lost_commit;
mod migrations;
mod opening;
mod peers;
mod plans;
mod prefetch;
mod races;
mod reclaim;
mod reserved_port;
mod server;
mod tls;
