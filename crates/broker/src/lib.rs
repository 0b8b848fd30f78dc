//! Between callers and a store: receivers that wait, waiters on results, the sweeper, and what items keep in object
//! storage.
//!
//! Wall clock and entropy enter Towline here and nowhere else.
//!
//! **Invariant:** an item that becomes ready while somebody waits for it is given out without polling, to one waiter;
//! the others go on waiting. The waiter's lease is written in the same batch as the submit that brought the item.
//! A submitter that waits for room in a full queue is woken when there may be some, first come, first served.

mod broker;
pub mod clock;
mod collection;
mod damage;
mod delivery;
pub mod entropy;
mod feed;
mod groups;
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
mod tally;
mod topics;
mod waiters;

pub use broker::{Broker, Sharing, Waited};
pub use clock::SteadyClock;
pub use collection::{Collected, CollectionRule};
pub use feed::{Followed, Follower};
pub use latency::{CALLS, LATENCY_BOUNDS, Latency};
pub use ownership::{Ownership, OwnershipError, claim_buffers};
pub use pace::Pace;
pub use pipeline::attach::Storage;
pub use pipeline::attachments::OffloadRule;
pub use pipeline::payloads::Payloads;
pub use receive::ReceiveRequest;
pub use schedules::PutSchedule;
pub use tally::{Done, VERBS};
pub use topics::{Subscription, Told};
/// What its calls are made of, for those who may not import the store.
pub use towline_store as store;
