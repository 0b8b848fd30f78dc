//! The rules under any commands: laws that hold for every history, and inputs that no client should send.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod any_history;
mod driver;
mod extreme_inputs;
