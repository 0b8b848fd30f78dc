//! Towline's server. It reads the configuration, opens the store, starts the broker, serves the routes, and closes
//! everything again when it stops.
//!
//! **Invariant:** a successful response means what [`towline_store::Store::update`] promises. Every request gets a response
//! that says what was wrong with it. No request can stop the server.

mod app;
mod auth;
mod backend;
pub mod backup;
pub mod config;
mod connection;
mod consumers;
pub mod cyclotron;
pub mod doctor;
pub mod logging;
mod metrics;
mod request;
mod response;
mod routes;
mod server;
mod tokens;
mod traces;
pub mod transfer;

pub use backend::Schema;
pub use config::{ComputeRunner, ConfigError, Settings};
pub use connection::{ListenAddress, TlsError, TlsFiles, TrustedProxies};
pub use routes::openapi;
pub use server::{Server, ServerError};
pub use tokens::{TokenError, Tokens};
