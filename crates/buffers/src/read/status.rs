//! The state and size of a buffer, read from the storage.

use futures::TryStreamExt;

use crate::format::chunk_header::CHUNK_HEADER_LEN;
use crate::format::chunk_sizes::ChunkSizes;
use crate::id::check_id;
use crate::storage::{ErrorContext, chunk_number};
use crate::{Buffers, CHUNKS_MAX, Meta, Position, Result};
use towline_domain::BufferStateKind;

/// The state of a buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BufferState {
    /// Created; no writer has begun.
    Empty,
    Writing {
        begun_at_ms: u64,
        last_activity_ms: u64,
    },
    Complete {
        finished_at_ms: u64,
    },
    Failed {
        finished_at_ms: u64,
        reason: String,
    },
}

impl BufferState {
    #[must_use]
    pub fn kind(&self) -> BufferStateKind {
        match self {
            BufferState::Empty => BufferStateKind::Empty,
            BufferState::Writing { .. } => BufferStateKind::Writing,
            BufferState::Complete { .. } => BufferStateKind::Complete,
            BufferState::Failed { .. } => BufferStateKind::Failed,
        }
    }
}

/// A buffer's description, state and size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BufferStatus {
    pub id: String,
    pub meta: Meta,
    pub state: BufferState,
    pub position: Position,
}

/// What the names and sizes of the stored chunks and the headers of the last ones show.
#[derive(Debug)]
pub(crate) struct ChunkScan {
    pub position: Position,
    pub sizes: ChunkSizes,
    /// When the writer put the last chunk; 0 if there is none.
    pub last_put_ms: u64,
}

impl Buffers {
    /// The state and size of a buffer. Fails the buffer if its writer vanished.
    pub async fn show(&self, id: &str, now_ms: u64) -> Result<BufferStatus> {
        check_id(id)?;
        let context = ErrorContext::new("showing buffer", id);
        let meta = self.require_meta(context).await?;
        let (state, position) = match self.find_end(context).await? {
            Some(end) => (end.state(), end.position(context)?),
            None => match self.find_writer(context).await? {
                None => (BufferState::Empty, Position::START),
                Some(existing) => match self.fail_if_vanished(&existing, now_ms, context).await? {
                    Some(end) => (end.state(), end.position(context)?),
                    None => {
                        let scan = self.scan_chunks(context).await?;
                        let known = self.known_progress(id).map_or(0, |known| known.last_activity_ms());
                        let last_activity_ms = existing.touched_at_ms.max(scan.last_put_ms).max(known);
                        let begun_at_ms = existing.begun_at_ms;
                        (BufferState::Writing { begun_at_ms, last_activity_ms }, scan.position)
                    }
                },
            },
        };
        Ok(BufferStatus { id: id.to_owned(), meta, state, position })
    }

    pub(crate) async fn scan_chunks(&self, context: ErrorContext<'_>) -> Result<ChunkScan> {
        let mut chunks = Vec::new();
        let mut listed = self.storage().list_prefix(&self.storage().chunks(context.id), context);
        while let Some(object) = listed.try_next().await? {
            if let Some(n) = chunk_number(&object.location).filter(|n| *n < CHUNKS_MAX) {
                chunks.push((n, object.size.saturating_sub(CHUNK_HEADER_LEN as u64)));
            }
        }
        chunks.sort_unstable();
        let mut sizes = ChunkSizes::default();
        let mut position = Position::START;
        for &(n, bytes) in &chunks {
            if n != position.chunks {
                break;
            }
            sizes.push(bytes);
            position.chunks += 1;
            position.bytes += bytes;
        }
        let mut last_put_ms = 0;
        if let Some(last) = position.chunks.checked_sub(1)
            && let Some(header) = self.find_header(last, context).await?
        {
            position.chain = header.chain;
            last_put_ms = header.put_at_ms;
        }
        if let Some(&(last, _)) = chunks.last()
            && last >= position.chunks
            && let Some(header) = self.find_header(last, context).await?
        {
            last_put_ms = last_put_ms.max(header.put_at_ms);
        }
        Ok(ChunkScan { position, sizes, last_put_ms })
    }
}
