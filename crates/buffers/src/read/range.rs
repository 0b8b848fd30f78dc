//! Reads a range of a buffer as a stream of bytes, in constant memory, during or after writing.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{StreamExt, stream};
use tokio::task::JoinHandle;

use crate::format::chunk_sizes::ChunkOffset;
use crate::format::records::Outcome;
use crate::id::check_id;
use crate::read::status::ChunkScan;
use crate::storage::ErrorContext;
use crate::{BufferError, Buffers, CHAIN_START, Chunk, ChunkLookup, Hash, Position, Result, link};

/// How many chunks are fetched ahead.
const CHUNKS_AHEAD: usize = 2;

impl Buffers {
    /// Streams the bytes of a range (to the end: `start..u64::MAX`). Checks each chunk and the hash chain between chunks.
    ///
    /// Fetches at most two chunks ahead. Waits up to `wait` for each chunk that the writer has not stored yet. The
    /// stream ends without an error only at the end of the range or of the complete buffer.
    pub async fn read(
        &self,
        id: &str,
        range: Range<u64>,
        wait: Duration,
        now_ms: u64,
    ) -> Result<BoxStream<'static, Result<Bytes>>> {
        check_id(id)?;
        let context = ErrorContext::new("reading buffer", id);
        self.require_meta(context).await?;
        let (first, last) = self.locate(&range, context).await?;
        let reader = RangeReader {
            buffers: self.clone(),
            id: id.to_owned(),
            wait,
            now_ms,
            chain: (first.n == 0).then_some(CHAIN_START),
            offset: first.start,
            next: first.n,
            last,
            range,
            fetched: VecDeque::with_capacity(CHUNKS_AHEAD),
            pieces: VecDeque::new(),
        };
        let pieces = stream::unfold(Some(reader), |reader| async move {
            let mut reader = reader?;
            match reader.next_piece().await {
                Ok(Some(piece)) => Some((Ok(piece), Some(reader))),
                Ok(None) => None,
                Err(error) => Some((Err(error), None)),
            }
        });
        Ok(pieces.boxed())
    }

    /// The first chunk of a range, and the number of its last chunk as far as the sizes are known. If the range begins
    /// after the stored data, the first chunk is the next one to be stored.
    async fn locate(&self, range: &Range<u64>, context: ErrorContext<'_>) -> Result<(ChunkOffset, u32)> {
        if *range == (0..u64::MAX) {
            return Ok((ChunkOffset { n: 0, start: 0 }, u32::MAX));
        }
        let last_offset = range.end.saturating_sub(1);
        if let Some(end) = self.find_end(context).await?
            && let Outcome::Complete { sizes, .. } = &end.outcome
        {
            let Position { bytes, .. } = end.position(context)?;
            if range.start > bytes {
                return Err(BufferError::RangeOutside {
                    id: context.id.to_owned(),
                    start: range.start,
                    bytes,
                });
            }
            return Ok((sizes.find(range.start), sizes.find(last_offset).n));
        }
        let ChunkScan { position, sizes, .. } = self.scan_chunks(context).await?;
        let last = if last_offset < position.bytes { sizes.find(last_offset).n } else { u32::MAX };
        Ok((sizes.find(range.start), last))
    }
}

/// A fetch in the background. Dropping it stops it.
#[derive(Debug)]
struct Fetch(JoinHandle<Result<ChunkLookup>>);

impl Drop for Fetch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[derive(Debug)]
struct RangeReader {
    buffers: Buffers,
    id: String,
    wait: Duration,
    now_ms: u64,
    range: Range<u64>,
    /// The number of the next chunk to fetch.
    next: u32,
    /// The number of the last chunk of the range.
    last: u32,
    /// The offset of the next chunk to return.
    offset: u64,
    /// The hash chain before that chunk, if it is known.
    chain: Option<Hash>,
    fetched: VecDeque<Fetch>,
    /// Pieces of the last chunk that are not returned yet.
    pieces: VecDeque<Bytes>,
}

impl RangeReader {
    async fn next_piece(&mut self) -> Result<Option<Bytes>> {
        loop {
            if let Some(piece) = self.pieces.pop_front() {
                return Ok(Some(piece));
            }
            if self.offset >= self.range.end {
                return Ok(None);
            }
            while self.fetched.len() < CHUNKS_AHEAD && self.next <= self.last {
                self.fetch();
            }
            let Some(mut fetch) = self.fetched.pop_front() else {
                let what = "the sizes of its chunks differ from its end record".to_owned();
                return Err(BufferError::Damaged { id: self.id.clone(), what });
            };
            let n = self.next - self.fetched.len() as u32 - 1;
            let context = ErrorContext::new("reading buffer", &self.id);
            let next = (&mut fetch.0).await.map_err(|error| context.io(&std::io::Error::other(error)))??;
            match next {
                ChunkLookup::Chunk(chunk) => self.take(chunk)?,
                ChunkLookup::End(totals) => return self.check_end(totals),
                ChunkLookup::NotYet => return Err(BufferError::NotYet { id: self.id.clone(), n }),
            }
        }
    }

    fn fetch(&mut self) {
        let (buffers, id, n) = (self.buffers.clone(), self.id.clone(), self.next);
        let (wait, now_ms) = (self.wait, self.now_ms);
        self.fetched.push_back(Fetch(tokio::spawn(async move { buffers.chunk(&id, n, wait, now_ms).await })));
        self.next += 1;
    }

    /// Queues the part of a chunk that lies in the range.
    fn take(&mut self, chunk: Chunk) -> Result<()> {
        let header = chunk.header;
        if let Some(before) = &self.chain
            && link(before, header.n, header.length, &header.hash) != header.chain
        {
            return Err(BufferError::Damaged {
                id: self.id.clone(),
                what: format!("chunk {} does not continue the hash chain", header.n),
            });
        }
        self.chain = Some(header.chain);
        for piece in chunk.data {
            let length = piece.len() as u64;
            let from = self.range.start.saturating_sub(self.offset).min(length);
            let to = self.range.end.saturating_sub(self.offset).min(length);
            if from < to {
                self.pieces.push_back(piece.slice(from as usize..to as usize));
            }
            self.offset += length;
        }
        Ok(())
    }

    fn check_end(&self, totals: Position) -> Result<Option<Bytes>> {
        if self.range.start > totals.bytes {
            let (id, start, bytes) = (self.id.clone(), self.range.start, totals.bytes);
            return Err(BufferError::RangeOutside { id, start, bytes });
        }
        if self.offset != totals.bytes || self.chain.is_some_and(|chain| chain != totals.chain) {
            let what = "its content differs from its end record".to_owned();
            return Err(BufferError::Damaged { id: self.id.clone(), what });
        }
        Ok(None)
    }
}
