//! The embedded store on a faulty disk, in virtual time, on one thread: everything follows from a seed.
//!
//! [`world`] drives the store's own step machine with clients that submit, receive, settle, stall and come back late,
//! and with crashes at any moment; the checker of `towline_conformance::invariants` judges what they saw.
//! [`trial`] runs many worlds; [`everywhere`] crashes one workload at each of its disk operations; [`flips`] damages
//! single bits.

pub mod disk;
pub mod everywhere;
pub mod flips;
pub mod trial;
pub mod workload;
pub mod world;
