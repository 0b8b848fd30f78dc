//! A writer as a client would be: it counts, hashes and links its chunks.

use bytes::Bytes;
use futures::TryStreamExt;
use towline_buffers::{Buffers, Hash, NewChunk, Position, Result, Stored, WriterId, link};

use crate::rig::{LONG, NOW, WRITER};

#[derive(Debug, Clone)]
pub struct Script {
    pub id: String,
    pub writer: WriterId,
    pub position: Position,
}

impl Script {
    pub fn new(id: &str) -> Self {
        Self { id: id.to_owned(), writer: WRITER, position: Position::START }
    }

    /// The next chunk; not sent.
    pub fn next(&mut self, data: &[u8]) -> NewChunk {
        let hash: Hash = blake3::hash(data);
        let Position { chunks, bytes, chain } = self.position;
        let length = data.len() as u64;
        let chain = link(&chain, chunks, length, &hash);
        self.position = Position { chunks: chunks + 1, bytes: bytes + length, chain };
        NewChunk { n: chunks, hash, chain, data: vec![Bytes::copy_from_slice(data)] }
    }

    pub async fn put(&mut self, buffers: &Buffers, data: &[u8]) -> Result<Stored> {
        let chunk = self.next(data);
        buffers.put_chunk(&self.id, self.writer, chunk, NOW).await
    }

    pub async fn finish(&self, buffers: &Buffers) -> Result<()> {
        buffers.finish(&self.id, self.writer, self.position, NOW).await
    }
}

/// Creates and writes a whole buffer.
pub async fn written(buffers: &Buffers, id: &str, chunks: &[&[u8]]) -> Script {
    buffers.create(id, Default::default(), NOW).await.unwrap();
    buffers.begin(id, WRITER, NOW).await.unwrap();
    let mut script = Script::new(id);
    for data in chunks {
        script.put(buffers, data).await.unwrap();
    }
    script.finish(buffers).await.unwrap();
    script
}

pub async fn read_range(buffers: &Buffers, id: &str, start: u64, end: u64) -> Result<Vec<u8>> {
    let pieces: Vec<Bytes> = buffers.read(id, start..end, LONG, NOW).await?.try_collect().await?;
    Ok(pieces.concat())
}

pub async fn read_all(buffers: &Buffers, id: &str) -> Result<Vec<u8>> {
    read_range(buffers, id, 0, u64::MAX).await
}
