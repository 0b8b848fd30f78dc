//! Claims: an item can commit a buffer that was made for an attempt at another item. A claim, stored before that commit, keeps
//! the buffer when the attempt ends without it, and when the `output_ttl` of the attempt's queue is over.

use super::attachments::{Attachments, BufferBinding, operation_error};
use bytes::Bytes;
use towline_buffers::BufferError;
use towline_domain::{BufferId, FieldSet, Item, ItemId, Refusal};
use towline_store::{OperationResult, Store, StoreError};

/// Claims of one buffer. A committed claim makes further ones unnecessary, so this bounds commits that are under way or came to
/// nothing.
const CLAIMS_MAX: u32 = 64;
/// The text of an item id.
const CLAIM_BYTES_MAX: u64 = 36;

pub(crate) const CLAIM: &str = "claim.";

fn key(n: u32, id: &BufferId) -> String {
    format!("{CLAIM}{n}.{id}")
}

/// The buffer that a key of a claim names.
pub(crate) fn claimed(key: &str) -> Option<&str> {
    Some(key.strip_prefix(CLAIM)?.split_once('.')?.1)
}

/// What a claim is worth.
enum CommitClaim {
    Committed,
    /// Its item can still commit.
    Open,
    /// Its item was removed, and may have committed.
    Unknown,
    Void,
}

impl Attachments {
    /// Says that an item is about to commit a buffer of an attempt at another item. A buffer that is kept for good needs no claim.
    pub(crate) async fn claim(
        &self,
        store: &dyn Store,
        id: &BufferId,
        expires_at_ms: Option<u64>,
        by: ItemId,
    ) -> OperationResult<()> {
        if expires_at_ms.is_none() && self.binding(store, id).await? == BufferBinding::Committed {
            return Ok(());
        }
        for n in 0..CLAIMS_MAX {
            match self.buffers.put_blob(&key(n, id), Bytes::from(by.to_string())).await {
                Ok(()) => return Ok(()),
                Err(BufferError::BlobConflict { .. }) => {}
                Err(error) => return Err(operation_error(error)),
            }
            if matches!(self.read_claim(store, id, n).await?, Some(CommitClaim::Committed)) {
                return Ok(());
            }
        }
        let what = "outputs".to_owned();
        Err(Refusal::BufferClaimed { what, id: id.to_string(), claims: CLAIMS_MAX }.into())
    }

    /// Whether another item committed a buffer of an attempt, or may do so now.
    pub(crate) async fn is_claimed(&self, store: &dyn Store, id: &BufferId) -> Result<bool, StoreError> {
        for n in 0..CLAIMS_MAX {
            match self.read_claim(store, id, n).await? {
                Some(CommitClaim::Void) => {}
                Some(CommitClaim::Committed | CommitClaim::Open | CommitClaim::Unknown) => return Ok(true),
                None => break,
            }
        }
        Ok(false)
    }

    async fn read_claim(
        &self,
        store: &dyn Store,
        id: &BufferId,
        n: u32,
    ) -> Result<Option<CommitClaim>, StoreError> {
        let by = match self.buffers.get_blob(&key(n, id), CLAIM_BYTES_MAX).await {
            Ok(content) => content,
            Err(BufferError::BlobNotFound { .. }) => return Ok(None),
            Err(error) => return Err(StoreError::ObjectStorage { cause: error.to_string() }),
        };
        let Some(by) = std::str::from_utf8(&by).ok().and_then(|text| text.parse::<ItemId>().ok()) else {
            return Ok(Some(CommitClaim::Unknown));
        };
        let found = store.get(vec![by], FieldSet::NONE).await?.pop().flatten();
        Ok(Some(found.map_or(CommitClaim::Unknown, |stored| CommitClaim::of(&stored.item, id))))
    }
}

impl CommitClaim {
    fn of(item: &Item, id: &BufferId) -> CommitClaim {
        if item.outcome.outputs.values().any(|output| output == id) {
            CommitClaim::Committed
        } else if item.head.lease().is_some() {
            CommitClaim::Open
        } else {
            CommitClaim::Void
        }
    }
}
