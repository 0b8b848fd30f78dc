//! The token of a replica or a slot of a trigger: `towl_<item>_<secret>`. The secret is derived from the lease on the item.

use blake3::Hash;
use std::fmt;
use towline_domain::{ItemId, LeaseToken};

const PREFIX: &str = "towl_";
/// A program that knows the token cannot derive the lease from it, so it cannot settle its own item.
const CONTEXT: &str = "towline 2026 lease secret";

/// What its holder may do follows from the item. It is valid as long as the lease.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct LeaseSecret {
    pub item: ItemId,
    /// Compares in constant time.
    secret: Hash,
}

impl LeaseSecret {
    #[must_use]
    pub fn new(item: ItemId, lease: LeaseToken) -> LeaseSecret {
        let mut derive = blake3::Hasher::new_derive_key(CONTEXT);
        derive.update(item.0.as_bytes()).update(lease.0.as_bytes());
        LeaseSecret { item, secret: derive.finalize() }
    }

    #[must_use]
    pub fn is_of(&self, lease: LeaseToken) -> bool {
        LeaseSecret::new(self.item, lease).secret == self.secret
    }

    /// `None` if the text is not such a token.
    #[must_use]
    pub fn parse(text: &str) -> Option<LeaseSecret> {
        let (item, secret) = text.strip_prefix(PREFIX)?.split_once('_')?;
        let read = LeaseSecret { item: item.parse().ok()?, secret: Hash::from_hex(secret).ok()? };
        // Only the canonical form, so that each token has exactly one text.
        (read.text() == text).then_some(read)
    }

    /// The token as a client sends it.
    #[must_use]
    pub fn text(&self) -> String {
        format!("{PREFIX}{}_{}", self.item, self.secret.to_hex())
    }
}

impl fmt::Debug for LeaseSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}_(hidden)", self.item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn a_token_belongs_to_one_lease_and_does_not_show_it() {
        let (item, lease) = (ItemId(Uuid::from_u128(7)), LeaseToken(Uuid::from_u128(8)));
        let secret = LeaseSecret::new(item, lease);
        let text = secret.text();
        assert_eq!(LeaseSecret::parse(&text), Some(secret));
        assert!(secret.is_of(lease) && !secret.is_of(LeaseToken(Uuid::from_u128(9))));
        assert!(!text.contains(&lease.to_string()), "{text}");
        assert!(format!("{secret:?}").ends_with("_(hidden)"));
        for bad in
            ["", "tow_1_00", &text[1..], &text[..text.len() - 1], &text.to_uppercase(), &format!("{text}0")]
        {
            assert_eq!(LeaseSecret::parse(bad), None, "{bad}");
        }
    }
}
