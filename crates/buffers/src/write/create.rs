//! Creates a buffer and stores its description.

use std::collections::BTreeMap;

use futures::TryStreamExt;
use serde::{Deserialize, Serialize};

use crate::format::records;
use crate::id::check_id;
use crate::storage::ErrorContext;
use crate::{BufferError, Buffers, Result};

/// The maximum number of tags of a buffer.
pub const TAGS_MAX: usize = 32;
/// The maximum length of a tag's name, in bytes.
pub const TAG_NAME_LEN_MAX: usize = 64;
/// The maximum length of a tag's value, in bytes.
pub const TAG_VALUE_LEN_MAX: usize = 256;

/// The description that a client gives for a new buffer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NewBuffer {
    pub tags: BTreeMap<String, String>,
    /// The sweep removes the buffer after this time.
    pub expires_at_ms: Option<u64>,
}

/// The stored description of a buffer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    pub created_at_ms: u64,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at_ms: Option<u64>,
}

impl Buffers {
    /// Creates an empty buffer. A repeat with the same arguments, including `now_ms`, succeeds.
    pub async fn create(&self, id: &str, new: NewBuffer, now_ms: u64) -> Result<Meta> {
        check_id(id)?;
        let context = ErrorContext::new("creating buffer", id);
        let meta = validate(id, new, now_ms)?;
        if self.find_meta(context).await?.is_none() && self.has_data(context).await? {
            // The new buffer must not inherit chunks of a deleted buffer with the same id.
            return Err(BufferError::Exists { id: id.to_owned() });
        }
        self.create_meta(&meta, context).await?;
        Ok(meta)
    }

    pub async fn meta(&self, id: &str) -> Result<Meta> {
        check_id(id)?;
        self.require_meta(ErrorContext::new("reading the description of buffer", id)).await
    }

    /// Changes when a buffer is removed. `None`: never.
    pub async fn set_expiry(&self, id: &str, expires_at_ms: Option<u64>) -> Result<()> {
        check_id(id)?;
        let context = ErrorContext::new("setting the expiry of buffer", id);
        let meta = Meta { expires_at_ms, ..self.require_meta(context).await? };
        self.storage().overwrite(&self.storage().meta(id), records::encode(&meta, context)?, context).await
    }

    /// Refuses if a different description exists. An equal one may come from an earlier try whose answer was lost.
    pub(super) async fn create_meta(&self, meta: &Meta, context: ErrorContext<'_>) -> Result<()> {
        let path = self.storage().meta(context.id);
        if self.storage().create(&path, records::encode(meta, context)?, context).await? {
            return Ok(());
        }
        match self.find_meta(context).await? {
            Some(existing) if existing == *meta => self.storage().sync_parent(&path, context).await,
            Some(_) => Err(BufferError::Exists { id: context.id.to_owned() }),
            None => Err(context.inconsistent()),
        }
    }

    async fn has_data(&self, context: ErrorContext<'_>) -> Result<bool> {
        let data = self.storage().data(context.id);
        Ok(self.storage().list_prefix(&data, context).try_next().await?.is_some())
    }
}

pub(super) fn validate(id: &str, new: NewBuffer, now_ms: u64) -> Result<Meta> {
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
