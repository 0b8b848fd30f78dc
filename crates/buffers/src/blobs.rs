//! Blobs: small immutable objects for offloaded payload fields.
//!
//! The broker decides when to delete blobs: it lists them and deletes each one that no item refers to.

use bytes::Bytes;

use crate::format::blob::{self, BLOB_HEADER_LEN, BlobHeader};
use crate::id::check_id;
use crate::storage::{ErrorContext, page_limit};
use crate::{BufferError, Buffers, Result};

/// The maximum length of a blob's content, in bytes.
pub const BLOB_BYTES_MAX: u64 = 64 << 20;

/// A page of blobs in the order of their keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlobPage {
    pub blobs: Vec<ListedBlob>,
    /// The `after` of the next page; `None` after the last page.
    pub next: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedBlob {
    pub key: String,
    /// The size of the stored object: with its header, compressed.
    pub stored_bytes: u64,
    /// By the clock of the storage.
    pub written_at_ms: u64,
}

impl Buffers {
    /// Stores a blob, compressed if that saves enough. A repeat with the same content succeeds.
    pub async fn put_blob(&self, key: &str, content: Bytes) -> Result<()> {
        check_id(key)?;
        let context = ErrorContext::new("writing blob", key);
        let bytes = content.len() as u64;
        if bytes > BLOB_BYTES_MAX {
            return Err(BufferError::BlobTooLarge { key: key.to_owned(), bytes, bytes_max: BLOB_BYTES_MAX });
        }
        let object = run_blocking(move || blob::encode(&content), context).await?;
        let new = BlobHeader::decode(&object).map_err(|problem| context.damaged(problem))?;
        let path = self.storage().blob(key);
        if self.storage().create(&path, object, context).await? {
            return Ok(());
        }
        let existing = self.storage().get_prefix(&path, BLOB_HEADER_LEN as u64, context).await?;
        let existing = existing.ok_or_else(|| context.inconsistent())?;
        let existing = BlobHeader::decode(&existing.bytes).map_err(|problem| context.damaged(problem))?;
        if (existing.length, existing.hash) != (new.length, new.hash) {
            return Err(BufferError::BlobConflict { key: key.to_owned() });
        }
        self.storage().sync_parent(&path, context).await
    }

    /// Reads a blob of at most `bytes_max` bytes and checks its hash.
    pub async fn get_blob(&self, key: &str, bytes_max: u64) -> Result<Bytes> {
        check_id(key)?;
        let context = ErrorContext::new("reading blob", key);
        let missing = || BufferError::BlobNotFound { key: key.to_owned() };
        let path = self.storage().blob(key);
        // An uncompressed object is the longest possible one.
        let object_max = bytes_max.min(BLOB_BYTES_MAX) + BLOB_HEADER_LEN as u64;
        let bytes = self.storage().size(&path, context).await?.ok_or_else(missing)?;
        if bytes > object_max {
            let bytes = bytes - BLOB_HEADER_LEN as u64;
            return Err(BufferError::BlobTooLarge { key: key.to_owned(), bytes, bytes_max });
        }
        let object = self.storage().get(&path, object_max, context).await?.ok_or_else(missing)?;
        let header = BlobHeader::decode(&object).map_err(|problem| context.damaged(problem))?;
        if header.length > bytes_max.min(BLOB_BYTES_MAX) {
            return Err(BufferError::BlobTooLarge { key: key.to_owned(), bytes: header.length, bytes_max });
        }
        run_blocking(move || blob::decode(&header, &object), context)
            .await?
            .map_err(|problem| context.damaged(problem))
    }

    /// Deletes a blob. Succeeds if the blob does not exist.
    pub async fn delete_blob(&self, key: &str) -> Result<()> {
        check_id(key)?;
        self.storage().delete(&self.storage().blob(key), ErrorContext::new("deleting blob", key)).await
    }

    /// Lists at most `limit` (1 to 1000) blobs, starting after a key.
    pub async fn list_blobs(&self, after: Option<&str>, limit: usize) -> Result<BlobPage> {
        let after = after.unwrap_or_default();
        if !after.is_empty() {
            check_id(after)?;
        }
        let context = ErrorContext::new("listing blobs after", after);
        let page = self.storage().page(&self.storage().blobs(), after, page_limit(limit), context).await?;
        let next =
            (page.len() == page_limit(limit)).then(|| page.last().map(|(key, _)| key.clone())).flatten();
        let blobs = page.into_iter().map(|(key, object)| ListedBlob {
            key,
            stored_bytes: object.size,
            written_at_ms: u64::try_from(object.last_modified.timestamp_millis()).unwrap_or(0),
        });
        Ok(BlobPage { blobs: blobs.collect(), next })
    }
}

async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
    context: ErrorContext<'_>,
) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(|error| context.io(&std::io::Error::other(error)))
}
