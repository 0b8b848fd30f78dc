//! Randomness: lease tokens, jitter, ids, and the salt of a new store.

use towline_domain::{Timestamp, TokenSeed};
use uuid::Uuid;

/// Fills a buffer from the operating system.
///
/// A machine that has no randomness to give cannot make a lease that nobody can guess: that is worth stopping for.
#[expect(clippy::disallowed_methods, clippy::expect_used, reason = "the one place where entropy enters")]
fn fill(buffer: &mut [u8]) {
    getrandom::fill(buffer).expect("the operating system gives randomness");
}

#[must_use]
pub fn token_seed() -> TokenSeed {
    let mut seed = [0; 32];
    fill(&mut seed);
    TokenSeed(seed)
}

#[must_use]
pub fn number() -> u64 {
    let mut bytes = [0; 8];
    fill(&mut bytes);
    u64::from_le_bytes(bytes)
}

#[must_use]
pub fn bytes() -> [u8; 16] {
    let mut bytes = [0; 16];
    fill(&mut bytes);
    bytes
}

/// An id for what is named before the store has seen it: a UUIDv7.
#[must_use]
pub fn uuid(now: Timestamp) -> Uuid {
    let mut random = [0; 10];
    fill(&mut random);
    uuid::Builder::from_unix_timestamp_millis(now.0, &random).into_uuid()
}
