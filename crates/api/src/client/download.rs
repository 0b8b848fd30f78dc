//! Reads a whole buffer: fetches some chunks in advance, checks each, and waits for a writer that has not
//! finished or not started.

use super::{ChunkLookup, ChunkRead, Client, ClientError, Result};
use crate::chain::{self, Position};
use bytes::Bytes;
use std::collections::VecDeque;
use std::time::Duration;
use tokio::task::JoinHandle;

/// How many chunks are fetched at once.
const AHEAD: usize = 4;
/// How long one call waits for a chunk that is not written yet.
const WAIT: Duration = Duration::from_secs(60);
/// How often a chunk is fetched if its bytes do not match its hash.
const TRIES: usize = 3;

/// Reads a buffer in order and without gaps.
#[derive(Debug)]
pub struct Download {
    client: Client,
    id: String,
    /// The position after all chunks that were returned.
    at: Position,
    under_way: VecDeque<Fetch>,
}

/// A fetch in progress. Dropping it cancels the fetch.
#[derive(Debug)]
struct Fetch(JoinHandle<Result<ChunkLookup>>);

impl Drop for Fetch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Download {
    /// Continues from a known position. To read from the beginning, pass [`Position::START`].
    #[must_use]
    pub fn new(client: Client, id: &str, from: Position) -> Download {
        Download { client, id: id.to_owned(), at: from, under_way: VecDeque::new() }
    }

    #[must_use]
    pub fn position(&self) -> Position {
        self.at
    }

    /// Returns the next chunk in pieces, or `None` at the end of a complete buffer. Waits while the buffer is
    /// being written. If the writer disappears, the buffer fails and this call with it.
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
            ChunkLookup::End(_) => {
                Err(self.damaged("is missing, but the server reports the buffer as complete"))
            }
            ChunkLookup::NotYet => Err(self.damaged("is missing, and the server did not wait for it")),
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
                    let what = format!("chunk {n} of buffer {id:?} does not match its hash; read it again");
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
