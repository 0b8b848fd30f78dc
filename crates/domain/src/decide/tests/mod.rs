//! Tests of every rule that a single decision can show.

mod lease;
mod operate;
mod queue;
mod receive;
mod scene;
mod submit;
mod timer;
