//! Reads events in order, page by page, up to the watermark.

use crate::encoding::sql::timestamp;
use crate::error::{Failure, damaged};
use crate::events::codec::{self, DecodedEvent};
use crate::read::Reader;
use crate::statements::query;
use deadpool_postgres::Object;
use std::time::Duration;
use tokio_postgres::Row;
use towline_store::{Event, EventCursor, EventId, EventPage, Events, EventsFrom, StoreError};

/// Rows that one page reads. Each row can have thousands of events.
const ROWS_MAX: i64 = 64;
/// How often to check whether the last visible event is below the watermark, and the pause between. A batch takes a few
/// milliseconds.
const CHECKS_MAX: u32 = 5;
const CHECK_PAUSE: Duration = Duration::from_millis(2);
/// A caller that asks for the present position needs the watermark to reach it: further checks for two seconds.
const CHECKS_FOR_NOW_MAX: u32 = 100;
const CHECK_FOR_NOW_PAUSE: Duration = Duration::from_millis(20);

/// The events that can be read.
struct EventRange {
    removed_through: i64,
    /// The watermark.
    through: i64,
    visible: i64,
}

impl Reader {
    /// Checks until the watermark reaches the last visible event, or [`CHECKS_MAX`] times. With `now`, checks until the
    /// watermark reaches the event that was the last visible one at the first check.
    async fn event_range(&self, client: &Object, now: bool) -> Result<EventRange, Failure> {
        let statement = client.prepare_cached(query!("read_event_range")).await?;
        let mut checks = 0;
        let mut first = None;
        loop {
            let generation = self.watermark.generation();
            let row = client.query_one(&statement, &[]).await?;
            let (removed_through, visible): (i64, i64) = (row.get(0), row.get(1));
            let through = self.watermark.observe(generation, visible, row.get(2)).max(removed_through);
            let target = if now { *first.get_or_insert(visible) } else { visible };
            checks += 1;
            if through >= target || checks >= CHECKS_MAX && !now {
                return Ok(EventRange { removed_through, through, visible });
            }
            if checks >= CHECKS_FOR_NOW_MAX {
                let cause = "a transaction that writes events takes long, so the present position is not known; try again \
                             shortly";
                return Err(Failure::Fault(StoreError::Unavailable { cause: cause.to_owned() }));
            }
            tokio::time::sleep(if checks < CHECKS_MAX { CHECK_PAUSE } else { CHECK_FOR_NOW_PAUSE }).await;
        }
    }

    pub(crate) async fn events(&self, from: EventsFrom, limit: usize) -> Result<Events, Failure> {
        let store = self.event_store;
        let client = self.client().await?;
        let EventRange { removed_through, through, visible } =
            self.event_range(&client, from == EventsFrom::Now).await?;
        let more = through < visible;
        let after = match &from {
            EventsFrom::Oldest => EventId { store, group: removed_through.cast_unsigned(), nth: u32::MAX },
            EventsFrom::Now => {
                let next = EventCursor::after_group(store, through.cast_unsigned());
                return Ok(Events::Page(EventPage { events: Vec::new(), next, more }));
            }
            EventsFrom::After(cursor) => {
                let Some(at) = cursor.in_store(store) else { return Ok(Events::Elsewhere) };
                // A cursor above this server's watermark comes from a server with a higher one. A cursor above every
                // visible event comes from a database that was since restored from a backup.
                let group = i64::try_from(at.group).unwrap_or(-1);
                if is_removed(group, at.nth, removed_through) || group > visible {
                    return Ok(Events::Gone);
                }
                EventId { store, group: at.group, nth: at.nth }
            }
        };
        let number = after.group.cast_signed();
        let first = if after.nth == u32::MAX { number.saturating_add(1) } else { number };
        let read = client.prepare_cached(query!("read_events")).await?;
        let rows = client.query(&read, &[&first, &through, &ROWS_MAX]).await?;
        // A rotation may have truncated rows since the range was read.
        let removed = client.prepare_cached(query!("read_events_removed")).await?;
        if is_removed(number, after.nth, client.query_one(&removed, &[]).await?.get(0)) {
            return Ok(Events::Gone);
        }
        let more = more || rows.len() as i64 == ROWS_MAX;
        Ok(Events::Page(page_of(&rows, after, more, limit, self.salt)?))
    }
}

/// The events of the rows behind `after`, at most `limit`.
fn page_of(
    rows: &[Row],
    after: EventId,
    more: bool,
    limit: usize,
    salt: u64,
) -> Result<EventPage, StoreError> {
    let mut page = EventPage { events: Vec::new(), next: EventCursor::default(), more };
    let EventId { store, group: after_group, nth: after_nth } = after;
    page.next.pass(after);
    for row in rows {
        let number: i64 = row.get(0);
        let group = number.cast_unsigned();
        let at = timestamp(row.get(1));
        let events = codec::decode(row.get(2), salt, at)
            .map_err(|what| damaged(format_args!("{number} of events"), what))?;
        let skipped = if group == after_group && after_nth != u32::MAX { after_nth as usize + 1 } else { 0 };
        for (nth, event) in (0_u32..).zip(events).skip(skipped) {
            if page.events.len() >= limit {
                page.more = true;
                return Ok(page);
            }
            let id = EventId { store, group, nth };
            page.next.pass(id);
            if let Some(DecodedEvent { kind, queue, item }) = event {
                page.events.push(Event { id, at, kind, queue, item });
            }
        }
        page.next.pass(EventId { store, group, nth: u32::MAX });
    }
    Ok(page)
}

/// Whether events behind this position were removed.
fn is_removed(group: i64, nth: u32, removed_through: i64) -> bool {
    group < removed_through || group == removed_through && nth != u32::MAX
}
