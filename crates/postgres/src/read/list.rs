//! Lists of items in order of submission, page by page.

use crate::error::Failure;
use crate::pages::snapshot::read_page;
use crate::read::filter_plan::FilterPlan;
use crate::read::{Reader, complete, item_bytes, retry_if_truncated, snapshot};
use crate::statements::query;
use towline_domain::select::READ_BYTES_MAX;
use towline_domain::{FieldSet, limits};
use towline_store::{Cursor, Filter, Page, StoreError};

/// How many items one answer looks at. Rare items are found in many short answers, not in one that takes minutes.
const WINDOW: usize = 20_000;
/// How many rows one statement reads.
const STEP: i64 = 256;

impl Reader {
    pub(crate) async fn list(
        &self,
        filter: Filter,
        after: Option<Cursor>,
        limit: usize,
        fields: FieldSet,
    ) -> Result<Page, Failure> {
        retry_if_truncated!(self.list_once(&filter, after, limit, fields))
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
        let Some(plan) = FilterPlan::new(&snapshot, filter, now).await? else {
            return Ok(nothing);
        };
        let scan = snapshot.prepare_cached(query!("scan_pages")).await?;
        let (mut found, mut seen, mut next) = (Vec::new(), 0, None);
        while next.is_none() {
            let rows = snapshot.query(&scan, &[&after, &STEP]).await?;
            let Some(last) = rows.last() else { break };
            let begin = after;
            after = last.get(1);
            let tagged = plan.tagged_items(&snapshot, begin, after).await?;
            for row in &rows {
                for item in read_page(row, self.salt)?.1 {
                    seen += usize::from(item.seq > begin.cast_unsigned());
                    if item.seq > begin.cast_unsigned()
                        && found.len() < limit
                        && plan.matches(&item)
                        && tagged.contains(item.seq)
                    {
                        found.push(item);
                    }
                }
            }
            next = match found.last() {
                Some(last) if found.len() == limit => Some(Cursor(last.seq)),
                _ => (seen >= WINDOW).then_some(Cursor(after.cast_unsigned())),
            };
        }
        let fields = if filter.error.is_some() { fields.with_bodies() } else { fields };
        let cut = within_bytes(&item_bytes(&snapshot, &found, fields).await?);
        if cut < found.len() {
            found.truncate(cut);
            next = found.last().map(|last| Cursor(last.seq));
        }
        let mut items = complete(&snapshot, found, fields).await?;
        if let Some(text) = &filter.error {
            items.retain(|stored| text.is_in(&stored.item.errors));
        }
        Ok(Page { items, next })
    }
}

/// How many items of these sizes fit into one answer, at least one.
fn within_bytes(items: &[u64]) -> usize {
    let mut bytes = 0_u64;
    let fits = items.iter().take_while(|&&item| {
        bytes = bytes.saturating_add(item);
        bytes <= READ_BYTES_MAX
    });
    fits.count().max(1).min(items.len())
}
