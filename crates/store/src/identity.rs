//! The identity of a store.

use std::collections::BTreeSet;
use towline_domain::digest;

/// Between the identity of the original and the history of its copy.
const COPY: char = '-';

/// The identity of a store. Servers that share a database see the same one; a new store has another, and so does a copy of a
/// store (a restored backup or dump), because the original may still be in use.
///
/// Several databases that are used as one store have one part each. A database that has not answered yet is unknown.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StoreIdentity {
    pub parts: BTreeSet<String>,
    /// How many databases have not answered yet.
    pub unknown: usize,
}

impl StoreIdentity {
    /// The identity of the store with this salt and this history (0 for an original). Does not reveal the salt, because item ids can
    /// be guessed from it.
    #[must_use]
    pub fn of(salt: u64, history: u32) -> StoreIdentity {
        let original = format!("{:016x}", digest::tag("identity of", &salt.to_string()));
        let part = match history {
            0 => original,
            history => format!("{original}{COPY}{history:08x}"),
        };
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

    /// Whether this store and the one with these parts began as one: one of them is a copy, or both are.
    #[must_use]
    pub fn is_copy_of(&self, parts: &BTreeSet<String>) -> bool {
        self.is_known() && originals(&self.parts) == originals(parts) && self.parts != *parts
    }
}

fn originals(parts: &BTreeSet<String>) -> BTreeSet<&str> {
    parts.iter().map(|part| part.split_once(COPY).map_or(&**part, |(original, _)| original)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_has_an_identity_of_its_own_and_knows_its_original() {
        let (original, copy, other) =
            (StoreIdentity::of(7, 0), StoreIdentity::of(7, 5), StoreIdentity::of(8, 0));
        assert_ne!(original, copy);
        assert!(copy.is_copy_of(&original.parts) && original.is_copy_of(&copy.parts));
        assert!(copy.is_copy_of(&StoreIdentity::of(7, 6).parts));
        assert!(!original.is_copy_of(&original.parts) && !other.is_copy_of(&original.parts));
        let both = |history| StoreIdentity::merge([other.clone(), StoreIdentity::of(7, history)]);
        assert!(both(5).is_copy_of(&both(0).parts));
        assert!(!copy.is_copy_of(&both(0).parts));
    }
}
