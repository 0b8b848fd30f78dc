//! The worker library: typed work on a queue, with results, groups, dependencies, schedules and batches.
//!
//! ```
//! use towline::{Outcome, System, work};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! let add = work("add", |(a, b): (u32, u32), _| async move { Ok(Outcome::Result(a + b)) });
//! let system = System::in_memory().work(&add).start()?;
//! let sum = system.submit(add.of((1, 2))).await?.result().await?;
//! assert_eq!(sum, 3);
//! # Ok::<(), towline::Error>(())
//! # }).unwrap();
//! ```
//!
//! | module | |
//! |---|---|
//! | [`ports`] | the traits that a backend implements; `backends` has the four that are included |
//! | `engine` | receives items, runs handlers, settles, and counts groups and dependencies |
//! | [`codec`] | turns inputs and results into text |
//! | [`testing`], [`conformance`] | for tests of programs and of backends |
//!
//! # Words
//!
//! The library uses the verbs, the states and the priority direction of the rest of Towline: submit, receive, heartbeat,
//! commit, fail, retry, defer, redrive; pending, processing, completed, failed; the lowest priority number first. Three
//! things differ, because the ports must fit queues other than Towline's:
//!
//! - A second submit with a known idempotency key is not refused if its payload differs. The first one counts.
//! - There is no release. An item that a worker does not run is deferred, since a release counts as an attempt.
//! - Work that waits for its dependencies is in the store and not in the queue. Its state is `Waiting`.

mod backends;
mod builder;
mod clock;
pub mod codec;
pub mod conformance;
mod context;
mod engine;
mod entropy;
mod envelope;
mod error;
mod event;
mod handle;
mod handler;
mod job;
mod limiter;
mod options;
mod outcome;
pub mod ports;
mod schedule;
mod store_keys;
mod system;
pub mod testing;
mod work;

#[cfg(feature = "embedded")]
pub use backends::broker::Embedded;
#[cfg(feature = "postgres")]
pub use backends::broker::Postgres;
pub use backends::memory::{self, Memory};
#[cfg(feature = "server")]
pub use backends::server::Server;
pub use builder::Builder;
pub use clock::{Clock, SystemClock, Time, VirtualClock};
pub use context::Context;
pub use engine::{OrphanedGroup, State};
pub use error::Error;
pub use event::{Event, Stats};
pub use handle::Handle;
pub use handler::BatchEntry;
pub use job::{AnyJob, Job};
pub use limiter::ConcurrencyLimiter;
pub use options::{Options, Retry};
pub use outcome::{DeferUntil, Failure, Outcome};
pub use ports::Backend;
pub use schedule::Schedule;
pub use system::System;
pub use towline_domain::{Condition, Trace, TraceParent, TraceState};
pub use work::{Work, batch, remote, work};

/// Runs the programs of the guide as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/worker/guide.md")]
struct Guide;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/worker/ports.md")]
struct Ports;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/worker/recipes.md")]
struct Recipes;

#[cfg(all(doctest, feature = "embedded", feature = "server", feature = "postgres"))]
#[doc = include_str!("../../../docs/worker/backends.md")]
struct Backends;
