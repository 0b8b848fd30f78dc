//! What every store is held to. For tests only: no product crate depends on it.
//!
//! - [`suite`]: the contract of [`towline_store::Store`] as test cases that each store runs.
//! - [`invariants`]: the checker that judges what clients saw, without calling `decide`.
//! - [`ReferenceStore`]: the simplest correct store, and the model that random histories are compared with.
//! - [`InterceptedStore`]: the reference store behind an interceptor that watches, delays or fails calls.

mod intercept;
pub mod invariants;
mod reference;
pub mod suite;

pub use intercept::{InterceptedStore, Interceptor};
pub use reference::ReferenceStore;
