//! Connections to PostgreSQL.

pub(crate) mod address;
pub(crate) mod session;
pub(crate) mod tls;
