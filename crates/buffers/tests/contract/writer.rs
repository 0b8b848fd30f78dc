//! A writer that counts, hashes and links its chunks, as a client does.

use bytes::Bytes;
use futures::TryStreamExt;
use towline_buffers::{Buffers, Hash, NewChunk, Position, PutOutcome, Result, WriterId};

use crate::storage::{LONG_WAIT, NOW, WRITER};

#[derive(Debug, Clone)]
pub struct TestWriter {
    pub id: String,
    pub writer: WriterId,
    pub position: Position,
}

impl TestWriter {
    pub fn new(id: &str) -> Self {
        Self { id: id.to_owned(), writer: WRITER, position: Position::START }
    }

    /// Builds the next chunk without sending it.
    pub fn next(&mut self, data: &[u8]) -> NewChunk {
        let hash: Hash = blake3::hash(data);
        let n = self.position.chunks;
        self.position = self.position.after(data.len() as u64, &hash);
        NewChunk { n, hash, chain: self.position.chain, data: vec![Bytes::copy_from_slice(data)] }
    }

    pub async fn put(&mut self, buffers: &Buffers, data: &[u8]) -> Result<PutOutcome> {
        let chunk = self.next(data);
        buffers.put_chunk(&self.id, self.writer, chunk, NOW).await
    }

    pub async fn finish(&self, buffers: &Buffers) -> Result<()> {
        buffers.finish(&self.id, self.writer, self.position, NOW).await
    }
}

/// Creates, writes and finishes a buffer.
pub async fn written(buffers: &Buffers, id: &str, chunks: &[&[u8]]) -> TestWriter {
    buffers.create(id, Default::default(), NOW).await.unwrap();
    buffers.begin(id, WRITER, NOW).await.unwrap();
    let mut writer = TestWriter::new(id);
    for data in chunks {
        writer.put(buffers, data).await.unwrap();
    }
    writer.finish(buffers).await.unwrap();
    writer
}

pub async fn read_range(buffers: &Buffers, id: &str, start: u64, end: u64) -> Result<Vec<u8>> {
    let pieces: Vec<Bytes> = buffers.read(id, start..end, LONG_WAIT, NOW).await?.try_collect().await?;
    Ok(pieces.concat())
}

pub async fn read_all(buffers: &Buffers, id: &str) -> Result<Vec<u8>> {
    read_range(buffers, id, 0, u64::MAX).await
}
