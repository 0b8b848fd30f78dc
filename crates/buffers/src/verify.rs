//! Checks of what was sent and of what was stored.

use blake3::Hash;
use bytes::Bytes;

use crate::header::{HEADER_LEN, Header};
use crate::storage::At;
use crate::{Chunk, Result};

/// Hashing less takes less time than handing it to another thread.
const HASH_HERE_MAX: usize = 64 << 10;

pub(crate) async fn hash_of(pieces: Vec<Bytes>, at: At<'_>) -> Result<Hash> {
    let bytes: usize = pieces.iter().map(Bytes::len).sum();
    let hash = move || {
        let mut hasher = blake3::Hasher::new();
        for piece in &pieces {
            hasher.update(piece);
        }
        hasher.finalize()
    };
    if bytes <= HASH_HERE_MAX {
        return Ok(hash());
    }
    tokio::task::spawn_blocking(hash).await.map_err(|error| at.io(&std::io::Error::other(error)))
}

/// The header of an object that should be chunk `n`.
pub(crate) fn header_of(beginning: &[u8], object_bytes: u64, n: u32, at: At<'_>) -> Result<Header> {
    let header = Header::decode(beginning)
        .map_err(|problem| at.damaged(format!("chunk {n} cannot be used: {problem}")))?;
    if header.n != n {
        return Err(at.damaged(format!("in the place of chunk {n} there is chunk {}", header.n)));
    }
    if HEADER_LEN as u64 + header.length != object_bytes {
        let there = object_bytes.saturating_sub(HEADER_LEN as u64);
        return Err(at.damaged(format!("chunk {n} has {there} of {} bytes", header.length)));
    }
    Ok(header)
}

/// A chunk from a whole object, if its data has the hash that was written.
pub(crate) fn chunk_of(object: &Bytes, data_hash: Hash, n: u32, at: At<'_>) -> Result<Chunk> {
    let header = header_of(object, object.len() as u64, n, at)?;
    if data_hash != header.hash {
        return Err(at.damaged(format!("the data of chunk {n} is not what was written")));
    }
    Ok(Chunk { header, data: vec![object.slice(HEADER_LEN..)] })
}
