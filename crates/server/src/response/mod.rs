//! Responses: encoded values, problems, and server-sent events.

mod problem;
mod responder;
pub(crate) mod sse;
mod streamed;

pub(crate) use problem::ProblemResponse;
pub(crate) use responder::{Responder, run_blocking_if_large};
pub(crate) use streamed::{in_pieces, kept, streamed, streamed_within};
