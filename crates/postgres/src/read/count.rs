//! Counts of items that match a filter. They come from the counters if the filter names only a queue and a state, from the
//! counts of terminal pages if all their items match, and from the items of a page otherwise.

use crate::encoding::sql::queue_id;
use crate::error::Failure;
use crate::pages::snapshot::read_page;
use crate::read::filter_plan::FilterPlan;
use crate::read::{Reader, retry_if_truncated, snapshot};
use crate::statements::query;
use deadpool_postgres::Transaction;
use tokio_postgres::Row;
use towline_domain::{CountKind, Counts, FieldSet, limits};
use towline_store::{CountPage, Cursor, Filter, StoreError};

/// How many items one answer looks at.
const ITEMS_MAX: usize = 100_000;
/// How many pages one statement reads.
const STEP: i64 = 512;
/// How many complete items are read at a time, to count by their errors.
const COMPLETE_ITEMS_MAX: usize = 2000;

impl Reader {
    pub(crate) async fn count(&self, filter: Filter, after: Option<Cursor>) -> Result<CountPage, Failure> {
        if filter.is_state_alone() {
            return Ok(CountPage { count: self.count_from_counters(&filter).await?, next: None });
        }
        if filter.error.is_some() {
            let page = self.list(filter, after, COMPLETE_ITEMS_MAX, FieldSet::NONE).await?;
            return Ok(CountPage { count: page.items.len() as u64, next: page.next });
        }
        retry_if_truncated!(self.count_once(&filter, after))
    }

    async fn count_from_counters(&self, filter: &Filter) -> Result<u64, Failure> {
        let mut counts = Counts::default();
        if let Some(name) = &filter.queue {
            counts = self.queue(name.clone()).await?.map_or(counts, |view| view.counts);
        } else {
            let mut after = None;
            loop {
                let views = self.queues(after, limits::PAGE_MAX).await?;
                counts = views.iter().fold(counts, |sum, view| sum.plus(&view.counts));
                after = views.last().map(|view| view.queue.name.clone());
                if views.len() < limits::PAGE_MAX {
                    break;
                }
            }
        }
        Ok(counts.in_state(filter.head.state))
    }

    async fn count_once(&self, filter: &Filter, after: Option<Cursor>) -> Result<CountPage, Failure> {
        let Ok(mut after) = i64::try_from(after.map_or(0, |cursor| cursor.0)) else {
            return Ok(CountPage::default());
        };
        let mut client = self.client().await?;
        let now = self.now(&client).await?;
        let snapshot = snapshot(&mut client).await?;
        let Some(plan) = FilterPlan::new(&snapshot, filter, now).await? else {
            return Ok(CountPage::default());
        };
        let by_page = filter.head.is_state_alone() && plan.with_key.is_none();
        let statement = snapshot.prepare_cached(query!("scan_pages_to_count")).await?;
        let (mut count, mut seen) = (0, 0);
        let mut run = PageRun::default();
        loop {
            let rows = snapshot.query(&statement, &[&after, &STEP, &by_page]).await?;
            let Some(last) = rows.last() else { break };
            let begin = after;
            after = last.get(1);
            let with_items: Vec<&Row> =
                rows.iter().filter(|row| row.get::<_, Option<&[u8]>>(3).is_some()).collect();
            let tagged = match (with_items.first(), with_items.last()) {
                (Some(first), Some(last)) => {
                    let (first, last): (i64, i64) = (first.get(0), last.get(1));
                    Some(plan.tagged_items(&snapshot, first.max(begin), last).await?)
                }
                _ => None,
            };
            for row in &rows {
                if row.get::<_, Option<&[u8]>>(3).is_none() {
                    count += run.add(&snapshot, &plan, row).await?;
                    continue;
                }
                count += run.end(&snapshot, &plan).await?;
                for item in read_page(row, self.salt)?.1 {
                    let new = item.seq > begin.cast_unsigned();
                    seen += usize::from(new);
                    let matches = new
                        && plan.matches(&item)
                        && tagged.as_ref().is_some_and(|tagged| tagged.contains(item.seq));
                    count += u64::from(matches);
                }
            }
            if seen >= ITEMS_MAX {
                count += run.end(&snapshot, &plan).await?;
                return Ok(CountPage { count, next: Some(Cursor(after.cast_unsigned())) });
            }
        }
        count += run.end(&snapshot, &plan).await?;
        Ok(CountPage { count, next: None })
    }
}

/// Consecutive terminal pages in which every item matches the filter, apart from its tags.
#[derive(Default)]
struct PageRun {
    range: Option<(i64, i64)>,
    items: u64,
}

impl PageRun {
    /// Adds a page whose items are all completed or all failed, or ends the run before it. Returns the count of an ended run.
    async fn add(
        &mut self,
        snapshot: &Transaction<'_>,
        plan: &FilterPlan<'_>,
        row: &Row,
    ) -> Result<u64, Failure> {
        let (first, last): (i64, i64) = (row.get(0), row.get(1));
        let (completed, failed): (i32, i32) = (row.get(5), row.get(6));
        let kind = if failed == 0 { CountKind::Completed } else { CountKind::Failed };
        let in_queue = plan.queue.is_none_or(|queue| queue == queue_id(row.get(2)));
        if !in_queue || plan.filter.head.state.is_some_and(|state| !state.matches(kind)) {
            return self.end(snapshot, plan).await;
        }
        self.range = Some((self.range.map_or(first, |range| range.0), last));
        self.items += u64::try_from(completed.max(failed)).unwrap_or(0);
        Ok(0)
    }

    async fn end(&mut self, snapshot: &Transaction<'_>, plan: &FilterPlan<'_>) -> Result<u64, Failure> {
        let PageRun { range, items } = std::mem::take(self);
        let Some((first, last)) = range else { return Ok(0) };
        let others = plan.prefixes.0.is_empty() && plan.filter.not.is_empty();
        if let (([name], [value]), true) = ((&plan.tags.0[..], &plan.tags.1[..]), others) {
            let statement = snapshot.prepare_cached(query!("count_tagged")).await?;
            let counted = snapshot.query_one(&statement, &[&first, &last, name, value]).await?;
            return Ok(u64::try_from(counted.get::<_, i64>(0)).unwrap_or(0));
        }
        let tagged = plan.tagged_items(snapshot, first, last).await?;
        Ok(tagged.count(items))
    }
}
