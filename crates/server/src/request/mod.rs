//! What a request contains: body, path, query string and origin. Each part is parsed and checked once, before a route runs.

mod body;
mod body_stream;
mod origin;
mod path;
mod query;
mod room;

pub(crate) use body::DecodedBody;
pub(crate) use body_stream::{BodyStream, Frames, broken_off, silent};
pub(crate) use origin::reject_foreign_origin;
pub(crate) use path::{
    BULK_ACTIONS, BufferPath, BulkActionPath, ChunkPath, GroupPath, ItemPath, KeyPath, QueuePath,
    SchedulePath, TokenPath, TopicPath, VerbPath,
};
pub(crate) use query::{NoQuery, Query, check_wait, invalid};
pub(crate) use room::{BodyMemory, BodyRoom, SLOW_AFTER};

/// The start of a text from a client, short enough for an error message.
pub(crate) fn excerpt(text: &str) -> String {
    text.chars().take(100).collect()
}
