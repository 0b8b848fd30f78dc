//! A batch: one transaction that fetches what its operations name, decides, and writes.

pub(crate) mod attempt;
pub(crate) mod fetch;
pub(crate) mod outcome;
pub(crate) mod overlay;
pub(crate) mod plan;
pub(crate) mod receive_hints;
pub(crate) mod tally;
pub(crate) mod worker;
pub(crate) mod write;
