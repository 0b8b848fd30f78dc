//! Towline's server: puts configuration, store, broker and routes together, and takes them apart again.
//!
//! **Invariant:** an answer of success means what [`towline_store::Store::update`] promises. Whatever a client sends,
//! it gets an answer that says what was wrong; nothing it sends can stop the server.

mod answer;
mod app;
mod auth;
mod backend;
mod body;
pub mod config;
mod databases;
mod first_byte;
mod guard;
mod lingering;
mod listen;
pub mod logging;
mod metrics;
pub mod moving;
mod path;
mod query;
mod refuse;
mod routes;
mod server;
mod sse;
mod tls;
mod tokens;
mod traces;

pub use backend::Schema;
pub use config::{ConfigError, Settings};
pub use routes::openapi;
pub use server::{Server, ServerError};
pub use tls::{TlsError, TlsFiles};
pub use tokens::{TokenError, Tokens};
