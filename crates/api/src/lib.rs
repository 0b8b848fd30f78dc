//! The interface between a Towline server and its clients: wire types, error codes, and the Rust client.
//!
//! Requests and answers use one set of types in both formats, JSON and MessagePack. The field names are the
//! same. Payload bytes are base64 in JSON and bytes in MessagePack. Ids, times and durations are text in
//! both.
//!
//! **Invariant:** decoding does not validate. A well-formed value that is not allowed, such as a bad id or a
//! number out of range, is decoded and refused where it is converted to the domain type. A malformed element of a
//! batch is an [`Element`] with an error. So a bad element in a batch fails alone.

pub mod backoff;
mod budget;
pub mod buffer;
pub mod client;
mod code;
pub mod compute;
mod element;
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
mod transfer;

pub use backoff::BackoffBody;
pub use budget::DecodeBudget;
pub use client::{Client, ClientError};
pub use code::{CODES, Code};
pub use element::Element;
pub use event::{EventPage, EventShown};
pub use filter::ItemFilter;
pub use format::{DecodeError, Format};
pub use group::{DependencyBody, GroupShown};
pub use item::{BulkResult, CountShown, ItemError, ItemPage, ItemShown, OriginShown};
pub use order::{OrderBody, ScoreBody, ScoreOrder};
pub use policy::{FairnessBody, LeaseRuleBody, PolicyBody};
pub use problem::{ErrorBody, PROBLEM_JSON, Problem, RefusedElement};
pub use queue::{
    ConsumerShown, CountsShown, PatchQueue, PutQueue, QueueApplied, QueuePage, QueueShown, SchemaBody,
    SettingChange,
};
pub use receive::{ReceiveAnswer, ReceiveRequest, ReceivedItem, Throttled, field_set};
pub use record::{
    IncrementRecord, RecordAction, RecordDeleted, RecordNumber, RecordPage, RecordResult, RecordSet,
    RecordShown, RecordVerb, RecordsAnswer, RecordsBody, RecordsRequest, SetRecord,
};
pub use schedule::{
    NextTimes, PutSchedule, ScheduleAnswer, ScheduleErrorShown, SchedulePage, ScheduleRun, ScheduleShown,
};
pub use settle::{
    Action, CancelRequest, FieldsBody, HandOffBody, PauseRequest, SettleAnswer, SettleBody, SettleRequest,
    Settled, VerbName, under_lease,
};
pub use span::Span;
pub use submit::{NewItem, OneOrMany, SubmitAnswer, SubmitBody, SubmitRequest, Submitted};
pub use tally::{TallyRowShown, TallyShown};
pub use text::Text;
pub use time::Time;
pub use token::{NewToken, RateLimit, Secret, TokenCreated, TokenPage, TokenShown, Whoami};
pub use topic::{CutOff, Published, TopicMessage};
pub use towline_domain::ItemState;
/// Domain types in the interface of [`Client`] and the wire types, for crates that may not import the domain.
pub use towline_domain::hash_chain as chain;
pub use towline_domain::{
    Backoff, BufferStateKind, ItemId, Json, LeaseToken, Millis, Order, Rate, Refusal, Submission, Timestamp,
    Trace, TraceParent, TraceState,
};
pub use trace::TraceBody;
pub use transfer::TransferSummary;

/// Maximum size of a request body in bytes.
pub const BODY_BYTES_MAX: usize = 64 << 20;
/// Maximum time that one call waits for an item or a result. To wait longer, call again.
pub const WAIT_MAX: Millis = Millis::minutes(5);
/// Maximum size of a buffer's chunk, and the size that this client and the server use.
pub const CHUNK_BYTES_MAX: usize = 16 << 20;
pub const CHUNK_BYTES: usize = 4 << 20;
/// Default and maximum page size of every list.
pub const PAGE_DEFAULT: usize = 100;
pub const PAGE_MAX: usize = 1000;
/// Default address of a server.
pub const ADDRESS_DEFAULT: &str = "127.0.0.1:7420";
