//! TCP connections: accepting, TLS, time limits, and a graceful end.

mod drain_on_drop;
mod first_byte;
mod listen;
mod tls;

pub(crate) use listen::{ClientAddress, serve};
pub(crate) use tls::Tls;
pub use tls::{TlsError, TlsFiles};
