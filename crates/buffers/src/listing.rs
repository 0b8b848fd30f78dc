//! Buffers in pages, by tags.

use std::collections::BTreeMap;

use futures::{StreamExt, TryStreamExt, stream};

use crate::storage::{At, page_limit};
use crate::{Buffers, Listed, Page, Result};

/// Descriptions read at once.
const METAS_AT_ONCE: usize = 16;

impl Buffers {
    /// Buffers after an id, in the order of ids, that have all these tags. `limit` (1 to 1000) bounds how many are
    /// looked at: a page may have fewer, or none, and yet a `next`.
    pub async fn list(
        &self,
        after: Option<&str>,
        limit: usize,
        tags: &BTreeMap<String, String>,
    ) -> Result<Page> {
        let ids = self.ids(after.unwrap_or_default(), limit).await?;
        let next = (ids.len() == page_limit(limit)).then(|| ids.last().cloned()).flatten();
        let found = stream::iter(ids).map(|id| async move {
            let meta = self.find_meta(At::new("listing buffer", &id)).await?;
            Ok(meta.map(|meta| Listed { id, meta }))
        });
        let found = found.buffered(METAS_AT_ONCE).try_filter_map(|listed| async move { Ok(listed) });
        let wanted =
            |listed: &Listed| tags.iter().all(|(name, value)| listed.meta.tags.get(name) == Some(value));
        let buffers = found.try_filter(|listed| std::future::ready(wanted(listed))).try_collect().await?;
        Ok(Page { buffers, next })
    }

    pub(crate) async fn ids(&self, after: &str, limit: usize) -> Result<Vec<String>> {
        if !after.is_empty() {
            crate::id::check_id(after)?;
        }
        let metas = self.storage().metas();
        let page = self
            .storage()
            .page(&metas, after, page_limit(limit), At::new("listing buffers after", after))
            .await?;
        Ok(page.into_iter().map(|(id, _)| id).collect())
    }
}
