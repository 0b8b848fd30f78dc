//! The contract of buffers, on a directory and on an S3-protocol server; and what happens when either is at fault.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "tests")]

mod adopting;
mod blobs;
mod copying;
mod damage;
mod full_disk;
mod listing;
mod outage;
mod presigned;
mod proxy;
mod reading;
mod rig;
mod s3_server;
mod script;
mod states;
mod sweeping;
mod vanishing;
mod writing;
