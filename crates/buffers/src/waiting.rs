//! One chunk of a buffer, waiting for it while the buffer is being written.
//!
//! A reader in the writer's process is woken; for writers elsewhere it looks again, with growing pauses. It has no
//! clock: what it takes for the present is the time it was given, moved on by its own pauses and by every sign of life
//! it sees. That is never later than the present, so a writer is never given up too early.

use std::time::Duration;

use crate::header::{CHUNK_BYTES_MAX, HEADER_LEN};
use crate::id::check_id;
use crate::storage::At;
use crate::stored::Outcome;
use crate::verify::chunk_of;
use crate::{BufferError, Buffers, CHUNKS_MAX, Chunk, Next, Position, Result};

const OBJECT_BYTES_MAX: u64 = HEADER_LEN as u64 + CHUNK_BYTES_MAX;

/// Looks between those that make sure that the buffer still exists.
const LOOKS_PER_META: u32 = 8;

impl Buffers {
    /// Chunk `n`, its hash checked; waits for it while the buffer is being written.
    pub async fn chunk(&self, id: &str, n: u32, wait: Duration, now_ms: u64) -> Result<Next> {
        check_id(id)?;
        let at = At::new("reading buffer", id);
        // A wait of nothing still gets what is there.
        if let Some(found) = self.look(n, now_ms, at).await? {
            return Ok(found);
        }
        self.need_meta(at).await?;
        match tokio::time::timeout(wait, self.wait_for(n, now_ms, at)).await {
            Ok(found) => found,
            Err(_) => Ok(Next::NotYet),
        }
    }

    async fn wait_for(&self, n: u32, now_ms: u64, at: At<'_>) -> Result<Next> {
        let ear = self.bells().listen(at.id);
        let mut now_ms = now_ms;
        let mut pause = self.options().poll_first;
        let mut looks = 0_u32;
        loop {
            // Before looking: what happens after the look rings.
            let ring = ear.next_ring();
            if let Some(found) = self.look(n, now_ms, at).await? {
                return Ok(found);
            }
            if looks.is_multiple_of(LOOKS_PER_META) {
                self.need_meta(at).await?;
            }
            looks = looks.wrapping_add(1);
            if let Some(there) = self.find_writer(at).await? {
                now_ms = now_ms.max(self.last_sign_seen(n, there.touched_at_ms, at).await?);
                if self.fail_if_vanished(&there, now_ms, at).await?.is_some() {
                    continue;
                }
            }
            match tokio::time::timeout(pause, ring).await {
                Ok(()) => {
                    pause = self.options().poll_first;
                    // It may have rung for a delete.
                    looks = 0;
                }
                Err(_) => {
                    now_ms += pause.as_millis() as u64;
                    pause = (pause * 2).min(self.options().poll_max);
                }
            }
        }
    }

    /// The latest sign of life that is cheap to see: of the chunk before, of the writer, or in this process.
    async fn last_sign_seen(&self, n: u32, touched_at_ms: u64, at: At<'_>) -> Result<u64> {
        if let Some(known) = self.known_progress(at.id) {
            return Ok(known.last_sign_ms().max(touched_at_ms));
        }
        let before = match n.checked_sub(1) {
            Some(before) => self.find_header(before, at).await?,
            None => None,
        };
        Ok(before.map_or(0, |header| header.put_at_ms).max(touched_at_ms))
    }

    /// The chunk or the end, if either is there now.
    async fn look(&self, n: u32, now_ms: u64, at: At<'_>) -> Result<Option<Next>> {
        if let Some(known) = self.known_progress(at.id) {
            known.ask(n);
            if let Some(chunk) = self.recent().get(at.id, n, now_ms) {
                return Ok(Some(Next::Chunk(chunk)));
            }
        }
        if let Some(chunk) = self.find_chunk(n, at).await? {
            return Ok(Some(Next::Chunk(chunk)));
        }
        let Some(end) = self.find_end(at).await? else { return Ok(None) };
        let position = end.position(at)?;
        match end.outcome {
            Outcome::Complete { .. } if n >= position.chunks => Ok(Some(Next::End(position))),
            Outcome::Complete { .. } => match self.find_chunk(n, at).await? {
                // It came, and the end after it, between the two looks.
                Some(chunk) => Ok(Some(Next::Chunk(chunk))),
                None => self.missing(n, position, at).await,
            },
            Outcome::Failed { reason } => Err(BufferError::Failed { id: at.id.to_owned(), reason }),
        }
    }

    async fn missing(&self, n: u32, position: Position, at: At<'_>) -> Result<Option<Next>> {
        // Deleting begins with the description.
        self.need_meta(at).await?;
        Err(at.damaged(format!("chunk {n} of {} is gone", position.chunks)))
    }

    /// A stored chunk, its data checked.
    pub(crate) async fn find_chunk(&self, n: u32, at: At<'_>) -> Result<Option<Chunk>> {
        if n >= CHUNKS_MAX {
            return Ok(None);
        }
        let path = self.storage().chunk(at.id, n);
        let found = self.storage().get_hashed(&path, OBJECT_BYTES_MAX, HEADER_LEN, at).await?;
        found.map(|(object, hash)| chunk_of(&object, hash, n, at)).transpose()
    }
}
