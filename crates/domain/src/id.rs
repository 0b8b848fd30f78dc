//! Identifiers of items, of queues inside a store, and of leases.

use crate::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::fmt;
use uuid::Uuid;

/// An item's public id: a UUIDv7 derived by the store, or any UUID that the submitter chose.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ItemId(pub Uuid);

/// The sequence number takes 40 bits of the id, so a store numbers at most 2^40 items.
const SEQUENCE_BITS: u32 = 40;
pub const SEQUENCE_MAX: u64 = (1 << SEQUENCE_BITS) - 1;
/// The number of the last item that a store accepts. Refused submits use up numbers, too: the rest lasts for a day at 10,000
/// submits a second.
pub const SEQUENCE_ACCEPTED_MAX: u64 = SEQUENCE_MAX - (1 << 30);

impl ItemId {
    /// A UUIDv7 whose random part is the item's sequence number and a check over (salt, time, sequence number).
    ///
    /// Derived ids sort by creation, need no map from id to item, and cannot be guessed without the salt.
    #[must_use]
    pub fn derive(salt: u64, created_at: Timestamp, sequence: u64) -> ItemId {
        let check = mix(salt ^ mix(created_at.0 ^ mix(sequence)));
        let high = (created_at.0 & 0xffff_ffff_ffff) << 16 | 0x7000 | (sequence >> 28) & 0xfff;
        let low = 0b10 << 62 | (sequence & 0xfff_ffff) << 34 | check & 0x3_ffff_ffff;
        ItemId(Uuid::from_u64_pair(high, low))
    }

    /// The time in an id that a store derived.
    #[must_use]
    pub fn made_at(self) -> Timestamp {
        Timestamp(self.0.as_u64_pair().0 >> 16)
    }

    /// The sequence number in the id, if the id was derived with this salt.
    #[must_use]
    pub fn sequence(self, salt: u64) -> Option<u64> {
        let (high, low) = self.0.as_u64_pair();
        let sequence = (high & 0xfff) << 28 | low >> 34 & 0xfff_ffff;
        (ItemId::derive(salt, Timestamp(high >> 16), sequence) == self).then_some(sequence)
    }
}

/// The finaliser of splitmix64: every input bit reaches every output bit.
fn mix(mut value: u64) -> u64 {
    value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

impl fmt::Display for ItemId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for ItemId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be a UUID, like 01a1dfc8-fd66-7000-8000-000754550388")]
pub struct IdError;

impl std::str::FromStr for ItemId {
    type Err = IdError;
    fn from_str(text: &str) -> Result<ItemId, IdError> {
        Uuid::parse_str(text).map(ItemId).map_err(|_| IdError)
    }
}

/// A queue inside one store. A queue that is deleted and created again has a new id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct QueueId(pub u32);

/// Proof of the right to settle one delivery of one item.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LeaseToken(pub Uuid);

impl LeaseToken {
    /// When the lease began, by the store's clock. A token begins with this time, as ids do.
    #[must_use]
    pub fn issued_at(self) -> Timestamp {
        Timestamp(self.0.as_u64_pair().0 >> 16)
    }
}

impl fmt::Display for LeaseToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.simple().fmt(f)
    }
}

impl fmt::Debug for LeaseToken {
    /// A token is a secret. Logs get just enough of it to distinguish two tokens.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lease:{:04x}…", self.0.as_u64_pair().0 & 0xffff)
    }
}

impl std::str::FromStr for LeaseToken {
    type Err = IdError;
    fn from_str(text: &str) -> Result<LeaseToken, IdError> {
        Uuid::parse_str(text).map(LeaseToken).map_err(|_| IdError)
    }
}

/// Entropy for the tokens of one receive call. A token reveals nothing about the other tokens of the call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TokenSeed(pub [u8; 32]);

impl TokenSeed {
    /// 48 bits of time and 80 bits that cannot be guessed.
    #[must_use]
    pub fn token(&self, index: u32, now: Timestamp) -> LeaseToken {
        let hash = blake3::keyed_hash(&self.0, &index.to_le_bytes());
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&hash.as_bytes()[..16]);
        bytes[..6].copy_from_slice(&now.0.to_be_bytes()[2..]);
        LeaseToken(Uuid::from_bytes(bytes))
    }
}

impl fmt::Debug for TokenSeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenSeed(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_id_carries_its_sequence_number(salt: u64, time in 0..=Timestamp::MAX.0, sequence in 0..=SEQUENCE_MAX) {
            let id = ItemId::derive(salt, Timestamp(time), sequence);
            prop_assert_eq!(id.sequence(salt), Some(sequence));
            prop_assert_eq!(id.0.get_version_num(), 7);
            prop_assert_eq!(id.0.get_variant(), uuid::Variant::RFC4122);
        }

        #[test]
        fn a_forged_id_has_no_sequence_number(salt: u64, time in 0..=Timestamp::MAX.0, sequence in 0..=SEQUENCE_MAX, bit in 0..34u32) {
            let (high, low) = ItemId::derive(salt, Timestamp(time), sequence).0.as_u64_pair();
            prop_assert_eq!(ItemId(Uuid::from_u64_pair(high, low ^ 1 << bit)).sequence(salt), None);
        }

        #[test]
        fn ids_sort_by_time_then_sequence(salt: u64, a in (0..1u64 << 48, 0..=SEQUENCE_MAX), b in (0..1u64 << 48, 0..=SEQUENCE_MAX)) {
            let ids = (ItemId::derive(salt, Timestamp(a.0), a.1), ItemId::derive(salt, Timestamp(b.0), b.1));
            prop_assert_eq!(ids.0.cmp(&ids.1), a.cmp(&b));
        }
    }

    #[test]
    fn tokens_of_one_seed_differ() {
        let seed = TokenSeed([7; 32]);
        let token = |index| seed.token(index, Timestamp(17));
        assert_ne!(token(0), token(1));
        assert_eq!(token(3), token(3));
        assert!(!format!("{:?}", token(0)).contains(&token(0).to_string()));
        assert_ne!(
            format!("{:?}", token(0)),
            format!("{:?}", token(1)),
            "the printed part is not the time alone"
        );
    }

    #[test]
    fn a_token_carries_the_time_of_issue() {
        for now in [Timestamp(0), Timestamp(1_763_300_000_000), Timestamp::MAX] {
            assert_eq!(TokenSeed([7; 32]).token(2, now).issued_at(), now);
        }
    }
}
