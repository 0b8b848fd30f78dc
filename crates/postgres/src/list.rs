//! Lists: items in order of submission, page by page.

use crate::error::Failure;
use crate::image::{self, Image};
use crate::overlay::operations::READ_BYTES_MAX;
use crate::read::{Reader, again_if_truncated, snapshot, whole};
use crate::statements::query;
use deadpool_postgres::Transaction;
use rustc_hash::FxHashSet;
use tokio_postgres::Row;
use towline_domain::{FieldSet, QueueId, Timestamp, limits};
use towline_store::{Cursor, Filter, Page, StoreError};

/// Items that one answer looks at, at most: what is rare is found in many short answers, not in one that never ends.
const WINDOW: usize = 20_000;
/// Rows that are read at once.
const STEP: i64 = 256;

impl Reader {
    pub(crate) async fn list(
        &self,
        filter: Filter,
        after: Option<Cursor>,
        limit: usize,
        fields: FieldSet,
    ) -> Result<Page, Failure> {
        again_if_truncated!(self.list_once(&filter, after, limit, fields))
    }

    async fn list_once(
        &self,
        filter: &Filter,
        after: Option<Cursor>,
        limit: usize,
        fields: FieldSet,
    ) -> Result<Page, Failure> {
        let nothing = Page { items: Vec::new(), next: None };
        let limit = limit.clamp(1, limits::PAGE_MAX);
        let Ok(mut after) = i64::try_from(after.map_or(0, |cursor| cursor.0)) else {
            return Ok(nothing);
        };
        let mut client = self.client().await?;
        let now = self.now(&client).await?;
        let snapshot = snapshot(&mut client).await?;
        let Some(sought) = Sought::new(&snapshot, filter, now).await? else {
            return Ok(nothing);
        };
        let listed = snapshot.prepare_cached(query!("listed")).await?;
        let (mut found, mut seen, mut next) = (Vec::new(), 0, None);
        while next.is_none() {
            let rows = snapshot.query(&listed, &[&after, &STEP]).await?;
            let Some(last) = rows.last() else { break };
            let begin = after;
            after = last.get(1);
            let labelled = sought.labelled(&snapshot, begin, after).await?;
            for row in &rows {
                for image in image::read(row, self.salt)?.1 {
                    seen += usize::from(image.seq > begin.cast_unsigned());
                    if image.seq > begin.cast_unsigned()
                        && found.len() < limit
                        && sought.has(&image)
                        && labelled.as_ref().is_none_or(|labelled| labelled.contains(&image.seq))
                    {
                        found.push(image);
                    }
                }
            }
            next = match found.last() {
                Some(last) if found.len() == limit => Some(Cursor(last.seq)),
                _ => (seen >= WINDOW).then_some(Cursor(after.cast_unsigned())),
            };
        }
        let cut = within_bytes(&found, fields);
        if cut < found.len() {
            found.truncate(cut);
            next = found.last().map(|last| Cursor(last.seq));
        }
        Ok(Page { items: whole(&snapshot, found, fields).await?, next })
    }
}

/// What a list is to find.
struct Sought<'a> {
    filter: &'a Filter,
    now: Timestamp,
    queue: Option<QueueId>,
    keyed: Option<FxHashSet<u64>>,
    /// Names and values of tags, and the group, which is one without a name.
    tags: (Vec<&'a [u8]>, Vec<&'a [u8]>),
}

impl<'a> Sought<'a> {
    /// `None`: there is nothing like that.
    async fn new(
        snapshot: &Transaction<'_>,
        filter: &'a Filter,
        now: Timestamp,
    ) -> Result<Option<Sought<'a>>, Failure> {
        let mut sought = Sought { filter, now, queue: None, keyed: None, tags: Default::default() };
        if let Some(name) = &filter.queue {
            let statement = snapshot.prepare_cached(query!("queue_named")).await?;
            match snapshot.query_opt(&statement, &[&name.as_str()]).await? {
                Some(row) => sought.queue = Some(image::queue_id(row.get(0))),
                None => return Ok(None),
            }
        }
        if let Some(key) = &filter.idempotency_key {
            let statement = snapshot.prepare_cached(query!("keyed")).await?;
            sought.keyed = Some(numbers(&snapshot.query(&statement, &[&key.as_bytes()]).await?));
        }
        let tags = filter.tags.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let mut pairs: Vec<(&str, &str)> = tags.collect();
        if pairs.iter().any(|(name, _)| name.is_empty()) {
            return Ok(None);
        }
        pairs.extend(filter.group.as_ref().map(|group| ("", group.as_str())));
        pairs.sort_unstable();
        pairs.dedup();
        sought.tags = pairs.into_iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())).unzip();
        Ok(Some(sought))
    }

    /// Which items after the first number and up to the second have the tags; `None`: none are asked for.
    async fn labelled(
        &self,
        snapshot: &Transaction<'_>,
        after: i64,
        until: i64,
    ) -> Result<Option<FxHashSet<u64>>, Failure> {
        let (names, values) = &self.tags;
        if names.is_empty() {
            return Ok(None);
        }
        let statement = snapshot.prepare_cached(query!("tagged")).await?;
        Ok(Some(numbers(&snapshot.query(&statement, &[&after, &until, names, values]).await?)))
    }

    /// Whether the rest holds of an item.
    fn has(&self, image: &Image) -> bool {
        let (filter, head) = (self.filter, &image.head);
        self.queue.is_none_or(|queue| queue == head.queue)
            && filter.state.is_none_or(|state| state.matches(head.count_kind(self.now)))
            && filter.created_from.is_none_or(|from| head.created_at >= from)
            && filter.created_before.is_none_or(|before| head.created_at < before)
            && self.keyed.as_ref().is_none_or(|keyed| keyed.contains(&image.seq))
    }
}

fn numbers(rows: &[Row]) -> FxHashSet<u64> {
    rows.iter().map(|row| row.get::<_, i64>(0).cast_unsigned()).collect()
}

/// How many of the items fit into one answer: at least one.
fn within_bytes(images: &[Image], fields: FieldSet) -> usize {
    if fields == FieldSet::NONE {
        return images.len();
    }
    let mut bytes = 0_u64;
    let fits = images.iter().take_while(|image| {
        bytes = bytes.saturating_add(image.kept.bytes());
        bytes <= READ_BYTES_MAX
    });
    fits.count().max(1).min(images.len())
}
