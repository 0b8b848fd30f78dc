//! Reading what was told: in order, and never past a transaction that may still tell something before it.
//!
//! A transaction draws its number after it has an id and before it commits, so numbers become visible out of order. When
//! number `n` is visible, whoever drew a smaller one had an id by then. So a transaction is begun after that, and once all
//! those before it are over, nothing can appear before `n` any more: up to there it is final, and only that is shown.

use crate::error::{Failure, damaged};
use crate::image::timestamp;
use crate::read::Reader;
use crate::statements::query;
use crate::told::{self, Unpacked};
use deadpool_postgres::Object;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use towline_store::{Event, EventCursor, EventId, EventPage, Events, EventsFrom};

/// Transactions that one page looks at; each can tell of thousands of items.
const ROWS_MAX: i64 = 64;
/// How often to look again whether what was told last is final, and the pause between: batches take a few milliseconds.
const LOOKS: u32 = 4;
const PAUSE: Duration = Duration::from_millis(2);

/// How far what was told is final, as far as this server knows.
#[derive(Debug, Default)]
pub(crate) struct Horizon(Mutex<Known>);

#[derive(Debug, Clone, Copy, Default)]
struct Known {
    through: i64,
    /// Up to this number, once all transactions before this one are over.
    soon: Option<(i64, i64)>,
}

/// What is kept and final.
struct Extent {
    gone: i64,
    through: i64,
    visible: i64,
}

impl Reader {
    async fn extent(&self, client: &Object) -> Result<Extent, Failure> {
        let known = client.prepare_cached(query!("events_known")).await?;
        let begin = client.prepare_cached(query!("new_transaction")).await?;
        let mut looks = 0;
        loop {
            let row = client.query_one(&known, &[]).await?;
            let (gone, visible, oldest): (i64, i64, i64) = (row.get(0), row.get(1), row.get(2));
            let Known { through, soon } = self.horizon.look(oldest);
            let through = through.max(gone);
            looks += 1;
            if through >= visible || looks > LOOKS {
                return Ok(Extent { gone, through, visible });
            }
            if soon.is_none() {
                let id: i64 = client.query_one(&begin, &[]).await?.get(0);
                self.horizon.expect(visible, id);
            } else if looks > 2 {
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    pub(crate) async fn events(&self, from: EventsFrom, limit: usize) -> Result<Events, Failure> {
        let store = EventId::store_of(self.salt);
        let client = self.client().await?;
        let Extent { gone, through, visible } = self.extent(&client).await?;
        let more = through < visible;
        let (after, nth) = match &from {
            EventsFrom::Oldest => (gone, u32::MAX),
            EventsFrom::Now => {
                let next = EventCursor::after_group(store, through.cast_unsigned());
                return Ok(Events::Page(EventPage { events: Vec::new(), next, more }));
            }
            EventsFrom::After(cursor) => {
                let Some(at) = cursor.in_store(store) else { return Ok(Events::Elsewhere) };
                // One that is not final here was shown by a server that knows more; one that nobody sees, by a database
                // that was lost since.
                let group = i64::try_from(at.group).unwrap_or(-1);
                if is_gone((group, at.nth), gone) || group > visible {
                    return Ok(Events::Gone);
                }
                (group, at.nth)
            }
        };
        let first = if nth == u32::MAX { after.saturating_add(1) } else { after };
        let read = client.prepare_cached(query!("events")).await?;
        let rows = client.query(&read, &[&first, &through, &ROWS_MAX]).await?;
        // Some may have been truncated between the two.
        if is_gone((after, nth), self.extent(&client).await?.gone) {
            return Ok(Events::Gone);
        }
        let more = more || rows.len() as i64 == ROWS_MAX;
        let mut page = EventPage { events: Vec::new(), next: EventCursor::default(), more };
        page.next.pass(EventId { store, group: after.cast_unsigned(), nth });
        for row in rows {
            let number: i64 = row.get(0);
            let at = timestamp(row.get(1));
            let events = told::unpack(row.get(2), self.salt, at)
                .map_err(|what| damaged(format_args!("{number} of events"), what))?;
            let skipped = if number == after && nth != u32::MAX { nth as usize + 1 } else { 0 };
            for (place, event) in (0_u32..).zip(events).skip(skipped) {
                if page.events.len() >= limit {
                    page.more = true;
                    return Ok(Events::Page(page));
                }
                let id = EventId { store, group: number.cast_unsigned(), nth: place };
                page.next.pass(id);
                if let Some(Unpacked { kind, queue, item }) = event {
                    page.events.push(Event { id, at, kind, queue, item });
                }
            }
            page.next.pass(EventId { store, group: number.cast_unsigned(), nth: u32::MAX });
        }
        Ok(Events::Page(page))
    }
}

/// Whether something behind that place is not kept, or may not be.
fn is_gone((group, nth): (i64, u32), gone: i64) -> bool {
    group < gone || group == gone && nth != u32::MAX
}

impl Horizon {
    fn with<T>(&self, change: impl FnOnce(&mut Known) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes note of the oldest transaction that is under way.
    fn look(&self, oldest: i64) -> Known {
        self.with(|known| {
            if let Some((number, _)) = known.soon.filter(|(_, id)| *id <= oldest) {
                known.through = known.through.max(number);
                known.soon = None;
            }
            *known
        })
    }

    /// This number was visible before that transaction began.
    fn expect(&self, number: i64, id: i64) {
        self.with(|known| {
            known.soon.get_or_insert((number, id));
        });
    }
}
