//! The port every backend implements. `towline-conformance` holds the contract as a test suite.
//!
//! **Batch first:** [`Store::update`] takes many operations and answers each one by itself, in order. A refused
//! operation changes nothing and never fails its neighbours. What is answered is durable, to the degree the backend
//! documents.
//!
//! **Invariant:** a store selects and applies; it never decides. State changes only through
//! [`towline_domain::decide()`].

mod bulk;
mod error;
mod event;
mod filter;
mod lookup;
mod metrics;
mod operation;
mod port;
mod steady_time;
mod tally;
pub mod transaction;

pub use bulk::{BulkAction, BulkResult, bulk, bulk_batch};
pub use error::StoreError;
pub use event::{Event, EventCursor, EventId, EventPage, Events, EventsFrom};
pub use filter::{CountPage, Cursor, ErrorText, Filter, Page, is_under, without_end};
pub use lookup::{QueueLookup, item_context};
pub use metrics::{DurationHistogram, RetryReason, StoreMetrics};
pub use operation::{Answered, Operation, ReceiveCall, Received, Reply, Restore, Result, Updated};
pub use port::{BoxFuture, Clock, KvPage, ManualClock, QueueView, Store, StoredItem};
pub use steady_time::{ClockNews, ClockState, SteadyTime};
pub use tally::{TallyRange, TallyRow};
