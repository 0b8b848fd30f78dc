//! TCP connections: accepting, TLS, time limits, and a graceful end.

mod drain_on_drop;
mod guarded_stream;
mod listen;
mod seats;
mod tls;

pub(crate) use listen::{ClientAddress, serve};
pub(crate) use seats::network;
pub(crate) use tls::Tls;
pub use tls::{TlsError, TlsFiles};
