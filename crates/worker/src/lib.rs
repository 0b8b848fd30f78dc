//! The worker library: typed work on a queue, with results, groups, dependencies, schedules and batches.
//!
//! ```
//! use towline::{Outcome, System, work};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! let add = work("add", |(a, b): (u32, u32), _| async move { Ok(Outcome::Result(a + b)) });
//! let system = System::in_memory().work(&add).start()?;
//! let sum = system.queue(add.of((1, 2))).await?.result().await?;
//! assert_eq!(sum, 3);
//! # Ok::<(), towline::Error>(())
//! # }).unwrap();
//! ```

mod clock;
pub mod codec;
pub mod conformance;
mod context;
mod doer;
#[cfg(feature = "broker")]
mod durable;
mod engine;
mod entropy;
mod envelope;
mod error;
mod event;
mod handle;
mod keys;
pub mod memory;
mod options;
mod outcome;
pub mod ports;
mod schedule;
#[cfg(feature = "server")]
mod server;
mod system;
pub mod testing;
mod work;

pub use clock::{Clock, SystemClock, Time, VirtualClock};
pub use context::Context;
pub use doer::Doer;
#[cfg(feature = "embedded")]
pub use durable::Embedded;
#[cfg(feature = "postgres")]
pub use durable::Postgres;
pub use engine::{OrphanedGroup, State};
pub use error::Error;
pub use event::{Event, Stats};
pub use handle::Handle;
pub use memory::Memory;
pub use options::{Options, Retry};
pub use outcome::{Failure, Outcome, Until, When};
pub use ports::Backend;
pub use schedule::Schedule;
#[cfg(feature = "server")]
pub use server::Server;
pub use system::{Builder, System};
pub use towline_domain::{Trace, TraceParent, TraceState};
pub use work::{AnyJob, Job, Piece, Work, batch, elsewhere, work};

/// The guide's programs are run as tests.
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
