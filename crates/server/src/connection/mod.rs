//! TCP connections: accepting, TLS, time limits, and a graceful end.

mod client_address;
mod drain_on_drop;
mod guarded_stream;
mod listen;
mod listener;
mod open_requests;
mod request_tasks;
mod seats;
mod tls;

pub(crate) use client_address::ClientAddress;
pub use client_address::TrustedProxies;
pub(crate) use listen::{Serving, serve};
pub use listener::ListenAddress;
pub(crate) use listener::Listener;
pub(crate) use open_requests::Held;
pub(crate) use seats::{network, share_of_one_client};
pub(crate) use tls::Tls;
pub use tls::{TlsError, TlsFiles};
