//! Connections to PostgreSQL: addresses, TLS, and the sessions of workers.

pub(crate) mod address;
pub(crate) mod session;
pub(crate) mod tls;
