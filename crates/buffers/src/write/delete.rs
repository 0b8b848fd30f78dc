//! Deletes a buffer.

use crate::id::check_id;
use crate::storage::ErrorContext;
use crate::{Buffers, Result};

impl Buffers {
    /// Deletes a buffer. Succeeds if the buffer does not exist.
    ///
    /// The description goes first: from then on no client can read or write the buffer. The data follows.
    pub async fn delete(&self, id: &str) -> Result<()> {
        check_id(id)?;
        let context = ErrorContext::new("deleting buffer", id);
        self.storage().delete(&self.storage().meta(id), context).await?;
        self.forget_progress(id);
        self.notifier().notify(id);
        self.storage().delete_prefix(&self.storage().data(id), context).await
    }
}
