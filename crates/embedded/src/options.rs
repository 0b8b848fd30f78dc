//! Options for opening a store.

use crate::error::OpenError;
use std::time::Duration;

#[derive(Debug, Clone)]
pub struct Options {
    /// Segment size in bytes of a new store. An existing store keeps its own.
    pub segment_bytes: u64,
    pub durability: Durability,
    /// The writer thread itself syncs a group up to this size if no other request waits. For a larger group, the sync thread is
    /// worth its cost: preparing the next group takes as long as syncing this one.
    pub alone_bytes: usize,
    /// Write zeros into new segments ahead of a slow log, which makes its syncs faster.
    pub fill: bool,
    /// Maximum number of waiting requests. The store refuses the next one as `Busy`.
    pub waiting_max: usize,
    /// Maximum bytes of payload in waiting requests. The store refuses the next one as `Busy`.
    pub waiting_bytes_max: usize,
    /// Maximum number of items in the index. The store refuses further submits.
    pub items_max: u64,
    /// Maximum bytes of keys and values of key-value records, which are in memory. Clients may fill three quarters of it; the rest
    /// is for the server's own records.
    pub kv_bytes_max: usize,
    /// Identifies a new store. Must be random, because it seeds item ids and checksums.
    pub salt: u64,
    pub plant: crate::plant::Plant,
}

/// How durable an acknowledged operation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// On disk.
    Sync,
    /// In the operating system's cache, and on disk within the interval. A crash of the process loses nothing. A crash of the
    /// machine loses up to one interval of acknowledged operations.
    Interval(Duration),
}

impl Default for Options {
    fn default() -> Options {
        Options {
            segment_bytes: 64 << 20,
            durability: Durability::Sync,
            alone_bytes: 64 << 10,
            fill: true,
            waiting_max: 16_384,
            waiting_bytes_max: 256 << 20,
            items_max: 1 << 31,
            kv_bytes_max: 256 << 20,
            salt: 0,
            plant: crate::plant::Plant::default(),
        }
    }
}

pub const SEGMENT_BYTES_MIN: u64 = 64 << 10;
pub const SEGMENT_BYTES_MAX: u64 = 1 << 30;

impl Options {
    pub(crate) fn check(&self) -> Result<(), OpenError> {
        if !(SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(&self.segment_bytes) {
            let message = format!(
                "segment_bytes {} is out of range; use {SEGMENT_BYTES_MIN} to {SEGMENT_BYTES_MAX}",
                self.segment_bytes
            );
            return Err(OpenError::Options(message));
        }
        Ok(())
    }
}
