//! Lists names page by page, in order.
//!
//! An S3-compatible service lists keys in order, so a page is a part of its list. A directory lists names in no order,
//! so a page takes reading all names.

use std::collections::BTreeMap;

use futures::{StreamExt, TryStreamExt};
use object_store::ObjectMeta;
use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::path::Path;

use super::{Backend, ErrorContext, Storage, blocking, convert};
use crate::Result;
use crate::id::check_id;

/// Clamps the number of names in a page.
pub(crate) fn page_limit(limit: usize) -> usize {
    limit.clamp(1, 1000)
}

impl Storage {
    /// Lists objects directly under a prefix, after a name. Skips names that are not valid ids.
    pub async fn page(
        &self,
        within: &Path,
        after: &str,
        limit: usize,
        context: ErrorContext<'_>,
    ) -> Result<Vec<(String, ObjectMeta)>> {
        let mut listed = match after {
            "" => self.objects.list(Some(within)),
            after => self.objects.list_with_offset(Some(within), &within.clone().join(after)),
        }
        .map_err(|error| convert(context, error))
        .try_filter_map(|meta| async move {
            let name = meta.location.filename().filter(|name| check_id(name).is_ok()).map(str::to_owned);
            Ok(name.map(|name| (name, meta)))
        })
        .boxed();
        let mut first = BTreeMap::new();
        while let Some((name, meta)) = listed.try_next().await? {
            first.insert(name, meta);
            match &self.backend {
                Backend::S3(_) if first.len() == limit => break,
                Backend::Directory(_) if first.len() > limit => drop(first.pop_last()),
                _ => {}
            }
        }
        Ok(first.into_iter().collect())
    }

    /// Lists ids of buffers with data, after an id, in the backend's order.
    pub async fn data_page(
        &self,
        after: Option<&str>,
        limit: usize,
        context: ErrorContext<'_>,
    ) -> Result<Vec<String>> {
        match &self.backend {
            Backend::Directory(root) => {
                let directory = root.join(self.all_data().as_ref());
                let after = after.unwrap_or_default().to_owned();
                blocking(move || first_names(&directory, &after, limit))
                    .await
                    .map_err(|error| context.io(&error))
            }
            Backend::S3(s3) => {
                let all = format!("{}/", self.all_data());
                let mut ids = Vec::new();
                let mut page_token = None;
                loop {
                    let options = PaginatedListOptions {
                        // After every key of that id and before the next id: `0` follows `/` in ASCII.
                        offset: after.map(|id| format!("{all}{id}0")),
                        delimiter: Some("/".into()),
                        max_keys: Some(limit - ids.len()),
                        page_token,
                        ..PaginatedListOptions::default()
                    };
                    let page = s3
                        .list_paginated(Some(&all), options)
                        .await
                        .map_err(|error| convert(context, error))?;
                    let names = page.result.common_prefixes.iter().filter_map(|prefix| prefix.filename());
                    ids.extend(names.filter(|id| check_id(id).is_ok()).map(str::to_owned));
                    page_token = page.page_token;
                    if page_token.is_none() || ids.len() >= limit {
                        return Ok(ids);
                    }
                }
            }
        }
    }
}

fn first_names(directory: &std::path::Path, after: &str, limit: usize) -> std::io::Result<Vec<String>> {
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut first = std::collections::BTreeSet::new();
    for entry in entries {
        let Ok(name) = entry?.file_name().into_string() else { continue };
        if name.as_str() > after && check_id(&name).is_ok() {
            first.insert(name);
            if first.len() > limit {
                first.pop_last();
            }
        }
    }
    Ok(first.into_iter().collect())
}
