//! The server as its clients see it, over real connections.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod acts;
mod alpn;
mod any_bytes;
mod bad_addresses;
mod bad_bodies;
mod buffer_contents;
mod buffer_ids;
mod buffer_readers;
mod buffer_streams;
mod buffer_writers;
mod buffers;
mod buffers_on_s3;
mod client_connections;
mod client_repeats;
mod documented_calls;
mod documented_errors;
mod events;
mod http2;
mod lease_holders;
mod life_of_an_item;
mod lists;
mod messagepack;
mod metrics;
mod one_connection;
mod openapi;
mod operators;
mod other_sites;
mod proxy;
mod purges;
mod queues;
mod raw;
mod receivers_that_leave;
mod receiving;
mod rig;
#[path = "../../../buffers/tests/contract/s3_server.rs"]
mod s3_server;
mod scopes;
mod settling_many;
mod slots;
mod stopping;
mod streams;
mod submitting;
mod tallies;
mod tokens;
mod waiting_for_results;
