//! Tests of the server over real connections.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod alpn;
mod bad_bodies;
mod bad_paths;
mod batch_settle;
mod buffer_ids;
mod buffer_owner;
mod buffer_readers;
mod buffer_slots;
mod buffer_uploads;
mod buffer_writers;
mod buffers;
mod buffers_on_s3;
mod bulk_actions;
mod client_buffers;
mod client_connections;
mod client_retries;
mod cross_origin;
mod disconnected_receivers;
mod documented_calls;
mod documented_errors;
mod events;
mod full_disk;
mod groups;
mod held_connections;
mod http1;
mod http2;
mod item_actions;
mod lease_holders;
mod life_of_an_item;
mod list_streams;
mod lists;
mod messagepack;
mod metrics;
mod mutated_requests;
mod openapi;
mod proxy;
mod purges;
mod queues;
mod raw;
mod receiving;
mod records;
#[path = "../../../postgres/tests/store/reserved_port.rs"]
mod reserved_port;
#[path = "../../../buffers/tests/contract/s3_server.rs"]
mod s3_server;
mod scopes;
mod slow_bodies;
mod span_export;
mod stopping;
mod submitting;
mod tallies;
mod test_server;
mod tokens;
mod trace_context;
mod waiting_for_results;
