//! A buffer as a stream of bytes, from any offset, in constant memory, while it is written or after.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use blake3::Hash;
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{StreamExt, stream};
use tokio::task::JoinHandle;

use crate::header::CHAIN_START;
use crate::id::check_id;
use crate::showing::Survey;
use crate::sizes::Found;
use crate::storage::At;
use crate::stored::Outcome;
use crate::{BufferError, Buffers, Chunk, Next, Position, Result, link};

/// Chunks fetched before they are asked for.
const CHUNKS_AHEAD: usize = 2;

impl Buffers {
    /// The bytes of a range (to the end: `start..u64::MAX`), each chunk and the chain between them checked, at most
    /// two chunks fetched ahead. While the buffer is being written it waits for what is to come, at most `wait` for
    /// each chunk. The stream ends well only where the range or the complete buffer ends.
    pub async fn read(
        &self,
        id: &str,
        range: Range<u64>,
        wait: Duration,
        now_ms: u64,
    ) -> Result<BoxStream<'static, Result<Bytes>>> {
        check_id(id)?;
        let at = At::new("reading buffer", id);
        self.need_meta(at).await?;
        let (first, last) = self.locate(&range, at).await?;
        let reading = Reading {
            buffers: self.clone(),
            id: id.to_owned(),
            wait,
            now_ms,
            chain: (first.n == 0).then_some(CHAIN_START),
            offset: first.begins_at,
            next: first.n,
            last,
            range,
            fetched: VecDeque::with_capacity(CHUNKS_AHEAD),
            pieces: VecDeque::new(),
        };
        let pieces = stream::unfold(Some(reading), |reading| async move {
            let mut reading = reading?;
            match reading.next_piece().await {
                Ok(Some(piece)) => Some((Ok(piece), Some(reading))),
                Ok(None) => None,
                Err(error) => Some((Err(error), None)),
            }
        });
        Ok(pieces.boxed())
    }

    /// The chunk in which a range begins (or the one after all that is stored now), and the number after which nothing
    /// of the range can come, as far as the sizes are known.
    async fn locate(&self, range: &Range<u64>, at: At<'_>) -> Result<(Found, u32)> {
        if *range == (0..u64::MAX) {
            return Ok((Found { n: 0, begins_at: 0 }, u32::MAX));
        }
        let last_offset = range.end.saturating_sub(1);
        if let Some(end) = self.find_end(at).await?
            && let Outcome::Complete { sizes, .. } = &end.outcome
        {
            let Position { bytes, .. } = end.position(at)?;
            if range.start > bytes {
                return Err(BufferError::RangeOutside { id: at.id.to_owned(), start: range.start, bytes });
            }
            return Ok((sizes.find(range.start), sizes.find(last_offset).n));
        }
        let Survey { position, sizes, .. } = self.survey(at).await?;
        let last = if last_offset < position.bytes { sizes.find(last_offset).n } else { u32::MAX };
        Ok((sizes.find(range.start), last))
    }
}

/// A fetch in the background; it stops when nobody wants it any more.
#[derive(Debug)]
struct Fetch(JoinHandle<Result<Next>>);

impl Drop for Fetch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[derive(Debug)]
struct Reading {
    buffers: Buffers,
    id: String,
    wait: Duration,
    now_ms: u64,
    range: Range<u64>,
    /// The number of the next chunk to fetch.
    next: u32,
    /// Nothing after this number is worth fetching.
    last: u32,
    /// Where the next chunk to hand out begins.
    offset: u64,
    /// The chain before that chunk, if it is known.
    chain: Option<Hash>,
    fetched: VecDeque<Fetch>,
    /// Pieces of the last chunk that are still to be handed out.
    pieces: VecDeque<Bytes>,
}

impl Reading {
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
                let what = "its chunks have other sizes than was said".to_owned();
                return Err(BufferError::Damaged { id: self.id.clone(), what });
            };
            let n = self.next - self.fetched.len() as u32 - 1;
            let at = At::new("reading buffer", &self.id);
            let next = (&mut fetch.0).await.map_err(|error| at.io(&std::io::Error::other(error)))??;
            match next {
                Next::Chunk(chunk) => self.take(chunk)?,
                Next::End(totals) => return self.check_end(totals),
                Next::NotYet => return Err(BufferError::NotYet { id: self.id.clone(), n }),
            }
        }
    }

    fn fetch(&mut self) {
        let (buffers, id, n) = (self.buffers.clone(), self.id.clone(), self.next);
        let (wait, now_ms) = (self.wait, self.now_ms);
        self.fetched.push_back(Fetch(tokio::spawn(async move { buffers.chunk(&id, n, wait, now_ms).await })));
        self.next += 1;
    }

    /// Takes the part of a chunk that is in the range, if any.
    fn take(&mut self, chunk: Chunk) -> Result<()> {
        let header = chunk.header;
        if let Some(before) = &self.chain
            && link(before, header.n, header.length, &header.hash) != header.chain
        {
            return Err(BufferError::Damaged {
                id: self.id.clone(),
                what: format!("chunk {} does not continue the chain of those before it", header.n),
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
            let what = "what was read is not what its writer finished".to_owned();
            return Err(BufferError::Damaged { id: self.id.clone(), what });
        }
        Ok(None)
    }
}
