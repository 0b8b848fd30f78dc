//! The port that every backend implements. `towline-conformance` has the contract as a test suite.
//!
//! **Batch first:** [`Store::update`] takes many operations and answers each one by itself, in order. A refused
//! operation changes nothing and never fails its neighbours. An answered operation is durable, to the degree that the
//! backend documents.
//!
//! **Invariant:** a store finds and applies. Only [`towline_domain::decide()`] decides how state changes.

mod bulk;
mod error;
mod event;
mod filter;
mod identity;
mod lookup;
mod metrics;
mod operation;
mod peer_hints;
mod port;
mod steady_time;
mod tally;
pub mod transaction;

pub use bulk::{BulkAction, BulkResult, bulk, bulk_batch};
pub use error::{OperationError, StoreError};
pub use event::{Event, EventCursor, EventId, EventPage, Events, EventsFrom};
pub use filter::{CountPage, Cursor, ErrorText, Exclusions, Filter, Page, is_under, without_end};
pub use identity::StoreIdentity;
pub use lookup::{QueueLookup, item_context};
pub use metrics::{DurationHistogram, RetryReason, StoreMetrics};
pub use operation::{
    Answered, Operation, OperationResult, ReceiveCall, Received, Reply, Restore, Result, Updated,
    name_dead_letter_queues,
};
pub use peer_hints::PeerHints;
pub use port::{BoxFuture, Clock, KvPage, ManualClock, QueueView, Store, StoredItem};
pub use steady_time::{ClockNotice, ClockState, SteadyTime};
pub use tally::{TallyRange, TallyRow};
