//! How a store is opened.

use crate::error::OpenError;
use std::time::Duration;

#[derive(Debug, Clone)]
pub struct Options {
    /// Bytes of a segment, for a store that is made now; an existing one keeps its own.
    pub segment_bytes: u64,
    pub durability: Durability,
    /// A group up to this size is synced by the writer itself when nobody else asks for anything. A larger one is worth
    /// a hand: preparing the next takes as long as syncing it.
    pub alone_bytes: usize,
    /// Write zeros into new segments ahead of a log that grows slowly.
    pub fill: bool,
    /// Requests that may wait before the next is refused as `Busy`.
    pub waiting_max: usize,
    /// Bytes of payload that may wait before the next request is refused as `Busy`.
    pub waiting_bytes_max: usize,
    /// Items the index may hold; submits beyond are refused.
    pub items_max: u64,
    /// Bytes of keys and values of key-value records, which live in memory.
    pub kv_bytes_max: usize,
    /// What a new store is named by. Must be drawn at random: ids and checksums are seeded with it.
    pub salt: u64,
    pub plant: crate::plant::Plant,
}

/// What "acknowledged" means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// On disk.
    Sync,
    /// In the operating system; on disk within the interval. A crash of the process loses nothing, a crash of the
    /// machine up to an interval of acknowledged work.
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
