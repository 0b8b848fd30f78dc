//! Lists: items in order of submission, page by page.

use crate::batch::overlay::operations::READ_BYTES_MAX;
use crate::error::Failure;
use crate::pages::snapshot::{Image, read_page};
use crate::read::filter_plan::Sought;
use crate::read::{Reader, again_if_truncated, snapshot, whole};
use crate::statements::query;
use towline_domain::{FieldSet, limits};
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
        let listed = snapshot.prepare_cached(query!("scan_pages")).await?;
        let (mut found, mut seen, mut next) = (Vec::new(), 0, None);
        while next.is_none() {
            let rows = snapshot.query(&listed, &[&after, &STEP]).await?;
            let Some(last) = rows.last() else { break };
            let begin = after;
            after = last.get(1);
            let labelled = sought.labelled(&snapshot, begin, after).await?;
            for row in &rows {
                for image in read_page(row, self.salt)?.1 {
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
        let fields = if filter.error.is_some() { fields.with_bodies() } else { fields };
        let mut items = whole(&snapshot, found, fields).await?;
        if let Some(text) = &filter.error {
            items.retain(|stored| text.is_in(&stored.item.errors));
        }
        Ok(Page { items, next })
    }
}

/// How many of the items fit into one answer: at least one.
fn within_bytes(images: &[Image], fields: FieldSet) -> usize {
    if !fields.has_any() {
        return images.len();
    }
    let mut bytes = 0_u64;
    let fits = images.iter().take_while(|image| {
        bytes = bytes.saturating_add(image.kept.bytes());
        bytes <= READ_BYTES_MAX
    });
    fits.count().max(1).min(images.len())
}
