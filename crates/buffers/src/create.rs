//! Creating a buffer, and what was said when it was created.

use futures::TryStreamExt;

use crate::id::check_id;
use crate::records::{TAG_NAME_LEN_MAX, TAG_VALUE_LEN_MAX, TAGS_MAX};
use crate::storage::At;
use crate::{BufferError, Buffers, Meta, NewBuffer, Result, stored};

impl Buffers {
    /// Creates an empty buffer. The same again, to the ms, is answered as the first time.
    pub async fn create(&self, id: &str, new: NewBuffer, now_ms: u64) -> Result<Meta> {
        check_id(id)?;
        let at = At::new("creating buffer", id);
        let meta = describe(id, new, now_ms)?;
        if self.find_meta(at).await?.is_none() && self.has_data(at).await? {
            // What is left of an earlier buffer must not be taken for the new one's.
            return Err(BufferError::Exists { id: id.to_owned() });
        }
        self.create_meta(&meta, at).await?;
        Ok(meta)
    }

    pub async fn meta(&self, id: &str) -> Result<Meta> {
        check_id(id)?;
        self.need_meta(At::new("reading the description of buffer", id)).await
    }

    /// Refused if there is another; the same one may be our own, from a try whose answer was lost.
    pub(crate) async fn create_meta(&self, meta: &Meta, at: At<'_>) -> Result<()> {
        let path = self.storage().meta(at.id);
        if self.storage().create(&path, stored::encode(meta, at)?, at).await? {
            return Ok(());
        }
        match self.find_meta(at).await? {
            Some(there) if there == *meta => self.storage().settle(&path, at).await,
            Some(_) => Err(BufferError::Exists { id: at.id.to_owned() }),
            None => Err(at.unsettled()),
        }
    }

    pub(crate) async fn has_data(&self, at: At<'_>) -> Result<bool> {
        let data = self.storage().data(at.id);
        Ok(self.storage().list_under(&data, at).try_next().await?.is_some())
    }
}

/// Checks what the creator says.
pub(crate) fn describe(id: &str, new: NewBuffer, now_ms: u64) -> Result<Meta> {
    let bad = |problem: String| Err(BufferError::BadMeta { id: id.to_owned(), what: "tags", problem });
    if new.tags.len() > TAGS_MAX {
        return bad(format!("there are {}; at most {TAGS_MAX} are allowed", new.tags.len()));
    }
    for (name, value) in &new.tags {
        if name.is_empty() || name.len() > TAG_NAME_LEN_MAX || value.len() > TAG_VALUE_LEN_MAX {
            let name: String = name.chars().take(TAG_NAME_LEN_MAX).collect();
            return bad(format!(
                "\"{name}\" is too long or has no name; a name has 1 to {TAG_NAME_LEN_MAX} bytes, a value at most {TAG_VALUE_LEN_MAX}"
            ));
        }
    }
    Ok(Meta { created_at_ms: now_ms, tags: new.tags, expires_at_ms: new.expires_at_ms })
}
