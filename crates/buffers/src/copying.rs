//! Copying a complete buffer within the storage.

use futures::{StreamExt, TryStreamExt, stream};

use crate::create::describe;
use crate::id::check_id;
use crate::storage::At;
use crate::stored::{self, End, Outcome, Writer};
use crate::{BufferError, Buffers, Meta, NewBuffer, Result};

/// Chunks copied at once.
const COPIES_AT_ONCE: usize = 8;

impl Buffers {
    /// Copies a complete buffer, within the storage. The copy appears when it is whole, or not at all.
    pub async fn copy(&self, from: &str, to: &str, new: NewBuffer, now_ms: u64) -> Result<Meta> {
        check_id(from)?;
        check_id(to)?;
        let at = At::new("copying buffer", from);
        let at_copy = At::new("copying to buffer", to);
        self.need_meta(at).await?;
        let meta = describe(to, new, now_ms)?;
        let end = self.find_end(at).await?.ok_or_else(|| BufferError::NotComplete { id: from.to_owned() })?;
        let Outcome::Complete { writer, .. } = end.outcome else { return Err(end.refusal(from)) };
        if self.find_meta(at_copy).await?.is_some() {
            return Err(BufferError::Exists { id: to.to_owned() });
        }
        // Whoever creates this object may put the rest; the chunks name the writer, so it stays the same.
        let record = Writer { writer, begun_at_ms: now_ms, touched_at_ms: now_ms };
        if !self
            .storage()
            .create(&self.storage().writer(to), stored::encode(&record, at_copy)?, at_copy)
            .await?
        {
            return Err(BufferError::Exists { id: to.to_owned() });
        }
        match self.copy_data(&end, from, &meta, now_ms, at_copy).await {
            Ok(()) => Ok(meta),
            Err(error) => {
                // What cannot be removed now is data without a description, which the sweep removes.
                let _ = self.storage().delete_under(&self.storage().data(to), at_copy).await;
                Err(error)
            }
        }
    }

    async fn copy_data(&self, end: &End, from: &str, meta: &Meta, now_ms: u64, at: At<'_>) -> Result<()> {
        self.storage().prepare(&self.storage().chunks(at.id), at).await?;
        let copies = stream::iter(0..end.chunks).map(|n| async move {
            let (source, copy) = (self.storage().chunk(from, n), self.storage().chunk(at.id, n));
            self.storage().copy(&source, &copy, at).await
        });
        copies.buffer_unordered(COPIES_AT_ONCE).try_collect::<()>().await?;
        let end = End { finished_at_ms: now_ms, ..end.clone() };
        if !self.storage().create(&self.storage().end(at.id), stored::encode(&end, at)?, at).await? {
            return Err(BufferError::Exists { id: at.id.to_owned() });
        }
        self.create_meta(meta, at).await
    }
}
