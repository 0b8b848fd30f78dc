//! Between callers and a store: waiting callers, the sweeper, schedules, groups, events, and object storage.
//!
//! The server's wall clock and entropy enter here and nowhere else.
//!
//! **Invariant:** an item that becomes ready while receivers wait goes to one of them without polling; the other
//! receivers keep waiting. The lease is written in the same batch as the submit of the item. Submitters that wait for
//! room in a full queue are woken when there may be some, first come, first served.

mod broker;
pub mod clock;
mod collection;
mod counters;
mod damage;
mod delivery;
pub mod entropy;
mod feed;
#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod golden;
mod groups;
mod import;
mod latency;
mod ownership;
mod pace;
mod peers;
mod pipeline;
mod receive;
mod records;
mod schedules;
mod submit_wait;
mod sweeper;
mod topics;
mod waiters;

pub use broker::{Broker, DeletionPause, Sharing, Waited};
pub use clock::SteadyClock;
pub use collection::{Collected, CollectionRule};
pub use counters::{OperationCounts, VERBS};
pub use feed::{FollowError, Follower};
pub use groups::{begin_groups, groups_are_begun};
pub use import::RunningImport;
pub use latency::{CALLS, LATENCY_BOUNDS, Latency};
pub use ownership::{Ownership, OwnershipError, TakeOver, claim_buffers};
pub use pace::Pace;
pub use pipeline::attach::Storage;
pub use pipeline::attachments::{AccessError, OffloadRule};
pub use pipeline::payloads::Payloads;
pub use receive::ReceiveRequest;
pub use records::PREFIX as RECORDS;
pub use schedules::{IfDifferent, PutSchedule};
pub use topics::{Subscription, TopicEvent};
/// The types of the broker's calls, for crates that may not import the store.
pub use towline_store as store;
