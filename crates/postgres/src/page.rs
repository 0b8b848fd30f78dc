//! Lists: items in order of submission, page by page.

use crate::code;
use crate::error::Failure;
use crate::image::{self, Image, millis};
use crate::overlay::operations::READ_BYTES_MAX;
use crate::read::{Reader, snapshot, whole};
use crate::statements::query;
use towline_domain::{FieldSet, StateName, Timestamp, limits};
use towline_store::{Cursor, Filter, Page};

/// Items that one page looks at, at most: what is rare is found in many short pages, not in one that never ends.
const WINDOW: i64 = 20_000;

/// Which states, and on which side of the present a pending item must be ready.
struct States {
    states: Option<Vec<i16>>,
    ready_until: Option<i64>,
    ready_after: Option<i64>,
}

impl States {
    fn of(state: Option<StateName>, now: Timestamp) -> States {
        let only =
            |states: &[i16]| States { states: Some(states.to_vec()), ready_until: None, ready_after: None };
        match state {
            None => States { states: None, ready_until: None, ready_after: None },
            Some(StateName::Pending) => only(&[code::PENDING]),
            Some(StateName::Ready) => States { ready_until: Some(millis(now)), ..only(&[code::PENDING]) },
            Some(StateName::Scheduled) => States { ready_after: Some(millis(now)), ..only(&[code::PENDING]) },
            Some(StateName::Processing) => only(&[code::PROCESSING]),
            Some(StateName::Paused) => only(&[code::PAUSED]),
            Some(StateName::Completed) => only(&[code::COMPLETED]),
            Some(StateName::Failed) => only(&[code::FAILED]),
            Some(StateName::Unfinished) => only(&[code::PENDING, code::PROCESSING, code::PAUSED]),
        }
    }
}

impl Reader {
    pub(crate) async fn list(
        &self,
        filter: Filter,
        after: Option<Cursor>,
        limit: usize,
        fields: FieldSet,
    ) -> Result<Page, Failure> {
        let nothing = Page { items: Vec::new(), next: None };
        let limit = limit.clamp(1, limits::PAGE_MAX);
        let Ok(after) = i64::try_from(after.map_or(0, |cursor| cursor.0)) else {
            return Ok(nothing);
        };
        let mut client = self.client().await?;
        let now = self.now(&client).await?;
        let snapshot = snapshot(&mut client).await?;
        let statement = snapshot.prepare_cached(query!("window")).await?;
        let window = snapshot.query_one(&statement, &[&after, &WINDOW]).await?;
        let Some(end) = window.get::<_, Option<i64>>(0) else {
            return Ok(nothing);
        };
        let queue: Option<i32> = match &filter.queue {
            None => None,
            Some(name) => {
                let statement = snapshot.prepare_cached(query!("queue_named")).await?;
                match snapshot.query_opt(&statement, &[&name.as_str()]).await? {
                    Some(row) => Some(row.get(0)),
                    None => return Ok(nothing),
                }
            }
        };
        let States { states, ready_until, ready_after } = States::of(filter.state, now);
        let (from, before) = (filter.created_from.map(stored_time), filter.created_before.map(stored_time));
        let group = filter.group.as_ref().map(String::as_bytes);
        let key = filter.idempotency_key.as_ref().map(String::as_bytes);
        let names: Vec<&[u8]> = filter.tags.iter().map(|(name, _)| name.as_bytes()).collect();
        let values: Vec<&[u8]> = filter.tags.iter().map(|(_, value)| value.as_bytes()).collect();
        let most = i64::try_from(limit).unwrap_or(i64::MAX);
        let statement = snapshot.prepare_cached(query!(items "listed")).await?;
        let rows = snapshot
            .query(
                &statement,
                &[
                    &after,
                    &end,
                    &queue,
                    &states,
                    &ready_until,
                    &ready_after,
                    &from,
                    &before,
                    &group,
                    &key,
                    &names,
                    &values,
                    &most,
                ],
            )
            .await?;
        let images: Result<Vec<Image>, _> = rows.iter().map(image::read).collect();
        let mut images = images?;
        let cut = within_bytes(&images, fields);
        images.truncate(cut);
        let full = images.len() == limit || cut < rows.len();
        let next = match images.last() {
            Some(last) if full => Some(Cursor(last.seq)),
            _ => (window.get::<_, i64>(1) == WINDOW).then_some(Cursor(end.cast_unsigned())),
        };
        Ok(Page { items: whole(&snapshot, images, fields).await?, next })
    }
}

/// A filter's time may be one that no item can have.
fn stored_time(time: Timestamp) -> i64 {
    i64::try_from(time.0).unwrap_or(i64::MAX)
}

/// How many of the items fit into one answer: at least one.
fn within_bytes(images: &[Image], fields: FieldSet) -> usize {
    if fields == FieldSet::NONE {
        return images.len();
    }
    let mut bytes = 0_u64;
    let fits = images.iter().take_while(|image| {
        bytes = bytes.saturating_add(image.bytes);
        bytes <= READ_BYTES_MAX
    });
    fits.count().max(1).min(images.len())
}
