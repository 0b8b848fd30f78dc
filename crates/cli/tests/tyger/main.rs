//! The scripts of the Tyger document run as they are written, with `tyger` another name for `towline`.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod heartbeat;
mod place;
mod refused;
mod request_response;
#[path = "../rig/mod.rs"]
mod rig;
mod service_killed;
mod service_loop;
