//! Copies a complete buffer within the storage.

use futures::{StreamExt, TryStreamExt, stream};

use crate::format::records::{self, EndRecord, Outcome, WriterRecord};
use crate::id::check_id;
use crate::storage::ErrorContext;
use crate::write::create::validate;
use crate::{BufferError, Buffers, Meta, NewBuffer, Result};

const PARALLEL_COPIES: usize = 8;

impl Buffers {
    /// Copies a complete buffer within the storage. The copy appears only when all of it is stored.
    pub async fn copy(&self, from: &str, to: &str, new: NewBuffer, now_ms: u64) -> Result<Meta> {
        check_id(from)?;
        check_id(to)?;
        let context = ErrorContext::new("copying buffer", from);
        let copy_context = ErrorContext::new("copying to buffer", to);
        self.require_meta(context).await?;
        let meta = validate(to, new, now_ms)?;
        let end =
            self.find_end(context).await?.ok_or_else(|| BufferError::NotComplete { id: from.to_owned() })?;
        let Outcome::Complete { writer, .. } = end.outcome else { return Err(end.refusal(from)) };
        if self.find_meta(copy_context).await?.is_some() {
            return Err(BufferError::Exists { id: to.to_owned() });
        }
        // Creating this object claims the id for this call. The copied chunks name the writer, so the copy keeps it.
        let record = WriterRecord { writer, begun_at_ms: now_ms, touched_at_ms: now_ms };
        let record = records::encode(&record, copy_context)?;
        if !self.storage().create(&self.storage().writer(to), record, copy_context).await? {
            return Err(BufferError::Exists { id: to.to_owned() });
        }
        match self.copy_data(&end, from, &meta, now_ms, copy_context).await {
            Ok(()) => Ok(meta),
            Err(error) => {
                // If this fails too, the sweep removes the data: it has no description.
                let _ = self.storage().delete_prefix(&self.storage().data(to), copy_context).await;
                Err(error)
            }
        }
    }

    async fn copy_data(
        &self,
        end: &EndRecord,
        from: &str,
        meta: &Meta,
        now_ms: u64,
        context: ErrorContext<'_>,
    ) -> Result<()> {
        self.storage().create_directory(&self.storage().chunks(context.id), context).await?;
        let copies = stream::iter(0..end.chunks).map(|n| async move {
            let (source, copy) = (self.storage().chunk(from, n), self.storage().chunk(context.id, n));
            self.storage().copy(&source, &copy, context).await
        });
        copies.buffer_unordered(PARALLEL_COPIES).try_collect::<()>().await?;
        let end = EndRecord { finished_at_ms: now_ms, ..end.clone() };
        if !self
            .storage()
            .create(&self.storage().end(context.id), records::encode(&end, context)?, context)
            .await?
        {
            return Err(BufferError::Exists { id: context.id.to_owned() });
        }
        self.create_meta(meta, context).await
    }
}
