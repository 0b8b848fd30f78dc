//! A batch: one transaction for the operations of many calls.
//!
//! A worker gathers calls (`worker.rs`) and attempts the batch (`attempt.rs`). An attempt plans what to fetch (`plan.rs`),
//! fetches and locks it in one round trip (`fetch/`), decides the operations in memory (`overlay/`), and writes the result
//! and commits in a second round trip (`write.rs`).

pub(crate) mod attempt;
mod batch_rows;
pub(crate) mod content_request;
pub(crate) mod fetch;
pub(crate) mod outcome;
pub(crate) mod overlay;
pub(crate) mod plan;
pub(crate) mod receive_hints;
pub(crate) mod tally;
pub(crate) mod worker;
mod write;
