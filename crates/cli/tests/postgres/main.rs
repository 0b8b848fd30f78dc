//! The program on PostgreSQL, as those who run it see it.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod groups;
mod migrate;
mod moving;
#[path = "../../../postgres/tests/store/server.rs"]
mod postgres;
#[path = "../rig/mod.rs"]
mod rig;
mod shards;
mod tokens;
