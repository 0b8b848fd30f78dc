//! What happens, for all who follow it: one reader of the store's events, however many there are.
//!
//! The reader is woken by what is done here, and asks now and then where others may do something too. It runs while somebody
//! follows. The latest events are held in memory; who comes for older ones reads the store until it has caught up.
//!
//! **Invariant:** a follower misses nothing, or is told so and nothing more.

use crate::broker::{Broker, Shared};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use towline_domain::limits;
use towline_store::{Event, EventCursor, EventPage, Events, EventsFrom, Result, StoreError};

/// Events held for those who follow: who is further behind is cut off.
const HELD_MAX: usize = 16_384;
/// Given to a follower at a time.
const GIVEN_MAX: usize = 256;
/// After it was woken the reader waits this long for more to come.
const GATHER: Duration = Duration::from_millis(2);
/// Between two looks for what may have become visible a little late, and at most.
const LOOK_SOON: Duration = Duration::from_millis(5);
const LOOK_LATE: Duration = Duration::from_millis(500);
const AFTER_FAULT: Duration = Duration::from_secs(1);

/// How it went on for a follower.
#[derive(Debug)]
pub enum Followed {
    /// In order; at least one.
    Events(Vec<Arc<Event>>),
    /// What came next is not kept any more.
    Gone,
    /// It took so long that the latest were not held for it any more. It can come back for them.
    TooSlow,
    /// The broker stops.
    Stopping,
}

#[derive(Default)]
pub(crate) struct Feed {
    followers: AtomicUsize,
    wake: Notify,
    held: Mutex<Held>,
    /// Changes whenever something is held that was not.
    news: watch::Sender<u64>,
    /// One reader at a time begins.
    begin: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Held {
    /// Number of the first that is held; they are numbered from when the reader began.
    first: u64,
    events: VecDeque<Arc<Event>>,
    /// Behind the last one; `None`: nobody reads.
    cursor: Option<EventCursor>,
}

impl Held {
    fn end(&self) -> u64 {
        self.first + self.events.len() as u64
    }

    fn drop_all(&mut self) {
        // A number that nobody was given: whoever waits for an older one sees that it is gone.
        self.first = self.end() + 1;
        self.events.clear();
    }
}

impl Feed {
    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something may have happened.
    pub(crate) fn updated(&self) {
        if self.followers.load(Ordering::Relaxed) > 0 {
            self.wake.notify_one();
        }
    }

    pub(crate) fn followers(&self) -> usize {
        self.followers.load(Ordering::Relaxed)
    }

    /// Lets followers notice that the broker stops.
    pub(crate) fn stop(&self) {
        self.wake.notify_one();
        self.news.send_modify(|changes| *changes += 1);
    }

    fn hold(&self, page: EventPage) {
        let mut held = self.lock();
        let some = !page.events.is_empty();
        held.events.extend(page.events.into_iter().map(Arc::new));
        while held.events.len() > HELD_MAX {
            held.events.pop_front();
            held.first += 1;
        }
        held.cursor = Some(page.next);
        drop(held);
        if some {
            self.news.send_modify(|changes| *changes += 1);
        }
    }
}

impl Broker {
    /// How many follow what happens.
    #[must_use]
    pub fn followers(&self) -> usize {
        self.0.feed.followers()
    }

    /// Follows what happens from there on; `None`: as many do as may.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn follow(&self, from: EventsFrom) -> Result<Option<std::result::Result<Follower, Followed>>> {
        let feed = &self.0.feed;
        if feed.followers.fetch_add(1, Ordering::AcqRel) >= limits::FOLLOWERS_MAX {
            feed.followers.fetch_sub(1, Ordering::AcqRel);
            return Ok(None);
        }
        let mut follower = Follower {
            shared: Arc::clone(&self.0),
            cursor: EventCursor::default(),
            first: None,
            at: None,
            pause: LOOK_SOON,
        };
        begin_reading(&self.0).await?;
        if let EventsFrom::After(cursor) = &from {
            follower.cursor = cursor.clone();
        }
        // Where it begins is settled now: what happens after the answer is told.
        Ok(Some(match self.0.store.events(from, GIVEN_MAX).await? {
            Events::Gone | Events::Elsewhere => Err(Followed::Gone),
            Events::Page(page) => {
                if page.events.is_empty() {
                    follower.cursor = page.next;
                } else {
                    follower.first = Some(page);
                }
                Ok(follower)
            }
        }))
    }
}

async fn now(shared: &Shared) -> Result<EventCursor> {
    match shared.store.events(EventsFrom::Now, 1).await? {
        Events::Page(page) => Ok(page.next),
        Events::Gone | Events::Elsewhere => Err(StoreError::Closed),
    }
}

async fn begin_reading(shared: &Arc<Shared>) -> Result<()> {
    let feed = &shared.feed;
    let _one_at_a_time = feed.begin.lock().await;
    if feed.lock().cursor.is_some() {
        return Ok(());
    }
    let cursor = now(shared).await?;
    feed.lock().cursor = Some(cursor.clone());
    tokio::spawn(read(Arc::clone(shared), cursor));
    Ok(())
}

/// Reads for everybody, while there is somebody.
async fn read(shared: Arc<Shared>, mut cursor: EventCursor) {
    let feed = &shared.feed;
    let mut pause = LOOK_SOON;
    loop {
        if ends(&shared).await {
            return;
        }
        let told = shared.store.events(EventsFrom::After(cursor.clone()), limits::EVENTS_PAGE_MAX).await;
        match told {
            Ok(Events::Page(page)) => {
                cursor = page.next.clone();
                let (more, some) = (page.more, !page.events.is_empty());
                feed.hold(page);
                if more && some {
                    continue;
                }
                pause = if some { LOOK_SOON } else { (pause * 2).min(LOOK_LATE) };
                if shared.is_alone && !more {
                    feed.wake.notified().await;
                } else if tokio::time::timeout(pause, feed.wake.notified()).await.is_err() {
                    continue;
                }
                pause = LOOK_SOON;
                tokio::time::sleep(GATHER).await;
            }
            Ok(Events::Gone | Events::Elsewhere) => {
                // Everybody who follows is told that some are gone.
                tracing::warn!("events were gone before they were read; followers are cut off");
                match now(&shared).await {
                    Ok(now) => {
                        cursor = now.clone();
                        let mut held = feed.lock();
                        held.drop_all();
                        held.cursor = Some(now);
                        drop(held);
                        feed.news.send_modify(|changes| *changes += 1);
                    }
                    Err(_) => tokio::time::sleep(AFTER_FAULT).await,
                }
            }
            Err(error) => {
                tracing::debug!("cannot read events: {error}");
                tokio::time::sleep(AFTER_FAULT).await;
            }
        }
    }
}

/// Whether nobody follows any more. Then what was held is forgotten.
async fn ends(shared: &Shared) -> bool {
    let feed = &shared.feed;
    if feed.followers() > 0 && !shared.is_stopping() {
        return false;
    }
    // Who comes now waits for this to be over, and begins anew.
    let _one_at_a_time = feed.begin.lock().await;
    if feed.followers() > 0 && !shared.is_stopping() {
        return false;
    }
    let mut held = feed.lock();
    held.drop_all();
    held.cursor = None;
    true
}

/// One who follows. Dropped, it does not.
pub struct Follower {
    shared: Arc<Shared>,
    cursor: EventCursor,
    /// Read when it began.
    first: Option<EventPage>,
    /// The number of the next event among those that are held; `None`: it reads the store, to catch up.
    at: Option<u64>,
    pause: Duration,
}

impl std::fmt::Debug for Follower {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Follower({})", self.cursor)
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        if self.shared.feed.followers.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.shared.feed.wake.notify_one();
        }
    }
}

impl Follower {
    /// Behind everything it was given.
    #[must_use]
    pub fn cursor(&self) -> &EventCursor {
        &self.cursor
    }

    /// Waits for what comes next. After anything but events it is over. Dropping the future loses nothing.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn next(&mut self) -> Result<Followed> {
        let mut news = self.shared.feed.news.subscribe();
        loop {
            if self.shared.is_stopping() {
                return Ok(Followed::Stopping);
            }
            if let Some(page) = self.first.take() {
                self.cursor.join(&page.next);
                return Ok(Followed::Events(page.events.into_iter().map(Arc::new).collect()));
            }
            let Some(at) = self.at else {
                if let Some(told) = self.catch_up().await? {
                    return Ok(told);
                }
                continue;
            };
            news.borrow_and_update();
            match self.held(at) {
                None => return Ok(Followed::TooSlow),
                Some(events) if events.is_empty() => {
                    if news.changed().await.is_err() {
                        return Ok(Followed::Stopping);
                    }
                }
                Some(events) => {
                    self.at = Some(at + events.len() as u64);
                    // It may have read some of them itself.
                    let new: Vec<_> =
                        events.into_iter().filter(|event| !self.cursor.has_passed(event.id)).collect();
                    new.iter().for_each(|event| self.cursor.pass(event.id));
                    if !new.is_empty() {
                        return Ok(Followed::Events(new));
                    }
                }
            }
        }
    }

    /// Some of those that are held from that number on; `None`: it is not held any more.
    fn held(&self, at: u64) -> Option<Vec<Arc<Event>>> {
        let held = self.shared.feed.lock();
        let skip = usize::try_from(at.checked_sub(held.first)?).ok()?;
        Some(held.events.iter().skip(skip).take(GIVEN_MAX).cloned().collect())
    }

    /// A page of the store; once there is no more, it goes on with what is held.
    async fn catch_up(&mut self) -> Result<Option<Followed>> {
        let (end, reader) = {
            let held = self.shared.feed.lock();
            (held.end(), held.cursor.clone())
        };
        let page = match self.shared.store.events(EventsFrom::After(self.cursor.clone()), GIVEN_MAX).await? {
            Events::Gone | Events::Elsewhere => return Ok(Some(Followed::Gone)),
            Events::Page(page) => page,
        };
        self.cursor.join(&page.next);
        if reader.is_some_and(|reader| self.cursor.has_reached(&reader)) {
            self.at = Some(end);
        }
        if !page.events.is_empty() {
            self.pause = LOOK_SOON;
            return Ok(Some(Followed::Events(page.events.into_iter().map(Arc::new).collect())));
        }
        if self.at.is_none() {
            tokio::time::sleep(self.pause).await;
            self.pause = (self.pause * 2).min(LOOK_LATE);
        }
        Ok(None)
    }
}
