//! Small immutable objects, for payload fields that do not ride with their item. Who names them decides when they go:
//! list them, and delete those that nobody names.

use bytes::Bytes;

use crate::blob_format::{BLOB_HEADER_LEN, BlobHeader, pack, unpack};
use crate::id::check_id;
use crate::storage::{At, page_limit};
use crate::{BlobPage, BufferError, Buffers, ListedBlob, Result};

/// The longest content of a blob.
pub const BLOB_BYTES_MAX: u64 = 64 << 20;

impl Buffers {
    /// Stores a blob, compressed if that helps. The same again is acknowledged.
    pub async fn put_blob(&self, key: &str, content: Bytes) -> Result<()> {
        check_id(key)?;
        let at = At::new("writing blob", key);
        let bytes = content.len() as u64;
        if bytes > BLOB_BYTES_MAX {
            return Err(BufferError::BlobTooLarge { key: key.to_owned(), bytes, bytes_max: BLOB_BYTES_MAX });
        }
        let object = off_the_runtime(move || pack(&content), at).await?;
        let ours = BlobHeader::decode(&object).map_err(|problem| at.damaged(problem))?;
        let path = self.storage().blob(key);
        if self.storage().create(&path, object, at).await? {
            return Ok(());
        }
        let there = self.storage().get_beginning(&path, BLOB_HEADER_LEN as u64, at).await?;
        let there = there.ok_or_else(|| at.unsettled())?;
        let there = BlobHeader::decode(&there.bytes).map_err(|problem| at.damaged(problem))?;
        if (there.length, there.hash) != (ours.length, ours.hash) {
            return Err(BufferError::BlobConflict { key: key.to_owned() });
        }
        self.storage().settle(&path, at).await
    }

    /// A blob of at most `bytes_max` bytes, its hash checked.
    pub async fn get_blob(&self, key: &str, bytes_max: u64) -> Result<Bytes> {
        check_id(key)?;
        let at = At::new("reading blob", key);
        let missing = || BufferError::BlobNotFound { key: key.to_owned() };
        let path = self.storage().blob(key);
        // As it is stored when it could not be compressed, it is longest.
        let object_max = bytes_max.min(BLOB_BYTES_MAX) + BLOB_HEADER_LEN as u64;
        let bytes = self.storage().size(&path, at).await?.ok_or_else(missing)?;
        if bytes > object_max {
            let bytes = bytes - BLOB_HEADER_LEN as u64;
            return Err(BufferError::BlobTooLarge { key: key.to_owned(), bytes, bytes_max });
        }
        let object = self.storage().get(&path, object_max, at).await?.ok_or_else(missing)?;
        let header = BlobHeader::decode(&object).map_err(|problem| at.damaged(problem))?;
        if header.length > bytes_max.min(BLOB_BYTES_MAX) {
            return Err(BufferError::BlobTooLarge { key: key.to_owned(), bytes: header.length, bytes_max });
        }
        off_the_runtime(move || unpack(&header, &object), at).await?.map_err(|problem| at.damaged(problem))
    }

    /// That it is not there is no error.
    pub async fn delete_blob(&self, key: &str) -> Result<()> {
        check_id(key)?;
        self.storage().delete(&self.storage().blob(key), At::new("deleting blob", key)).await
    }

    /// Blobs after a key, for whoever knows which of them are still named: at most `limit` (1 to 1000).
    pub async fn list_blobs(&self, after: Option<&str>, limit: usize) -> Result<BlobPage> {
        let after = after.unwrap_or_default();
        if !after.is_empty() {
            check_id(after)?;
        }
        let at = At::new("listing blobs after", after);
        let page = self.storage().page(&self.storage().blobs(), after, page_limit(limit), at).await?;
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

async fn off_the_runtime<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
    at: At<'_>,
) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(|error| at.io(&std::io::Error::other(error)))
}
