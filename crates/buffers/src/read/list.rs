//! Lists buffers page by page, optionally by tags.

use std::collections::BTreeMap;

use futures::{StreamExt, TryStreamExt, stream};

use crate::id::check_id;
use crate::storage::{ErrorContext, page_limit};
use crate::{Buffers, Meta, Result};

const PARALLEL_METAS: usize = 16;

/// A page of buffers in the order of their ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    pub buffers: Vec<ListedBuffer>,
    /// The `after` of the next page; `None` after the last page.
    pub next: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedBuffer {
    pub id: String,
    pub meta: Meta,
}

impl Buffers {
    /// Lists buffers that have all these tags, in the order of ids, starting after an id.
    ///
    /// `limit` (1 to 1000) bounds how many buffers are examined. A page may have fewer or none and still have a `next`.
    pub async fn list(
        &self,
        after: Option<&str>,
        limit: usize,
        tags: &BTreeMap<String, String>,
    ) -> Result<Page> {
        let ids = self.ids(after.unwrap_or_default(), limit).await?;
        let next = (ids.len() == page_limit(limit)).then(|| ids.last().cloned()).flatten();
        let found = stream::iter(ids).map(|id| async move {
            let meta = self.find_meta(ErrorContext::new("listing buffer", &id)).await?;
            Ok(meta.map(|meta| ListedBuffer { id, meta }))
        });
        let found = found.buffered(PARALLEL_METAS).try_filter_map(|listed| async move { Ok(listed) });
        let wanted = |listed: &ListedBuffer| {
            tags.iter().all(|(name, value)| listed.meta.tags.get(name) == Some(value))
        };
        let buffers = found.try_filter(|listed| std::future::ready(wanted(listed))).try_collect().await?;
        Ok(Page { buffers, next })
    }

    pub(crate) async fn ids(&self, after: &str, limit: usize) -> Result<Vec<String>> {
        if !after.is_empty() {
            check_id(after)?;
        }
        let metas = self.storage().metas();
        let page = self
            .storage()
            .page(&metas, after, page_limit(limit), ErrorContext::new("listing buffers after", after))
            .await?;
        Ok(page.into_iter().map(|(id, _)| id).collect())
    }
}
