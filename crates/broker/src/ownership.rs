//! The place for buffers belongs to one store. Collection deletes what no item of its store refers to, so on the place of
//! another store it would delete that store's payloads.
//!
//! **Invariant:** nothing is collected from a place unless its owner record names exactly the databases of this store.

use std::collections::BTreeSet;
use towline_buffers::{BufferError, Buffers, Owner};
use towline_domain::Timestamp;
use towline_store::StoreIdentity;

/// How a place belongs to the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ownership {
    Owned,
    /// This call made the store its owner. Databases may have been added to the store.
    Claimed,
    /// This call took the place over from another store.
    Adopted {
        from: String,
    },
    /// Not known yet: a database of the store has not answered, or the owner record cannot be written because the disk is
    /// full. Nothing is collected meanwhile.
    Undecided,
}

/// From which owners a store may take a place over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TakeOver {
    Never,
    /// From the original or another copy of this store, because the place was copied with the store.
    FromOriginal,
    FromAny,
}

#[derive(Debug, thiserror::Error)]
pub enum OwnershipError {
    #[error(transparent)]
    Storage(#[from] BufferError),
    #[error("it belongs to the store {owner}, and this server uses the store {store}")]
    Foreign { owner: String, store: String },
    #[error(
        "it belongs to the store {owner}, and this server uses a copy of that store (a restored backup or dump), {store}: it \
         would delete what the original has stored since"
    )]
    Copy { owner: String, store: String },
    #[error("it belongs to the databases {owner}, and this server names only {store} of them")]
    Part { owner: String, store: String },
    #[error(
        "a database of the store does not answer, so the place cannot be adopted; try again when it does"
    )]
    Unknown,
}

/// Makes the store the owner of the place if the place has no owner. Refuses the place of another store, unless `take_over` allows
/// it.
pub async fn claim_buffers(
    buffers: &Buffers,
    store: &StoreIdentity,
    take_over: TakeOver,
    now: Timestamp,
) -> Result<Ownership, OwnershipError> {
    let own = Owner { stores: store.parts.clone(), since_ms: now.0 };
    let owner = match buffers.owner().await? {
        Some(owner) => owner,
        None if !store.is_known() => return Ok(Ownership::Undecided),
        None => match buffers.claim(own.clone()).await {
            Ok(owner) if owner == own => return Ok(Ownership::Claimed),
            Ok(owner) => owner,
            Err(BufferError::Full { .. }) => return Ok(Ownership::Undecided),
            Err(error) => return Err(error.into()),
        },
    };
    let is_copy = store.is_copy_of(&owner.stores);
    let adopt = match take_over {
        TakeOver::Never => false,
        TakeOver::FromOriginal => is_copy,
        TakeOver::FromAny => true,
    };
    match relation(&owner.stores, store) {
        Relation::Same => Ok(Ownership::Owned),
        Relation::Grown => match buffers.replace_owner(&own).await {
            Ok(()) => Ok(Ownership::Claimed),
            Err(BufferError::Full { .. }) => Ok(Ownership::Undecided),
            Err(error) => Err(error.into()),
        },
        Relation::Undecided if adopt => Err(OwnershipError::Unknown),
        Relation::Undecided => Ok(Ownership::Undecided),
        Relation::Part | Relation::Foreign if adopt && store.is_known() => {
            buffers.replace_owner(&own).await?;
            Ok(Ownership::Adopted { from: owner.to_string() })
        }
        Relation::Part | Relation::Foreign if adopt => Err(OwnershipError::Unknown),
        _ if is_copy => Err(OwnershipError::Copy { owner: owner.to_string(), store: own.to_string() }),
        Relation::Part => Err(OwnershipError::Part { owner: owner.to_string(), store: own.to_string() }),
        Relation::Foreign => {
            Err(OwnershipError::Foreign { owner: owner.to_string(), store: own.to_string() })
        }
    }
}

/// Whether the place is there and belongs to the store, as far as is known. An empty directory in place of one that is not mounted
/// has no owner.
pub(crate) async fn is_own_place(buffers: &Buffers, store: &StoreIdentity) -> bool {
    let owner = buffers.owner().await.ok().flatten();
    owner.is_some_and(|owner| !owner.stores.is_disjoint(&store.parts))
}

/// What the databases of a store are to those of an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Relation {
    Same,
    /// All of them, and new ones.
    Grown,
    /// Some of them are missing.
    Part,
    Foreign,
    /// Depends on databases that have not answered yet.
    Undecided,
}

fn relation(owner: &BTreeSet<String>, store: &StoreIdentity) -> Relation {
    let missing = owner.difference(&store.parts).count();
    let has_any = missing < owner.len();
    match (missing, store.unknown) {
        (0, 0) if owner.len() == store.parts.len() => Relation::Same,
        (0, 0) => Relation::Grown,
        (missing, unknown) if has_any && missing <= unknown => Relation::Undecided,
        _ if has_any && store.parts.is_subset(owner) => Relation::Part,
        _ => Relation::Foreign,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(names: &str) -> BTreeSet<String> {
        names.chars().map(String::from).collect()
    }

    #[test]
    fn a_store_may_grow_but_not_shrink() {
        for (owner, store, unknown, expected) in [
            ("a", "a", 0, Relation::Same),
            ("ab", "ab", 0, Relation::Same),
            ("a", "ab", 0, Relation::Grown),
            ("ab", "a", 0, Relation::Part),
            ("a", "b", 0, Relation::Foreign),
            ("ab", "bc", 0, Relation::Foreign),
            ("ab", "a", 1, Relation::Undecided),
            ("ab", "abc", 1, Relation::Undecided),
            ("abc", "a", 1, Relation::Part),
            ("a", "b", 1, Relation::Foreign),
            ("a", "", 1, Relation::Foreign),
        ] {
            let store = StoreIdentity { parts: parts(store), unknown };
            assert_eq!(relation(&parts(owner), &store), expected, "{owner} {store:?}");
        }
    }
}
