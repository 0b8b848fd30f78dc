//! Property tests of the rules: invariants of every history, and extreme inputs.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod any_history;
mod driver;
mod extreme_inputs;
