//! The command line as scripts see it: output, exit codes, and faults that it survives.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod backup;
mod bench;
mod buffer;
mod buffer_faults;
mod buffer_memory;
mod buffer_resume;
mod bulk;
mod bulk_actions;
mod deploy;
mod doctor;
mod events;
mod exit_codes;
mod export_import;
mod faulty_proxy;
mod group;
mod help;
mod kv;
mod lists;
mod output;
mod progress;
mod reader_gone;
#[path = "../rig/mod.rs"]
mod rig;
mod schedule;
mod settle;
mod tls;
#[path = "../../../embedded/tests/rig/tmpfs.rs"]
mod tmpfs;
mod tokens;
mod traces;
mod wait;
mod watch;
mod while_alive;
