//! Items of pools: how definitions and reports are stored in them.

use crate::error::ComputeError;
use crate::{Compute, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use towline_api::compute::tag;
use towline_broker::store::{
    Cursor, Filter, Operation, OperationError, OperationResult, Reply, StoreError, StoredItem,
};
use towline_domain::change::Answer;
use towline_domain::{
    Body, Field, FieldSet, Fields, HeadFilter, ItemId, QueueName, Refusal, StateName, Submission,
};

/// How many items one read lists.
const LIST_PAGE: usize = 500;

/// What an item of a pool is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Run,
    Replica,
    Slot,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Run => "run",
            Kind::Replica => "replica",
            Kind::Slot => "slot",
        }
    }

    pub(crate) fn of(stored: &StoredItem) -> Option<Kind> {
        let kind = stored.item.body.tags.get(tag::KIND)?;
        [Kind::Run, Kind::Replica, Kind::Slot].into_iter().find(|known| known.name() == kind)
    }
}

/// The specification and the latest report.
pub(crate) const WHOLE: FieldSet = FieldSet::NONE.with(Field::Blob).with(Field::StateBlob);

/// The item of a specification.
pub(crate) fn submission<T: Serialize>(
    kind: Kind,
    tags: BTreeMap<String, String>,
    spec: &T,
) -> Result<Submission> {
    let mut tags = tags;
    tags.insert(tag::KIND.to_owned(), kind.name().to_owned());
    let blob =
        serde_json::to_vec(spec).map_err(|error| ComputeError::invalid("codespec", error.to_string()))?;
    let body = Body { tags, ..Body::default() };
    let fields = Fields { blob: Some(blob.into()), ..Fields::default() };
    Ok(Submission { body, fields, ..Submission::default() })
}

/// The specification of an item.
pub(crate) fn spec<T: DeserializeOwned>(stored: &StoredItem) -> Result<T> {
    let bytes = stored.item.fields.blob.as_deref().unwrap_or_default();
    serde_json::from_slice(bytes).map_err(|error| {
        let id = stored.item.head.id;
        StoreError::Corrupt { file: format!("item {id}"), what: format!("no specification: {error}") }.into()
    })
}

/// What a node reported last. A node that reported nothing, or something else, counts as silent.
pub(crate) fn status<T: DeserializeOwned + Default>(stored: &StoredItem) -> T {
    let bytes = stored.item.fields.state_blob.as_deref();
    bytes.and_then(|bytes| serde_json::from_slice(bytes).ok()).unwrap_or_default()
}

/// A filter on items of pools by tags.
pub(crate) fn filter(queue: Option<QueueName>, state: Option<StateName>, tags: &[(&str, &str)]) -> Filter {
    let tags = tags.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Filter { queue, head: HeadFilter { state, ..HeadFilter::default() }, tags, ..Filter::default() }
}

impl Compute {
    pub(crate) async fn operate(&self, operation: Operation) -> OperationResult<Answer> {
        match self.broker().update(vec![operation]).await?.pop() {
            Some(Ok(Reply::Answer(answer))) => Ok(answer),
            Some(Err(error)) => Err(error),
            _ => Err(StoreError::Closed.into()),
        }
    }

    /// Submits an item. Says whether it is new.
    pub(crate) async fn submit(
        &self,
        queue: QueueName,
        submission: Submission,
    ) -> OperationResult<(ItemId, bool)> {
        let submit = Operation::Submit { queue, submission: Box::new(submission) };
        match self.operate(submit).await? {
            Answer::Submitted { id, created } => Ok((id, created)),
            _ => Err(StoreError::Closed.into()),
        }
    }

    pub(crate) async fn item(&self, id: ItemId, fields: FieldSet) -> Result<Option<StoredItem>> {
        let mut found = self.broker().store().get(vec![id], fields).await?;
        self.fetch(found.iter_mut().flatten()).await?;
        Ok(found.pop().flatten())
    }

    async fn fetch(&self, items: impl Iterator<Item = &mut StoredItem>) -> Result<()> {
        for item in items {
            self.broker().fetch(std::slice::from_mut(item)).await?;
        }
        Ok(())
    }

    pub(crate) async fn items(
        &self,
        filter: Filter,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<(Vec<StoredItem>, Option<Cursor>)> {
        let mut page = self.broker().store().list(filter, after, limit, WHOLE).await?;
        self.fetch(page.items.iter_mut()).await?;
        Ok((page.items, page.next))
    }

    pub(crate) async fn all_items(&self, filter: Filter) -> Result<Vec<StoredItem>> {
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let (items, next) = self.items(filter.clone(), after, LIST_PAGE).await?;
            all.extend(items);
            let Some(next) = next else { return Ok(all) };
            after = Some(next);
        }
    }
}

/// Whether the item changed between a read and an operation that depended on it.
pub(crate) fn has_changed(error: &OperationError) -> bool {
    matches!(error.refusal(), Some(Refusal::PreconditionFailed { .. } | Refusal::WrongState { .. }))
}
