//! A node: the part of Towline that runs commands.
//!
//! [`runner`] starts, watches, stops and cleans up one command at a time, as a process or as a container. It knows nothing of
//! queues, leases or HTTP. [`Node`] receives the work of a pool from a server, runs it with a runner, and settles it.

mod clock;
mod entropy;
mod node;
pub mod runner;

pub use entropy::digits as new_instance;
pub use node::{Node, NodeOptions};
