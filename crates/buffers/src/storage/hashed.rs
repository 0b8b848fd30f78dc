//! Reads an object and hashes it piece by piece, while each piece is still in the processor's cache.

use std::fs::File;
use std::io::Read;

use blake3::{Hash, Hasher};
use bytes::Bytes;
use object_store::path::Path;
use object_store::{Error as StoreError, GetResultPayload, ObjectStoreExt};

use super::{ErrorContext, Storage, blocking, check_complete, check_size, convert};
use crate::Result;

/// Fits into the processor's L2 cache.
const PIECE_BYTES: u64 = 256 << 10;

impl Storage {
    /// Reads an object, if it exists, and hashes all but its first `skip` bytes. Refuses an object longer than
    /// `bytes_max` without reading it.
    pub async fn get_hashed(
        &self,
        path: &Path,
        bytes_max: u64,
        skip: usize,
        context: ErrorContext<'_>,
    ) -> Result<Option<(Bytes, Hash)>> {
        let found = match self.objects.get(path).await {
            Ok(found) => found,
            Err(StoreError::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(convert(context, error)),
        };
        let size = found.meta.size;
        check_size(path, size, bytes_max, context)?;
        let read = match found.payload {
            GetResultPayload::File(file, _) => blocking(move || read_hashed(file, size, skip)).await,
            GetResultPayload::Stream(_) => {
                let bytes = found.bytes().await.map_err(|error| convert(context, error))?;
                blocking(move || Ok(hashed(bytes, skip))).await
            }
        };
        let (bytes, hash) = read.map_err(|error| context.io(&error))?;
        check_complete(path, &bytes, size, context)?;
        Ok(Some((bytes, hash)))
    }
}

fn read_hashed(mut file: File, bytes: u64, skip: usize) -> std::io::Result<(Bytes, Hash)> {
    let mut read = Vec::with_capacity(bytes as usize);
    let mut hasher = Hasher::new();
    let mut hashed_to = skip;
    while (read.len() as u64) < bytes {
        let piece = PIECE_BYTES.min(bytes - read.len() as u64);
        if (&mut file).take(piece).read_to_end(&mut read)? == 0 {
            break;
        }
        if let Some(new) = read.get(hashed_to..) {
            hasher.update(new);
            hashed_to = read.len();
        }
    }
    Ok((read.into(), hasher.finalize()))
}

fn hashed(bytes: Bytes, skip: usize) -> (Bytes, Hash) {
    let hash = blake3::hash(bytes.get(skip..).unwrap_or_default());
    (bytes, hash)
}
