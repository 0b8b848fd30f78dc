//! Runs: a job that runs once. A run is an item in the queue of its pool.

mod cancel;
mod create;
mod list;
mod show;

pub use list::RunQuery;
pub(crate) use show::is_system_queue;
