//! The contract of buffers, in a directory and on an S3-protocol server, including faults of both.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "tests")]

mod adopt;
mod blobs;
mod copy;
mod damage;
mod faulty_proxy;
mod full_disk;
mod list;
mod owner;
mod presign;
mod read;
mod s3_faults;
mod s3_server;
mod states;
mod storage;
mod sweep;
mod vanished_writer;
mod verify;
mod write;
mod writer;
