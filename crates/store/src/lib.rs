//! The port every backend implements, its contract as one test suite, and the reference store.
//!
//! **Batch first:** [`Store::update`] takes many operations and answers each one by itself, in order. A refused
//! operation changes nothing and never fails its neighbours. What is answered is durable, to the degree the backend
//! documents.
//!
//! **Invariant:** a store selects and applies; it never decides. State changes only through
//! [`towline_domain::decide()`].

mod act;
pub mod conformance;
mod error;
mod event;
mod figures;
mod filter;
mod guarded;
pub mod invariants;
mod lookup;
mod memory;
mod operation;
mod port;
mod tally;

pub use act::{Act, Acted, act, chosen};
pub use error::StoreError;
pub use event::{Event, EventCursor, EventId, EventPage, Events, EventsFrom};
pub use figures::{Figures, RetryReason, Spans};
pub use filter::{Counted, Cursor, ErrorText, Filter, Page, is_under, without_end};
pub use guarded::{Guard, Guarded};
pub use lookup::{QueueLookup, item_context};
pub use memory::Memory;
pub use operation::{Answered, Operation, ReceiveCall, Received, Reply, Restore, Result};
pub use port::{BoxFuture, Clock, KvPage, ManualClock, QueueView, Store, StoredItem};
pub use tally::{TallyRange, TallyRow};
