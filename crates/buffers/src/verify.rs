//! Checks every object of a location: descriptions, ends, chunks with their hashes and hash chains, blobs. Writes nothing.

use std::future::ready;

use futures::{StreamExt, TryStreamExt, stream};

use crate::format::chunk_header::CHUNKS_MAX;
use crate::format::records::{EndRecord, Outcome};
use crate::storage::ErrorContext;
use crate::{BLOB_BYTES_MAX, BufferError, Buffers, Position, Result};

const PAGE: usize = 1000;
/// How many objects are read at once. A chunk has at most 16 MiB, a blob 64 MiB.
const PARALLEL: usize = 4;

/// What is wrong with an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectFinding {
    /// The buffer, or the key of the blob.
    pub id: String,
    pub what: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ObjectReport {
    pub buffers: u64,
    pub blobs: u64,
    /// Bytes of chunks and blobs.
    pub bytes: u64,
    pub findings: Vec<ObjectFinding>,
}

impl Buffers {
    /// Reads and checks every object. Calls `read` with the number of bytes after each one.
    pub async fn verify(&self, read: &mut (dyn FnMut(u64) + Send)) -> Result<ObjectReport> {
        let mut report = ObjectReport::default();
        let mut after = String::new();
        loop {
            let ids = self.ids(&after, PAGE).await?;
            let Some(last) = ids.last() else { break };
            after.clone_from(last);
            for id in ids {
                report.buffers += 1;
                let checked = self.verify_buffer(&id, &mut report.bytes, read).await;
                report.note(&id, checked)?;
            }
        }
        let mut after = None;
        loop {
            let page = self.list_blobs(after.as_deref(), PAGE).await?;
            let blobs = stream::iter(page.blobs).map(|blob| async move {
                let checked = self.get_blob(&blob.key, BLOB_BYTES_MAX).await.map(drop);
                (blob, checked)
            });
            let mut blobs = blobs.buffered(PARALLEL);
            while let Some((blob, checked)) = blobs.next().await {
                report.blobs += 1;
                report.bytes += blob.stored_bytes;
                read(blob.stored_bytes);
                report.note(&blob.key, checked)?;
            }
            after = page.next;
            if after.is_none() {
                return Ok(report);
            }
        }
    }

    async fn verify_buffer(
        &self,
        id: &str,
        bytes: &mut u64,
        read: &mut (dyn FnMut(u64) + Send),
    ) -> Result<()> {
        let context = ErrorContext::new("checking buffer", id);
        self.find_meta(context).await?;
        self.find_writer(context).await?;
        let end = self.find_end(context).await?;
        let totals = end.as_ref().map(|end| end.position(context)).transpose()?;
        // A buffer that is not complete may lack chunks at its end.
        let complete = |end: &EndRecord| matches!(end.outcome, Outcome::Complete { .. });
        let totals = totals.filter(|_| end.as_ref().is_some_and(complete));
        let chunks = stream::iter(0..totals.map_or(CHUNKS_MAX, |totals| totals.chunks))
            .map(|n| async move { Ok((n, self.find_chunk(n, context).await?)) })
            .buffered(PARALLEL)
            .try_take_while(|(_, chunk)| ready(Ok(totals.is_some() || chunk.is_some())));
        let mut chunks = std::pin::pin!(chunks);
        let mut at = Position::START;
        while let Some((n, chunk)) = chunks.try_next().await? {
            let Some(chunk) = chunk else {
                return Err(context.damaged(format!("chunk {n} is missing")));
            };
            let header = chunk.header;
            at = at.after(header.length, &header.hash);
            if header.chain != at.chain {
                return Err(context.damaged(format!("chunk {n} does not continue the chunks before it")));
            }
            *bytes += header.length;
            read(header.length);
        }
        match totals {
            Some(totals) if totals != at => {
                Err(context.damaged("its chunks are not those of its end record"))
            }
            _ => Ok(()),
        }
    }
}

impl ObjectReport {
    /// Notes damage. Passes on that the storage cannot be read.
    fn note(&mut self, id: &str, checked: Result<()>) -> Result<()> {
        let what = match checked {
            Ok(()) => return Ok(()),
            // Deleted since it was listed.
            Err(BufferError::BlobNotFound { .. }) => return Ok(()),
            Err(BufferError::Damaged { what, .. }) => what,
            Err(error @ BufferError::BlobTooLarge { .. }) => error.to_string(),
            Err(error) => return Err(error),
        };
        self.findings.push(ObjectFinding { id: id.to_owned(), what });
        Ok(())
    }
}
