//! The filter plan: which queue, which items and which tags a filter asks for.

use crate::encoding::sql::queue_id;
use crate::error::Failure;
use crate::pages::snapshot::ItemSnapshot;
use crate::statements::query;
use deadpool_postgres::Transaction;
use rustc_hash::FxHashSet;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
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
    excluded: Excluded<'a>,
}

/// What matching items do not have.
struct Excluded<'a> {
    names: Vec<&'a [u8]>,
    tags: Tags<'a>,
    prefixes: Tags<'a>,
}

/// The items of a range that the tags of a filter select.
pub(crate) struct TagSelection {
    /// `None`: the filter asks for no tags.
    with: Option<FxHashSet<u64>>,
    without: FxHashSet<u64>,
}

impl TagSelection {
    pub(crate) fn contains(&self, seq: u64) -> bool {
        self.with.as_ref().is_none_or(|with| with.contains(&seq)) && !self.without.contains(&seq)
    }

    /// How many items of the range are selected, of so many.
    pub(crate) fn count(&self, items: u64) -> u64 {
        match &self.with {
            Some(with) => with.difference(&self.without).count() as u64,
            None => items.saturating_sub(self.without.len() as u64),
        }
    }
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
        // No tag has an empty name.
        let named =
            |pairs: Vec<(&'a str, &'a str)>| pairs.into_iter().filter(|(name, _)| !name.is_empty()).collect();
        let mut not_tags: Vec<_> = named(pairs(&filter.not.tags));
        not_tags.extend(filter.not.groups.iter().map(|group| ("", group.as_str())));
        let mut not_prefixes: Vec<_> = named(pairs(&filter.not.tag_prefixes));
        not_prefixes.iter_mut().for_each(|(_, top)| *top = without_end(top));
        let names = filter.not.tag_names.iter().filter(|name| !name.is_empty());
        let excluded = Excluded {
            names: names.map(String::as_bytes).collect(),
            tags: bytes(not_tags),
            prefixes: bytes(not_prefixes),
        };
        let mut plan = FilterPlan { filter, now, queue: None, with_key: None, tags, prefixes, excluded };
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

    /// Which items between two numbers have the tags that the filter asks for, and none that it excludes.
    pub(crate) async fn tagged_items(
        &self,
        snapshot: &Transaction<'_>,
        after: i64,
        until: i64,
    ) -> Result<TagSelection, Failure> {
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
        let mut without = FxHashSet::default();
        if !self.filter.not.is_empty() {
            let Excluded { names, tags, prefixes } = &self.excluded;
            let statement = snapshot.prepare_cached(query!("find_excluded")).await?;
            let parameters: [&(dyn ToSql + Sync); 7] =
                [&after, &until, names, &tags.0, &tags.1, &prefixes.0, &prefixes.1];
            without = numbers(&snapshot.query(&statement, &parameters).await?);
        }
        Ok(TagSelection { with: tagged, without })
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
