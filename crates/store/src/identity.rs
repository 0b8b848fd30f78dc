//! The identity of a store.

use std::collections::BTreeSet;
use towline_domain::digest;

/// The identity of a store. Servers that share a database see the same one; a new store has another. A copy of a store
/// (a restored backup or dump) has the identity of the original.
///
/// Several databases that are used as one store have one part each. A database that has not answered yet is unknown.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StoreIdentity {
    pub parts: BTreeSet<String>,
    /// How many databases have not answered yet.
    pub unknown: usize,
}

impl StoreIdentity {
    /// The identity of the store with this salt. Does not reveal the salt, because item ids can be guessed from it.
    #[must_use]
    pub fn of(salt: u64) -> StoreIdentity {
        let part = format!("{:016x}", digest::tag("identity of", &salt.to_string()));
        StoreIdentity { parts: BTreeSet::from([part]), unknown: 0 }
    }

    #[must_use]
    pub fn unknown() -> StoreIdentity {
        StoreIdentity { parts: BTreeSet::new(), unknown: 1 }
    }

    /// Of several stores used as one.
    #[must_use]
    pub fn merge(stores: impl IntoIterator<Item = StoreIdentity>) -> StoreIdentity {
        let mut merged = StoreIdentity::default();
        for StoreIdentity { parts, unknown } in stores {
            merged.parts.extend(parts);
            merged.unknown += unknown;
        }
        merged
    }

    #[must_use]
    pub fn is_known(&self) -> bool {
        self.unknown == 0
    }
}
