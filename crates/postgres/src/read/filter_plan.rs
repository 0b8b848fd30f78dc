//! The filter plan: which queue, which items and which tags a filter asks for.

use crate::encoding::sql::queue_id;
use crate::error::Failure;
use crate::pages::snapshot::ItemSnapshot;
use crate::statements::query;
use deadpool_postgres::Transaction;
use rustc_hash::FxHashSet;
use tokio_postgres::Row;
use towline_domain::{QueueId, Timestamp, Traits};
use towline_store::{Filter, without_end};

/// Names and values of tags.
type Tags<'a> = (Vec<&'a [u8]>, Vec<&'a [u8]>);

pub(crate) struct FilterPlan<'a> {
    pub(crate) filter: &'a Filter,
    now: Timestamp,
    pub(crate) queue: Option<QueueId>,
    /// The items with the idempotency key, if the filter names one.
    pub(crate) with_key: Option<FxHashSet<u64>>,
    /// Tags, and the group as a tag with an empty name.
    pub(crate) tags: Tags<'a>,
    pub(crate) prefixes: Tags<'a>,
}

impl<'a> FilterPlan<'a> {
    /// `None` if no item can match.
    pub(crate) async fn new(
        snapshot: &Transaction<'_>,
        filter: &'a Filter,
        now: Timestamp,
    ) -> Result<Option<FilterPlan<'a>>, Failure> {
        let pairs = |pairs: &'a [(String, String)]| -> Vec<(&'a str, &'a str)> {
            pairs.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
        };
        let mut tags = pairs(&filter.tags);
        let mut prefixes = pairs(&filter.tag_prefixes);
        if tags.iter().chain(&prefixes).any(|(name, _)| name.is_empty()) {
            return Ok(None);
        }
        tags.extend(filter.group.as_ref().map(|group| ("", group.as_str())));
        prefixes.iter_mut().for_each(|(_, top)| *top = without_end(top));
        let (tags, prefixes) = (bytes(tags), bytes(prefixes));
        let mut plan = FilterPlan { filter, now, queue: None, with_key: None, tags, prefixes };
        if let Some(name) = &filter.queue {
            let statement = snapshot.prepare_cached(query!("find_queue")).await?;
            match snapshot.query_opt(&statement, &[&name.as_str()]).await? {
                Some(row) => plan.queue = Some(queue_id(row.get(0))),
                None => return Ok(None),
            }
        }
        if let Some(key) = &filter.idempotency_key {
            let statement = snapshot.prepare_cached(query!("find_items_by_key")).await?;
            plan.with_key = Some(numbers(&snapshot.query(&statement, &[&key.as_bytes()]).await?));
        }
        Ok(Some(plan))
    }

    /// The items between two numbers that have the tags; `None` if the filter names no tags.
    pub(crate) async fn tagged_items(
        &self,
        snapshot: &Transaction<'_>,
        after: i64,
        until: i64,
    ) -> Result<Option<FxHashSet<u64>>, Failure> {
        let mut tagged: Option<FxHashSet<u64>> = None;
        for (sql, (names, values)) in
            [(query!("find_tagged"), &self.tags), (query!("find_tagged_under"), &self.prefixes)]
        {
            if names.is_empty() {
                continue;
            }
            let statement = snapshot.prepare_cached(sql).await?;
            let found = numbers(&snapshot.query(&statement, &[&after, &until, names, values]).await?);
            tagged = Some(match tagged {
                None => found,
                Some(earlier) => earlier.intersection(&found).copied().collect(),
            });
        }
        Ok(tagged)
    }

    /// Whether an item matches the filter, apart from its tags and errors.
    pub(crate) fn matches(&self, item: &ItemSnapshot) -> bool {
        let (filter, head) = (self.filter, &item.head);
        self.queue.is_none_or(|queue| queue == head.queue)
            && filter.head.matches(&Traits::of(head, head.count_kind(self.now)))
            && self.with_key.as_ref().is_none_or(|with_key| with_key.contains(&item.seq))
            // Errors are side rows.
            && (filter.error.is_none() || item.kept.side)
    }
}

fn bytes<'a>(mut pairs: Vec<(&'a str, &'a str)>) -> Tags<'a> {
    pairs.sort_unstable();
    pairs.dedup();
    pairs.into_iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())).unzip()
}

fn numbers(rows: &[Row]) -> FxHashSet<u64> {
    rows.iter().map(|row| row.get::<_, i64>(0).cast_unsigned()).collect()
}
