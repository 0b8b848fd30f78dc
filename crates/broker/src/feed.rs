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
/// A store that does not answer so often, one second after the other, is followed by nobody.
const FAULTS_MAX: u32 = 10;

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
    /// Why those before that number were cut off.
    fault: Option<(u64, StoreError)>,
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

    /// What whoever was to be given that number next is told if it is not held any more.
    fn ended(&self, at: u64) -> Result<Followed> {
        match &self.fault {
            Some((before, fault)) if at < *before => Err(fault.clone()),
            _ => Ok(Followed::TooSlow),
        }
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

    /// Cuts off all who follow; who comes now begins there.
    fn cut_off(&self, now: EventCursor, fault: Option<StoreError>) {
        let mut held = self.lock();
        held.drop_all();
        held.cursor = Some(now);
        held.fault = fault.map(|fault| (held.first, fault));
        drop(held);
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
        // The one who counts groups is Towline's own.
        let own = usize::from(self.0.groups.are_followed());
        self.0.feed.followers().saturating_sub(own)
    }

    /// Follows what happens from there on; `None`: as many do as may.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn follow(&self, from: EventsFrom) -> Result<Option<std::result::Result<Follower, Followed>>> {
        let own = usize::from(self.0.groups.are_followed());
        let feed = &self.0.feed;
        if feed.followers.fetch_add(1, Ordering::AcqRel) >= limits::FOLLOWERS_MAX + own {
            feed.followers.fetch_sub(1, Ordering::AcqRel);
            return Ok(None);
        }
        self.counted(from, GIVEN_MAX).await.map(Some)
    }

    /// However many there are.
    pub(crate) async fn follow_from(
        &self,
        from: EventsFrom,
    ) -> Result<std::result::Result<Follower, Followed>> {
        self.0.feed.followers.fetch_add(1, Ordering::AcqRel);
        self.counted(from, limits::EVENTS_PAGE_MAX).await
    }

    /// One who has been counted already, and is given so many at a time.
    async fn counted(
        &self,
        from: EventsFrom,
        given: usize,
    ) -> Result<std::result::Result<Follower, Followed>> {
        let mut follower = Follower {
            shared: Arc::clone(&self.0),
            cursor: EventCursor::default(),
            first: None,
            at: None,
            pause: LOOK_SOON,
            given,
        };
        begin_reading(&self.0).await?;
        if let EventsFrom::After(cursor) = &from {
            follower.cursor = cursor.clone();
        }
        // Where it begins is settled now: what happens after the answer is told.
        Ok(match self.0.store.events(from, given).await? {
            Events::Gone | Events::Elsewhere => Err(Followed::Gone),
            Events::Page(page) => {
                if page.events.is_empty() {
                    follower.cursor = page.next;
                } else {
                    follower.first = Some(page);
                }
                Ok(follower)
            }
        })
    }
}

/// Where what happens from now on is told.
pub(crate) async fn now(shared: &Shared) -> Result<EventCursor> {
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
    let mut faults = 0;
    loop {
        if ends(&shared).await {
            return;
        }
        let told = shared.store.events(EventsFrom::After(cursor.clone()), limits::EVENTS_PAGE_MAX).await;
        match told {
            Ok(Events::Page(page)) => {
                faults = 0;
                // A page can tell nothing and lead on: then there is nothing to wait for.
                let moved = page.next != cursor;
                cursor = page.next.clone();
                let (more, some) = (page.more, !page.events.is_empty());
                feed.hold(page);
                if more && moved {
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
                        feed.cut_off(now, None);
                    }
                    Err(_) => tokio::time::sleep(AFTER_FAULT).await,
                }
            }
            Err(error) => {
                faults += 1;
                tracing::debug!("cannot read events: {error}");
                let stays = matches!(error, StoreError::Corrupt { .. } | StoreError::Poisoned { .. });
                if stays || faults >= FAULTS_MAX {
                    tracing::warn!("cannot read events, followers are cut off: {error}");
                    faults = 0;
                    // What cannot be read is passed over: who asks for it hears so, who asks for what comes next is told.
                    cursor = now(&shared).await.unwrap_or(cursor);
                    feed.cut_off(cursor.clone(), Some(error));
                }
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
    drop(held);
    feed.news.send_modify(|changes| *changes += 1);
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
    /// At most so many at a time.
    given: usize,
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
    /// Whether what comes next is held in memory, if there is any.
    pub(crate) fn is_abreast(&self) -> bool {
        self.at.is_some()
    }

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
            // Before anything is looked at: what changes after that is noticed.
            news.borrow_and_update();
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
            match self.held(at) {
                Err(ended) => return ended,
                Ok(events) if events.is_empty() => {
                    if news.changed().await.is_err() {
                        return Ok(Followed::Stopping);
                    }
                }
                Ok(events) => {
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

    /// Some of those that are held from that number on, or what is said if it is not held any more.
    fn held(&self, at: u64) -> std::result::Result<Vec<Arc<Event>>, Result<Followed>> {
        let held = self.shared.feed.lock();
        let skip = at.checked_sub(held.first).and_then(|skip| usize::try_from(skip).ok());
        let skip = skip.ok_or_else(|| held.ended(at))?;
        Ok(held.events.iter().skip(skip).take(self.given).cloned().collect())
    }

    /// A page of the store; once there is no more, it goes on with what is held.
    async fn catch_up(&mut self) -> Result<Option<Followed>> {
        let (end, reader) = {
            let held = self.shared.feed.lock();
            (held.end(), held.cursor.clone())
        };
        let page = match self.shared.store.events(EventsFrom::After(self.cursor.clone()), self.given).await? {
            Events::Gone | Events::Elsewhere => return Ok(Some(Followed::Gone)),
            Events::Page(page) => page,
        };
        let before = self.cursor.clone();
        self.cursor.join(&page.next);
        let moved = self.cursor != before;
        if reader.is_some_and(|reader| self.cursor.has_reached(&reader)) {
            self.at = Some(end);
        }
        if !page.events.is_empty() {
            self.pause = LOOK_SOON;
            return Ok(Some(Followed::Events(page.events.into_iter().map(Arc::new).collect())));
        }
        if self.at.is_none() && !moved {
            tokio::time::sleep(self.pause).await;
            self.pause = (self.pause * 2).min(LOOK_LATE);
        }
        Ok(None)
    }
}
