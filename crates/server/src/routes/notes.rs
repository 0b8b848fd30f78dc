//! Notes about requests that are carried out and may not do what the client expects.

use crate::app::App;
use std::collections::BTreeMap;
use towline_domain::{FieldSet, QueueName};
use towline_store::{Filter, StoreError};

/// How many groups of one request are looked at.
const GROUPS_MAX: usize = 16;

/// A note for each of these groups that has no items. Dependents of such a group wait.
pub(super) async fn empty_groups(
    app: &App,
    names: impl Iterator<Item = &str>,
) -> Result<BTreeMap<String, String>, StoreError> {
    let mut notes = BTreeMap::new();
    let mut known: Vec<&str> = names.collect();
    known.sort_unstable();
    known.dedup();
    for name in known.into_iter().take(GROUPS_MAX) {
        let filter = Filter { group: Some(name.to_owned()), ..Filter::default() };
        let mut after = None;
        let is_empty = loop {
            let page = app.broker.store().list(filter.clone(), after, 1, FieldSet::NONE).await?;
            after = page.next;
            if !page.items.is_empty() || after.is_none() {
                break page.items.is_empty();
            }
        };
        if is_empty {
            let note =
                format!("after.group: group {name:?} has no items yet; this item waits for the first ones");
            notes.insert(name.to_owned(), note);
        }
    }
    Ok(notes)
}

/// A note for a schedule whose queue does not exist.
pub(super) async fn absent_queue(app: &App, queue: &QueueName) -> Result<Vec<String>, StoreError> {
    let found = app.broker.store().queue(queue.clone()).await?;
    let note =
        || format!("queue {:?} does not exist; its occurrences are refused until it does", queue.as_str());
    Ok(found.is_none().then(note).into_iter().collect())
}
