//! Reading what was told: in order, and never past a transaction that may still tell something before it.
//!
//! A transaction draws its number and commits later, so numbers become visible out of order. But it holds a lock on the table
//! from before it draws one until what it told is visible. When number `n` is visible, whoever drew a smaller one is visible
//! too, or holds that lock: once those who held it then are over, nothing can appear before `n` any more. Up to there it is
//! final, and only that is shown. Whoever does something else in the database is not waited for.

use crate::encoding::sql::timestamp;
use crate::error::{Failure, damaged};
use crate::events::codec::{self, Unpacked};
use crate::read::Reader;
use crate::statements::query;
use deadpool_postgres::Object;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use towline_store::{Event, EventCursor, EventId, EventPage, Events, EventsFrom, StoreError};

/// Transactions that one page looks at; each can tell of thousands of items.
const ROWS_MAX: i64 = 64;
/// How often to look whether what was told last is final, and the pause between: batches take a few milliseconds.
const LOOKS: u32 = 5;
const PAUSE: Duration = Duration::from_millis(2);
/// Who asks where now is can be told nothing before that is known: it looks on for two seconds, less often.
const LOOKS_FOR_NOW: u32 = 100;
const PAUSE_FOR_NOW: Duration = Duration::from_millis(20);

/// How far what was told is final, as far as this server knows.
#[derive(Debug, Default)]
pub(crate) struct Horizon(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    through: i64,
    soon: Option<Soon>,
    /// How often `soon` was set.
    set: u64,
}

/// Up to this number, once these transactions are over.
#[derive(Debug)]
struct Soon {
    number: i64,
    tellers: Vec<String>,
}

/// What is kept and final.
struct Extent {
    gone: i64,
    through: i64,
    visible: i64,
}

impl Reader {
    /// What is known after so many looks at most; `now`: as soon as all is final that was visible at the first.
    async fn extent(&self, client: &Object, now: bool) -> Result<Extent, Failure> {
        let known = client.prepare_cached(query!("read_event_range")).await?;
        let mut looks = 0;
        let mut first = None;
        loop {
            let set = self.horizon.set();
            let row = client.query_one(&known, &[]).await?;
            let (gone, visible): (i64, i64) = (row.get(0), row.get(1));
            let through = self.horizon.look(set, visible, row.get(2)).max(gone);
            let extent = Extent { gone, through, visible };
            let wanted = if now { *first.get_or_insert(visible) } else { visible };
            looks += 1;
            if through >= wanted || looks >= LOOKS && !now {
                return Ok(extent);
            }
            if looks >= LOOKS_FOR_NOW {
                let cause = "a transaction that tells something takes long, so it is not known where its events will be; ask \
                             again shortly";
                return Err(Failure::Fault(StoreError::Unavailable { cause: cause.to_owned() }));
            }
            tokio::time::sleep(if looks < LOOKS { PAUSE } else { PAUSE_FOR_NOW }).await;
        }
    }

    pub(crate) async fn events(&self, from: EventsFrom, limit: usize) -> Result<Events, Failure> {
        let store = EventId::store_of(self.salt);
        let client = self.client().await?;
        let Extent { gone, through, visible } = self.extent(&client, from == EventsFrom::Now).await?;
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
        let read = client.prepare_cached(query!("read_events")).await?;
        let rows = client.query(&read, &[&first, &through, &ROWS_MAX]).await?;
        // Some may have been truncated between the two.
        let gone = client.prepare_cached(query!("read_events_removed")).await?;
        if is_gone((after, nth), client.query_one(&gone, &[]).await?.get(0)) {
            return Ok(Events::Gone);
        }
        let more = more || rows.len() as i64 == ROWS_MAX;
        let mut page = EventPage { events: Vec::new(), next: EventCursor::default(), more };
        page.next.pass(EventId { store, group: after.cast_unsigned(), nth });
        for row in rows {
            let number: i64 = row.get(0);
            let at = timestamp(row.get(1));
            let events = codec::unpack(row.get(2), self.salt, at)
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

    /// To be asked before a look: what was set after it began, it cannot end.
    fn set(&self) -> u64 {
        self.with(|known| known.set)
    }

    /// Takes note of what is visible and of who tells something just now; how far it is final.
    fn look(&self, set: u64, visible: i64, tellers: Vec<String>) -> i64 {
        self.with(|known| {
            let over =
                |soon: &Soon| set == known.set && !soon.tellers.iter().any(|one| tellers.contains(one));
            if let Some(soon) = known.soon.take_if(|soon| over(soon)) {
                known.through = known.through.max(soon.number);
            }
            if tellers.is_empty() {
                known.through = known.through.max(visible);
            } else if known.soon.is_none() && visible > known.through {
                known.soon = Some(Soon { number: visible, tellers });
                known.set += 1;
            }
            known.through
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tellers(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn what_is_visible_is_final_when_those_who_told_something_then_are_over() {
        let horizon = Horizon::default();
        let look = |visible, names: &[&str]| horizon.look(horizon.set(), visible, tellers(names));
        assert_eq!(look(5, &["1/1", "2/1"]), 0);
        assert_eq!(look(7, &["2/1", "3/1"]), 0);
        assert_eq!(look(8, &["3/1", "4/1"]), 5, "who came later is not waited for");
        assert_eq!(look(9, &["4/1", "5/1"]), 5);
        assert_eq!(look(9, &["6/1"]), 8);
        assert_eq!(look(10, &[]), 10);
    }

    #[test]
    fn a_look_that_began_before_says_nothing_of_those_who_came_after_it() {
        let horizon = Horizon::default();
        let early = horizon.set();
        assert_eq!(horizon.look(horizon.set(), 5, tellers(&["1/1"])), 0);
        assert_eq!(horizon.look(early, 3, tellers(&[])), 3, "it knows what it saw");
        assert_eq!(horizon.look(early, 3, tellers(&["2/1"])), 3);
        assert_eq!(horizon.look(horizon.set(), 5, tellers(&["1/1"])), 3);
        assert_eq!(horizon.look(horizon.set(), 5, tellers(&["2/1"])), 5);
    }
}
