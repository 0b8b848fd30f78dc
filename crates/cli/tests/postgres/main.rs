//! The program on PostgreSQL.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod cyclotron;
mod export_import;
mod groups;
mod migrate;
#[path = "../../../postgres/tests/store/server.rs"]
mod postgres;
#[path = "../rig/mod.rs"]
mod rig;
mod shards;
mod tokens;
