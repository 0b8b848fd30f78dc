//! What is said between a Towline server and its clients: the wire types, the codes, and the Rust client.
//!
//! One set of types for both directions and both formats: JSON, and MessagePack with the same names (payload bytes are
//! base64 in JSON and bytes in MessagePack; ids, times and durations are text in both).
//!
//! **Invariant:** parsing never decides. A value that is well-formed but wrong (a bad id, a number out of range) is read
//! and refused where it is used, so that in a call of thousands it fails its own element and no other.

pub mod backoff;
pub mod buffer;
pub mod chain;
pub mod client;
mod code;
mod event;
mod filter;
mod format;
mod group;
mod invalid;
mod item;
mod object;
mod order;
pub mod params;
pub mod payload;
mod policy;
mod problem;
mod queue;
mod receive;
mod record;
mod schedule;
mod settle;
mod span;
mod submit;
mod tally;
mod text;
mod time;
mod token;
mod topic;
mod trace;

pub use backoff::BackoffBody;
pub use client::{Client, ClientError};
pub use code::{CODES, Code};
pub use event::{EventPage, EventShown};
pub use filter::ItemFilter;
pub use format::{DecodeError, Format};
pub use group::{DependencyBody, GroupShown};
pub use item::{BulkResult, CountShown, ItemError, ItemPage, ItemShown, OriginShown, PurgeResult};
pub use order::{OrderBody, ScoreBody, ScoreOrder};
pub use policy::{FairnessBody, LeaseRuleBody, PolicyBody};
pub use problem::{ErrorBody, PROBLEM_JSON, Problem};
pub use queue::{CountsShown, PatchQueue, PutQueue, QueuePage, QueueShown, SchemaBody};
pub use receive::{ReceiveAnswer, ReceiveRequest, ReceivedItem, field_set};
pub use record::{
    IncrementRecord, RecordDeleted, RecordNumber, RecordPage, RecordSet, RecordShown, SetRecord,
};
pub use schedule::{
    NextTimes, PutSchedule, ScheduleAnswer, ScheduleErrorShown, SchedulePage, ScheduleRun, ScheduleShown,
};
pub use settle::{Action, CancelRequest, FieldsBody, SettleAnswer, SettleRequest, Settled, VerbName};
pub use span::Span;
pub use submit::{NewItem, SubmitAnswer, SubmitRequest, Submitted};
pub use tally::{TallyRowShown, TallyShown};
pub use text::Text;
pub use time::Time;
pub use token::{NewToken, RateLimit, Secret, TokenCreated, TokenPage, TokenShown, Whoami};
pub use topic::{CutOff, Published, TopicMessage};
/// What the calls of [`Client`] and the wire types are made of, for those who may not import the domain.
pub use towline_domain::{
    Backoff, ItemId, Json, LeaseToken, Millis, Order, Rate, Refusal, Submission, Timestamp, Trace,
    TraceParent, TraceState,
};
pub use trace::TraceBody;

/// Bytes of the body of one request.
pub const BODY_BYTES_MAX: usize = 64 << 20;
/// How long one call may wait for an item or a result; to wait longer, call again.
pub const WAIT_MAX: Millis = Millis::minutes(5);
/// Bytes of a chunk of a buffer: the most, and what this client and the server cut.
pub const CHUNK_BYTES_MAX: usize = 16 << 20;
pub const CHUNK_BYTES: usize = 4 << 20;
/// Items of a list page, unless the caller says otherwise.
pub const PAGE_DEFAULT: usize = 100;
/// Where a server listens unless it is told otherwise.
pub const ADDRESS_DEFAULT: &str = "127.0.0.1:7420";
