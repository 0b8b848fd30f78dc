//! A node: the part of Towline that runs commands.
//!
//! [`runner`] starts, watches, stops and cleans up one command at a time, as a process or as a container. It knows nothing of
//! queues, leases or HTTP.

pub mod runner;
