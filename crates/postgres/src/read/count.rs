//! Counts: from counters where they know, from whole pages where those are of one kind, and from heads otherwise.

use crate::encoding::sql::queue_id;
use crate::error::Failure;
use crate::pages::snapshot::read_page;
use crate::read::filter_plan::Sought;
use crate::read::{Reader, again_if_truncated, snapshot};
use crate::statements::query;
use deadpool_postgres::Transaction;
use tokio_postgres::Row;
use towline_domain::{CountKind, Counts, FieldSet, limits};
use towline_store::{CountPage, Cursor, Filter, StoreError};

/// Items whose heads one answer looks at, at most.
const HEADS_MAX: usize = 100_000;
/// Pages that are read at once.
const STEP: i64 = 512;
/// Items that are read whole at a time, to count by what only they tell.
const READ_TO_COUNT: usize = 2000;

impl Reader {
    pub(crate) async fn count(&self, filter: Filter, after: Option<Cursor>) -> Result<CountPage, Failure> {
        if filter.is_state_alone() {
            return Ok(CountPage { count: self.counted(&filter).await?, next: None });
        }
        if filter.error.is_some() {
            let page = self.list(filter, after, READ_TO_COUNT, FieldSet::NONE).await?;
            return Ok(CountPage { count: page.items.len() as u64, next: page.next });
        }
        again_if_truncated!(self.count_once(&filter, after))
    }

    async fn counted(&self, filter: &Filter) -> Result<u64, Failure> {
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
        let Some(sought) = Sought::new(&snapshot, filter, now).await? else {
            return Ok(CountPage::default());
        };
        let by_page = filter.head.is_state_alone() && sought.keyed.is_none();
        let statement = snapshot.prepare_cached(query!("scan_pages_to_count")).await?;
        let (mut count, mut seen) = (0, 0);
        let mut run = Run::default();
        loop {
            let rows = snapshot.query(&statement, &[&after, &STEP, &by_page]).await?;
            let Some(last) = rows.last() else { break };
            let begin = after;
            after = last.get(1);
            let heads: Vec<&Row> =
                rows.iter().filter(|row| row.get::<_, Option<&[u8]>>(3).is_some()).collect();
            let labelled = match (heads.first(), heads.last()) {
                (Some(first), Some(last)) => {
                    let (first, last): (i64, i64) = (first.get(0), last.get(1));
                    sought.labelled(&snapshot, first.max(begin), last).await?
                }
                _ => None,
            };
            for row in &rows {
                if row.get::<_, Option<&[u8]>>(3).is_none() {
                    count += run.take(&snapshot, &sought, row).await?;
                    continue;
                }
                count += run.end(&snapshot, &sought).await?;
                for image in read_page(row, self.salt)?.1 {
                    let new = image.seq > begin.cast_unsigned();
                    seen += usize::from(new);
                    let has = new
                        && sought.has(&image)
                        && labelled.as_ref().is_none_or(|labelled| labelled.contains(&image.seq));
                    count += u64::from(has);
                }
            }
            if seen >= HEADS_MAX {
                count += run.end(&snapshot, &sought).await?;
                return Ok(CountPage { count, next: Some(Cursor(after.cast_unsigned())) });
            }
        }
        count += run.end(&snapshot, &sought).await?;
        Ok(CountPage { count, next: None })
    }
}

/// Pages one behind the other of which every item matches, but for its tags.
#[derive(Default)]
struct Run {
    between: Option<(i64, i64)>,
    items: u64,
}

impl Run {
    /// Goes on with a page of one kind, or ends before it. What was counted by that.
    async fn take(
        &mut self,
        snapshot: &Transaction<'_>,
        sought: &Sought<'_>,
        row: &Row,
    ) -> Result<u64, Failure> {
        let (first, last): (i64, i64) = (row.get(0), row.get(1));
        let (completed, failed): (i32, i32) = (row.get(5), row.get(6));
        let kind = if failed == 0 { CountKind::Completed } else { CountKind::Failed };
        let here = sought.queue.is_none_or(|queue| queue == queue_id(row.get(2)));
        if !here || sought.filter.head.state.is_some_and(|state| !state.matches(kind)) {
            return self.end(snapshot, sought).await;
        }
        self.between = Some((self.between.map_or(first, |between| between.0), last));
        self.items += u64::try_from(completed.max(failed)).unwrap_or(0);
        Ok(0)
    }

    async fn end(&mut self, snapshot: &Transaction<'_>, sought: &Sought<'_>) -> Result<u64, Failure> {
        let Run { between, items } = std::mem::take(self);
        let Some((first, last)) = between else { return Ok(0) };
        if let (([name], [value]), true) =
            ((&sought.tags.0[..], &sought.tags.1[..]), sought.prefixes.0.is_empty())
        {
            let statement = snapshot.prepare_cached(query!("count_tagged")).await?;
            let counted = snapshot.query_one(&statement, &[&first, &last, name, value]).await?;
            return Ok(u64::try_from(counted.get::<_, i64>(0)).unwrap_or(0));
        }
        let labelled = sought.labelled(snapshot, first, last).await?;
        Ok(labelled.map_or(items, |labelled| labelled.len() as u64))
    }
}
