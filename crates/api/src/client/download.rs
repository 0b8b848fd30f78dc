//! Reads a whole buffer: chunk by chunk, some ahead, each checked, waiting for a writer that is not done or has not
//! begun.

use super::{ChunkLookup, ChunkRead, Client, ClientError, Result};
use crate::chain::{self, Position};
use bytes::Bytes;
use std::collections::VecDeque;
use std::time::Duration;
use tokio::task::JoinHandle;

/// Chunks under way at one time.
const AHEAD: usize = 4;
/// How long one call waits for a chunk that is not there yet.
const WAIT: Duration = Duration::from_secs(60);
/// How often a chunk is asked for again whose bytes were changed on the way.
const TRIES: usize = 3;

/// A buffer that is being read, in order and without a gap.
#[derive(Debug)]
pub struct Download {
    client: Client,
    id: String,
    /// After all that was given out.
    at: Position,
    under_way: VecDeque<Fetch>,
}

/// Ends with whoever waits for it.
#[derive(Debug)]
struct Fetch(JoinHandle<Result<ChunkLookup>>);

impl Drop for Fetch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Download {
    /// Goes on from a position whose chain is known; from the beginning: [`Position::START`].
    #[must_use]
    pub fn new(client: Client, id: &str, from: Position) -> Download {
        Download { client, id: id.to_owned(), at: from, under_way: VecDeque::new() }
    }

    #[must_use]
    pub fn position(&self) -> Position {
        self.at
    }

    /// The bytes of the next chunk, in pieces; `None` when the buffer is whole and all of it was given out. Waits for as
    /// long as there is hope: a writer that vanished makes the buffer fail, and this with it.
    pub async fn next(&mut self) -> Result<Option<Vec<Bytes>>> {
        while self.under_way.len() < AHEAD {
            let n = self.at.chunks.saturating_add(self.under_way.len() as u32);
            self.under_way.push_back(Fetch(tokio::spawn(fetch(self.client.clone(), self.id.clone(), n))));
        }
        let Some(mut first) = self.under_way.pop_front() else { return Ok(None) };
        let fetched = (&mut first.0).await;
        let next = fetched.unwrap_or_else(|error| Err(ClientError::Configuration(error.to_string())))?;
        match next {
            ChunkLookup::Chunk(chunk) => {
                let after = self.at.after(chunk.length, &chunk.hash);
                if after.chain != chunk.chain {
                    return Err(self.damaged("does not continue the chain of the chunks before it"));
                }
                self.at = after;
                Ok(Some(chunk.pieces))
            }
            ChunkLookup::End(totals) if totals == self.at => Ok(None),
            ChunkLookup::End(_) => Err(self.damaged("is missing, though the buffer is said to be complete")),
            ChunkLookup::NotYet => Err(self.damaged("was neither there nor waited for")),
        }
    }

    fn damaged(&self, what: &str) -> ClientError {
        let what = format!("chunk {} of buffer {:?} {what}", self.at.chunks, self.id);
        ClientError::Protocol { url: self.client.url().to_owned(), what }
    }
}

async fn fetch(client: Client, id: String, n: u32) -> Result<ChunkLookup> {
    let mut tries = 0;
    loop {
        match client.chunk(&id, n, WAIT).await? {
            ChunkLookup::NotYet => {}
            ChunkLookup::Chunk(chunk) if !is_right(&chunk) => {
                tries += 1;
                if tries == TRIES {
                    let what = format!("chunk {n} of buffer {id:?} has another hash than it is said to have");
                    return Err(ClientError::Protocol { url: client.url().to_owned(), what });
                }
            }
            next => return Ok(next),
        }
    }
}

fn is_right(chunk: &ChunkRead) -> bool {
    let length: u64 = chunk.pieces.iter().map(|piece| piece.len() as u64).sum();
    length == chunk.length && chain::hash(chunk.pieces.iter().map(|piece| &piece[..])) == chunk.hash
}
