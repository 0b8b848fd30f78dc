//! Randomness: lease tokens, jitter, ids, and the salt of a new store.

use towline_domain::{Timestamp, TokenSeed};
use uuid::Uuid;

/// Fills a buffer from the operating system.
///
/// Panics if the system has no randomness: a guessable lease token would be unsafe.
#[expect(clippy::disallowed_methods, clippy::expect_used, reason = "the one place where entropy enters")]
fn fill(buffer: &mut [u8]) {
    getrandom::fill(buffer).expect("the operating system has randomness");
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

/// An id that is needed before the store assigns one: a UUIDv7.
#[must_use]
pub fn uuid(now: Timestamp) -> Uuid {
    let mut random = [0; 10];
    fill(&mut random);
    uuid::Builder::from_unix_timestamp_millis(now.0, &random).into_uuid()
}
