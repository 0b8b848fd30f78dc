//! Simulates the embedded store on a faulty disk, in virtual time, on one thread. A seed determines the whole run.
//!
//! [`world`] drives the store's engine with clients that submit, receive and settle, stall and return late, and with
//! crashes at any moment. `towline_conformance::invariants` checks the replies that the clients got.
//! [`trial`] runs one world from a seed. [`crash_everywhere`] crashes one workload at each of its disk operations.
//! [`bit_flips`] damages single bits.

pub mod bit_flips;
pub mod clock;
pub mod crash_everywhere;
pub mod disk;
pub mod trial;
pub mod workload;
pub mod world;
