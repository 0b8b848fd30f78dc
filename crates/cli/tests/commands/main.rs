//! The command line as scripts see it: output shapes, exit codes, and what is survived.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod acts;
mod bad_road;
mod bench;
mod buffer;
mod buffer_faults;
mod buffer_memory;
mod buffer_resume;
mod bulk;
mod events;
mod exit_codes;
mod group;
mod help;
mod kv;
mod lists;
mod moving;
mod output;
mod progress;
mod reader_gone;
#[path = "../rig/mod.rs"]
mod rig;
mod schedule;
mod settle;
mod tls;
mod tokens;
mod traces;
mod wait;
mod watch;
mod while_alive;
