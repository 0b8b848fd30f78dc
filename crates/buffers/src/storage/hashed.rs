//! Reading a whole object and hashing it on the way, while what was just read is still near the processor.

use std::fs::File;
use std::io::Read;

use blake3::{Hash, Hasher};
use bytes::Bytes;
use object_store::path::Path;
use object_store::{Error as StoreError, GetResultPayload, ObjectStoreExt};

use super::{At, Storage, blocking, fault};
use crate::Result;

/// Fits the nearer caches with room to spare.
const PIECE: u64 = 256 << 10;

impl Storage {
    /// The whole object and the hash of all but its first `skip` bytes, if it is there and has at most `bytes_max`
    /// bytes; a longer one is not read.
    pub async fn get_hashed(
        &self,
        path: &Path,
        bytes_max: u64,
        skip: usize,
        at: At<'_>,
    ) -> Result<Option<(Bytes, Hash)>> {
        let found = match self.objects.get(path).await {
            Ok(found) => found,
            Err(StoreError::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(fault(at, error)),
        };
        let said = found.meta.size;
        if said > bytes_max {
            return Err(at.damaged(format!("{path} has {said} bytes, at most {bytes_max} are possible")));
        }
        let read = match found.payload {
            GetResultPayload::File(file, _) => blocking(move || read_hashed(file, said, skip)).await,
            GetResultPayload::Stream(_) => {
                let bytes = found.bytes().await.map_err(|error| fault(at, error))?;
                blocking(move || Ok(hashed(bytes, skip))).await
            }
        };
        let (bytes, hash) = read.map_err(|error| at.io(&error))?;
        if bytes.len() as u64 != said {
            return Err(at.damaged(format!("{path} gave {} of {said} bytes", bytes.len())));
        }
        Ok(Some((bytes, hash)))
    }
}

fn read_hashed(mut file: File, bytes: u64, skip: usize) -> std::io::Result<(Bytes, Hash)> {
    let mut read = Vec::with_capacity(bytes as usize);
    let mut hasher = Hasher::new();
    let mut hashed_to = skip;
    while (read.len() as u64) < bytes {
        let piece = PIECE.min(bytes - read.len() as u64);
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
