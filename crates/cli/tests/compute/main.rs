//! Runs, services, triggers and nodes, with the real binary and real processes.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod bad_input;
mod codespecs;
mod node_killed;
#[path = "../rig/mod.rs"]
mod rig;
mod rights;
mod runs;
mod services;
mod triggers;

use rig::{Server, until};
use serde_json::Value;

/// A server with a node.
fn server() -> Server {
    Server::start_with(&[("TOWLINE_COMPUTE", "process")])
}

/// Creates a job of one shell script.
fn job(server: &Server, name: &str, buffers: &[&str], script: &str) {
    let create = ["codespec", "create", name];
    server.ok(&[&create[..], buffers, &["--command", "--", "sh", "-c", script]].concat());
}

/// Waits until a run or an item looks as it should.
#[track_caller]
fn until_shown(server: &Server, show: &[&str], is: impl Fn(&Value) -> bool) -> Value {
    let mut shown = Value::Null;
    until("it is so", || {
        shown = server.json(show);
        is(&shown)
    });
    shown
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_else(|| panic!("no {name}: {value}"))
}
