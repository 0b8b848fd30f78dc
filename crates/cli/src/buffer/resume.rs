//! Resuming an interrupted transfer. What exists already is checked by its hash.

use crate::exit::Failure;
use bytes::BytesMut;
use std::fs::{File, Metadata};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use towline_api::CHUNK_BYTES;
use towline_api::chain::{self, Hash, Position};
use towline_api::client::ChunkLookup;
use towline_api::{Client, ClientError};

/// A writer token that a later process can compute again, from the buffer's id and the file's path, size and
/// time.
pub fn writer(id: &str, path: &Path) -> Result<[u8; 16], Failure> {
    let about = |path: &Path| -> io::Result<(std::path::PathBuf, Metadata)> {
        let path = path.canonicalize()?;
        let metadata = path.metadata()?;
        Ok((path, metadata))
    };
    let (path, about) =
        about(path).map_err(|error| Failure::Refused(format!("cannot read {}: {error}", path.display())))?;
    let text = format!("{id}\n{}\n{}\n{}.{}", path.display(), about.len(), about.mtime(), about.mtime_nsec());
    let hash = chain::hash([text.as_bytes()]);
    Ok(std::array::from_fn(|at| hash.as_bytes()[at]))
}

/// Skips the part of the file that the server has, after checking that it is the same.
pub fn skip_written(input: &mut File, written: Position) -> Result<(), Failure> {
    let mut at = Position::START;
    while at.bytes < written.bytes {
        let length = (written.bytes - at.bytes).min(CHUNK_BYTES as u64);
        match hash_next(input, length)? {
            Some(hash) => at = at.after(length, &hash),
            None => break,
        }
    }
    if at == written {
        return Ok(());
    }
    Err(Failure::refused(
        "the buffer does not hold the beginning of this file; write the file to another buffer",
    ))
}

/// Keeps the correct part of an interrupted read, and leaves the file positioned at its end.
pub async fn keep_read(client: &Client, id: &str, output: &mut File) -> Result<Position, Failure> {
    let refused = |error: io::Error| Failure::Refused(format!("cannot resume the output: {error}"));
    let there = output.metadata().map_err(refused)?.len();
    let mut at = Position::START;
    output.rewind().map_err(refused)?;
    while at.bytes < there {
        let ChunkLookup::Chunk(chunk) = client.chunk_head(id, at.chunks).await? else { break };
        let after = at.after(chunk.length, &chunk.hash);
        if after.chain != chunk.chain {
            let what = format!("chunk {} of buffer {id:?} does not continue the chain", at.chunks);
            return Err(ClientError::Protocol { url: client.url().to_owned(), what }.into());
        }
        if hash_next(output, chunk.length)? != Some(chunk.hash) {
            break;
        }
        at = after;
    }
    output.set_len(at.bytes).map_err(refused)?;
    output.seek(SeekFrom::Start(at.bytes)).map_err(refused)?;
    Ok(at)
}

/// Hashes the next bytes. `None` if the file has fewer.
fn hash_next(file: &mut File, length: u64) -> Result<Option<Hash>, Failure> {
    let length = usize::try_from(length).unwrap_or(usize::MAX).min(towline_api::CHUNK_BYTES_MAX);
    let mut data = BytesMut::zeroed(length);
    match file.read_exact(&mut data) {
        Ok(()) => Ok(Some(chain::hash([&data[..]]))),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(Failure::Refused(format!("cannot read the file: {error}"))),
    }
}
