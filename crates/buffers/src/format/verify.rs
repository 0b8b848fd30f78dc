//! Checks the hash of received data, and headers and hashes of stored chunks.

use blake3::Hash;
use bytes::Bytes;

use crate::format::chunk_header::{CHUNK_HEADER_LEN, ChunkHeader};
use crate::storage::ErrorContext;
use crate::{Chunk, Result};

/// Up to this size, hashing takes less time than moving the work to another thread.
const HASH_INLINE_BYTES_MAX: usize = 64 << 10;

pub(crate) async fn hash_pieces(pieces: Vec<Bytes>, context: ErrorContext<'_>) -> Result<Hash> {
    let bytes: usize = pieces.iter().map(Bytes::len).sum();
    let hash = move || {
        let mut hasher = blake3::Hasher::new();
        for piece in &pieces {
            hasher.update(piece);
        }
        hasher.finalize()
    };
    if bytes <= HASH_INLINE_BYTES_MAX {
        return Ok(hash());
    }
    tokio::task::spawn_blocking(hash).await.map_err(|error| context.io(&std::io::Error::other(error)))
}

/// Parses and checks the header of chunk `n`.
pub(crate) fn parse_header(
    prefix: &[u8],
    object_bytes: u64,
    n: u32,
    context: ErrorContext<'_>,
) -> Result<ChunkHeader> {
    let header = ChunkHeader::decode(prefix)
        .map_err(|problem| context.damaged(format!("chunk {n} is not valid: {problem}")))?;
    if header.n != n {
        return Err(context.damaged(format!("chunk {} is stored under the name of chunk {n}", header.n)));
    }
    if CHUNK_HEADER_LEN as u64 + header.length != object_bytes {
        let stored = object_bytes.saturating_sub(CHUNK_HEADER_LEN as u64);
        return Err(context.damaged(format!("chunk {n} has {stored} of {} bytes", header.length)));
    }
    Ok(header)
}

/// Parses chunk `n` from a whole object and checks the hash of its data.
pub(crate) fn parse_chunk(
    object: &Bytes,
    data_hash: Hash,
    n: u32,
    context: ErrorContext<'_>,
) -> Result<Chunk> {
    let header = parse_header(object, object.len() as u64, n, context)?;
    if data_hash != header.hash {
        return Err(context.damaged(format!("the hash of chunk {n} is wrong")));
    }
    Ok(Chunk { header, data: vec![object.slice(CHUNK_HEADER_LEN..)] })
}
