//! Deleting a buffer.

use crate::id::check_id;
use crate::storage::At;
use crate::{Buffers, Result};

impl Buffers {
    /// Removes a buffer: its description first, so that nothing is read or written any more, then its data. That it
    /// is not there is no error.
    pub async fn delete(&self, id: &str) -> Result<()> {
        check_id(id)?;
        let at = At::new("deleting buffer", id);
        self.storage().delete(&self.storage().meta(id), at).await?;
        self.forget_progress(id);
        self.bells().ring(id);
        self.storage().delete_under(&self.storage().data(id), at).await
    }
}
