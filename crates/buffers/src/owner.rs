//! The owner record: which store a location belongs to.
//!
//! **Invariant:** of several servers that claim a new location at the same time, one succeeds, and the others learn
//! its owner.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::format::records::{self, RECORD_BYTES_MAX};
use crate::storage::ErrorContext;
use crate::{Buffers, Result};

/// The store that a location belongs to. Only its servers may delete what no item refers to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// The identity of each database of the store.
    pub stores: BTreeSet<String>,
    pub since_ms: u64,
}

impl std::fmt::Display for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&Vec::from_iter(self.stores.iter().map(String::as_str)).join("+"))
    }
}

impl Buffers {
    /// The owner of the location; `None` if no store has claimed it.
    pub async fn owner(&self) -> Result<Option<Owner>> {
        let context = ErrorContext::new("reading", "owner");
        let found = self.storage().get(&self.storage().owner(), RECORD_BYTES_MAX, context).await?;
        found.map(|bytes| records::decode(&bytes, context)).transpose()
    }

    /// Makes a store the owner, unless the location has one. Returns the owner of the location.
    pub async fn claim(&self, owner: Owner) -> Result<Owner> {
        let context = ErrorContext::new("creating", "owner");
        let path = self.storage().owner();
        if self.storage().create(&path, records::encode(&owner, context)?, context).await? {
            return Ok(owner);
        }
        self.storage().sync_parent(&path, context).await?;
        self.owner().await?.ok_or_else(|| context.inconsistent())
    }

    /// Makes a store the owner, whichever store owned the location before.
    pub async fn replace_owner(&self, owner: &Owner) -> Result<()> {
        let context = ErrorContext::new("replacing", "owner");
        self.storage().overwrite(&self.storage().owner(), records::encode(owner, context)?, context).await
    }
}
