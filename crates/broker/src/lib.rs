//! Between callers and a store: receivers that wait, waiters on results, the sweeper, and what items keep in object
//! storage.
//!
//! Wall clock and entropy enter Towline here and nowhere else.
//!
//! **Invariant:** an item that becomes ready while somebody waits for it is given out without polling, to one waiter;
//! the others go on waiting. The waiter's lease is written in the same batch as the submit that brought the item.
//! A submitter that waits for room in a full queue is woken when there may be some, first come, first served.

mod broker;
mod buffers;
pub mod clock;
mod collection;
mod depot;
pub mod entropy;
mod feed;
mod groups;
mod latency;
mod line;
mod others;
mod pace;
mod records;
mod results;
mod room;
mod schedules;
mod submit;
mod sweeper;
mod tally;
mod topics;

pub use broker::{Broker, ReceiveRequest, Sharing, Waited};
pub use buffers::Storage;
pub use clock::SteadyClock;
pub use collection::{Collected, CollectionRule};
pub use depot::OffloadRule;
pub use feed::{Followed, Follower};
pub use latency::{CALLS, LATENCY_BOUNDS, Latency};
pub use pace::Pace;
pub use schedules::PutSchedule;
pub use tally::{Done, VERBS};
pub use topics::{Subscription, Told};
/// What its calls are made of, for those who may not import the store.
pub use towline_store as store;
