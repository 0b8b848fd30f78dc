//! The scripts of the Tyger document run unchanged, with `tyger` as another name of `towline`.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod heartbeat;
mod request_response;
#[path = "../rig/mod.rs"]
mod rig;
mod sandbox;
mod service_killed;
mod service_loop;
