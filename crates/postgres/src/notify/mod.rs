//! `NOTIFY` between the servers of one database. A notification is a hint: a server that misses one finds out by polling.

pub(crate) mod peers;
