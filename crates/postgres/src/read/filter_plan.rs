//! What a filter means here: which queue, which keys, which tags.

use crate::encoding::sql::queue_id;
use crate::error::Failure;
use crate::pages::snapshot::Image;
use crate::statements::query;
use deadpool_postgres::Transaction;
use rustc_hash::FxHashSet;
use tokio_postgres::Row;
use towline_domain::{QueueId, Timestamp, Traits};
use towline_store::{Filter, without_end};

/// Names and values.
type Tags<'a> = (Vec<&'a [u8]>, Vec<&'a [u8]>);

/// What is to be found.
pub(crate) struct Sought<'a> {
    pub(crate) filter: &'a Filter,
    now: Timestamp,
    pub(crate) queue: Option<QueueId>,
    pub(crate) keyed: Option<FxHashSet<u64>>,
    /// Tags, and the group, which is one without a name.
    pub(crate) tags: Tags<'a>,
    pub(crate) prefixes: Tags<'a>,
}

impl<'a> Sought<'a> {
    /// `None`: there is nothing like that.
    pub(crate) async fn new(
        snapshot: &Transaction<'_>,
        filter: &'a Filter,
        now: Timestamp,
    ) -> Result<Option<Sought<'a>>, Failure> {
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
        let mut sought = Sought { filter, now, queue: None, keyed: None, tags, prefixes };
        if let Some(name) = &filter.queue {
            let statement = snapshot.prepare_cached(query!("find_queue")).await?;
            match snapshot.query_opt(&statement, &[&name.as_str()]).await? {
                Some(row) => sought.queue = Some(queue_id(row.get(0))),
                None => return Ok(None),
            }
        }
        if let Some(key) = &filter.idempotency_key {
            let statement = snapshot.prepare_cached(query!("find_items_by_key")).await?;
            sought.keyed = Some(numbers(&snapshot.query(&statement, &[&key.as_bytes()]).await?));
        }
        Ok(Some(sought))
    }

    /// Which items after the first number and up to the second have the tags; `None`: none are asked for.
    pub(crate) async fn labelled(
        &self,
        snapshot: &Transaction<'_>,
        after: i64,
        until: i64,
    ) -> Result<Option<FxHashSet<u64>>, Failure> {
        let mut labelled: Option<FxHashSet<u64>> = None;
        for (sql, (names, values)) in
            [(query!("find_tagged"), &self.tags), (query!("find_tagged_under"), &self.prefixes)]
        {
            if names.is_empty() {
                continue;
            }
            let statement = snapshot.prepare_cached(sql).await?;
            let found = numbers(&snapshot.query(&statement, &[&after, &until, names, values]).await?);
            labelled = Some(match labelled {
                None => found,
                Some(others) => others.intersection(&found).copied().collect(),
            });
        }
        Ok(labelled)
    }

    /// Whether the rest holds of an item, as far as its head tells.
    pub(crate) fn has(&self, image: &Image) -> bool {
        let (filter, head) = (self.filter, &image.head);
        self.queue.is_none_or(|queue| queue == head.queue)
            && filter.head.matches(&Traits::of(head, head.count_kind(self.now)))
            && self.keyed.as_ref().is_none_or(|keyed| keyed.contains(&image.seq))
            // Errors are among what most items have none of.
            && (filter.error.is_none() || image.kept.side)
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
