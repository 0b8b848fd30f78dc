//! Notifications between the servers of one database.

pub(crate) mod peers;
