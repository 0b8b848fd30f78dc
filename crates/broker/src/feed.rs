//! One reader of the store's events for all followers of this broker.
//!
//! The reader runs while there is a follower. Updates of this broker wake it; it also polls if other brokers
//! use the store. It holds the latest events in memory. A follower that wants older events reads the store until it has
//! caught up.
//!
//! **Invariant:** a follower gets every event in order. If it misses one, it learns that and gets no further events.

use crate::broker::{Broker, Shared};
use parking_lot::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use towline_domain::limits;
use towline_store::{Event, EventCursor, EventPage, Events, EventsFrom, Result, StoreError};

/// Events held in memory. A follower that falls further behind is cut off.
const RECENT_EVENTS_MAX: usize = 16_384;
/// Events that a follower gets at a time.
const PAGE_MAX: usize = 256;
/// After a wake-up the reader waits this long for more events.
const GATHER: Duration = Duration::from_millis(2);
/// Minimum and maximum poll interval. Events of other brokers may become visible late.
const POLL_MIN: Duration = Duration::from_millis(5);
const POLL_MAX: Duration = Duration::from_millis(500);
const AFTER_FAULT: Duration = Duration::from_secs(1);
/// After this many failed reads in a row, one a second, followers are cut off.
const FAULTS_MAX: u32 = 10;

/// Why a follower gets no further events.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FollowError {
    #[error(
        "the events after this one are no longer available; list the items again and follow from now on, or use cursor=oldest"
    )]
    Gone,
    /// Its next event is no longer held in memory. It can follow again from its cursor.
    #[error(
        "the client reads too slowly and fell behind; reconnect with the last id as `cursor`, and read faster"
    )]
    TooSlow,
    #[error("the server is stopping; reconnect with the last id as `cursor`")]
    Stopping,
    #[error("the server has {0} followers, which is the maximum")]
    TooMany(usize),
    #[error(transparent)]
    Store(#[from] StoreError),
}

#[derive(Default)]
pub(crate) struct Feed {
    followers: AtomicUsize,
    wake: Notify,
    recent: Mutex<RecentEvents>,
    /// Changes when events are added to `recent` or dropped from it.
    version: watch::Sender<u64>,
    /// Locked while the reader starts or ends.
    starting: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct RecentEvents {
    /// Number of the first event recent. Numbers count from the start of the reader.
    first: u64,
    events: VecDeque<Arc<Event>>,
    /// After the last event recent. `None`: the reader is not running.
    cursor: Option<EventCursor>,
    /// Why followers before that number were cut off.
    fault: Option<(u64, StoreError)>,
}

impl RecentEvents {
    fn end(&self) -> u64 {
        self.first + self.events.len() as u64
    }

    fn clear(&mut self) {
        // Skip a number, so that followers of all older numbers see that theirs is gone.
        self.first = self.end() + 1;
        self.events.clear();
    }

    /// What a follower gets if the event with that number is no longer recent.
    fn ended(&self, at: u64) -> FollowError {
        match &self.fault {
            Some((before, fault)) if at < *before => fault.clone().into(),
            _ => FollowError::TooSlow,
        }
    }
}

impl Feed {
    fn lock(&self) -> MutexGuard<'_, RecentEvents> {
        self.recent.lock()
    }

    /// Wakes the reader: there may be new events.
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
        self.version.send_modify(|number| *number += 1);
    }

    /// Cuts off all followers. New followers start at `now`.
    fn cut_off(&self, now: EventCursor, fault: Option<StoreError>) {
        let mut recent = self.lock();
        recent.clear();
        recent.cursor = Some(now);
        recent.fault = fault.map(|fault| (recent.first, fault));
        drop(recent);
        self.version.send_modify(|number| *number += 1);
    }

    fn hold(&self, page: EventPage) {
        let mut recent = self.lock();
        let has_events = !page.events.is_empty();
        recent.events.extend(page.events.into_iter().map(Arc::new));
        while recent.events.len() > RECENT_EVENTS_MAX {
            recent.events.pop_front();
            recent.first += 1;
        }
        recent.cursor = Some(page.next);
        drop(recent);
        if has_events {
            self.version.send_modify(|number| *number += 1);
        }
    }
}

impl Broker {
    /// Number of followers.
    #[must_use]
    pub fn followers(&self) -> usize {
        // The follower that counts groups is internal.
        let own = usize::from(self.0.groups.are_followed());
        self.0.feed.followers().saturating_sub(own)
    }

    /// Follows the events from a position.
    pub async fn follow(&self, from: EventsFrom) -> std::result::Result<Follower, FollowError> {
        let own = usize::from(self.0.groups.are_followed());
        let feed = &self.0.feed;
        if feed.followers.fetch_add(1, Ordering::AcqRel) >= limits::FOLLOWERS_MAX + own {
            feed.followers.fetch_sub(1, Ordering::AcqRel);
            return Err(FollowError::TooMany(limits::FOLLOWERS_MAX));
        }
        self.open_follower(from, PAGE_MAX).await
    }

    /// Follows without the limit on followers.
    pub(crate) async fn follow_from(&self, from: EventsFrom) -> std::result::Result<Follower, FollowError> {
        self.0.feed.followers.fetch_add(1, Ordering::AcqRel);
        self.open_follower(from, limits::EVENTS_PAGE_MAX).await
    }

    /// The caller has already added one to the number of followers.
    async fn open_follower(
        &self,
        from: EventsFrom,
        page_max: usize,
    ) -> std::result::Result<Follower, FollowError> {
        let mut follower = Follower {
            shared: Arc::clone(&self.0),
            cursor: EventCursor::default(),
            first: None,
            at: None,
            pause: POLL_MIN,
            page_max,
        };
        start_reader(&self.0).await?;
        if let EventsFrom::After(cursor) = &from {
            follower.cursor = cursor.clone();
        }
        // Read the first page now, so that the follower gets every event after this call returns.
        match self.0.store.events(from, page_max).await? {
            Events::Gone | Events::Elsewhere => return Err(FollowError::Gone),
            Events::Page(page) if page.events.is_empty() => follower.cursor = page.next,
            Events::Page(page) => follower.first = Some(page),
        }
        Ok(follower)
    }
}

/// The cursor after the latest event.
pub(crate) async fn now(shared: &Shared) -> Result<EventCursor> {
    match shared.store.events(EventsFrom::Now, 1).await? {
        Events::Page(page) => Ok(page.next),
        Events::Gone | Events::Elsewhere => Err(StoreError::Closed),
    }
}

async fn start_reader(shared: &Arc<Shared>) -> Result<()> {
    let feed = &shared.feed;
    let _one_at_a_time = feed.starting.lock().await;
    if feed.lock().cursor.is_some() {
        return Ok(());
    }
    let cursor = now(shared).await?;
    feed.lock().cursor = Some(cursor.clone());
    tokio::spawn(run_reader(Arc::clone(shared), cursor));
    Ok(())
}

/// Reads events while there is a follower.
async fn run_reader(shared: Arc<Shared>, mut cursor: EventCursor) {
    let feed = &shared.feed;
    let mut pause = POLL_MIN;
    let mut faults = 0;
    loop {
        if stops_reading(&shared).await {
            return;
        }
        let read = shared.store.events(EventsFrom::After(cursor.clone()), limits::EVENTS_PAGE_MAX).await;
        match read {
            Ok(Events::Page(page)) => {
                faults = 0;
                // A page without events may still move the cursor: then read on at once.
                let moved = page.next != cursor;
                cursor = page.next.clone();
                let (more, has_events) = (page.more, !page.events.is_empty());
                feed.hold(page);
                if more && moved {
                    continue;
                }
                pause = if has_events { POLL_MIN } else { (pause * 2).min(POLL_MAX) };
                if shared.is_alone && !more {
                    feed.wake.notified().await;
                } else if tokio::time::timeout(pause, feed.wake.notified()).await.is_err() {
                    continue;
                }
                pause = POLL_MIN;
                tokio::time::sleep(GATHER).await;
            }
            Ok(Events::Gone | Events::Elsewhere) => {
                tracing::warn!("events were deleted before they were read; followers are cut off");
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
                let is_permanent = matches!(error, StoreError::Corrupt { .. } | StoreError::Poisoned { .. });
                if is_permanent || faults >= FAULTS_MAX {
                    tracing::warn!("cannot read events, followers are cut off: {error}");
                    faults = 0;
                    // Skip what cannot be read: its followers get the error, new followers get later events.
                    cursor = now(&shared).await.unwrap_or(cursor);
                    feed.cut_off(cursor.clone(), Some(error));
                }
                tokio::time::sleep(AFTER_FAULT).await;
            }
        }
    }
}

/// Drops the held events if the last follower is gone or the broker is stopping.
async fn stops_reading(shared: &Shared) -> bool {
    let feed = &shared.feed;
    if feed.followers() > 0 && !shared.is_stopping() {
        return false;
    }
    // A new follower waits for this lock, then starts a new reader.
    let _one_at_a_time = feed.starting.lock().await;
    if feed.followers() > 0 && !shared.is_stopping() {
        return false;
    }
    let mut recent = feed.lock();
    recent.clear();
    recent.cursor = None;
    drop(recent);
    feed.version.send_modify(|number| *number += 1);
    true
}

/// A follower of the events, until it is dropped.
pub struct Follower {
    shared: Arc<Shared>,
    cursor: EventCursor,
    /// Read at the start.
    first: Option<EventPage>,
    /// The number of the next event in memory. `None`: it is catching up from the store.
    at: Option<u64>,
    pause: Duration,
    page_max: usize,
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
    /// Whether it reads from memory.
    pub(crate) fn is_caught_up(&self) -> bool {
        self.at.is_some()
    }

    /// After the last event it got.
    #[must_use]
    pub fn cursor(&self) -> &EventCursor {
        &self.cursor
    }

    /// Waits for the next events: at least one, in order. Dropping the future loses nothing.
    ///
    /// # Errors
    /// Only [`FollowError::Store`] may be temporary. After any other error, follow again.
    pub async fn next(&mut self) -> std::result::Result<Vec<Arc<Event>>, FollowError> {
        let mut version = self.shared.feed.version.subscribe();
        loop {
            // First of all, so that no later change is missed.
            version.borrow_and_update();
            if self.shared.is_stopping() {
                return Err(FollowError::Stopping);
            }
            if let Some(page) = self.first.take() {
                self.cursor.join(&page.next);
                return Ok(page.events.into_iter().map(Arc::new).collect());
            }
            let Some(at) = self.at else {
                let events = self.catch_up().await?;
                if events.is_empty() {
                    continue;
                }
                return Ok(events);
            };
            let events = self.recent(at)?;
            if events.is_empty() {
                if version.changed().await.is_err() {
                    return Err(FollowError::Stopping);
                }
                continue;
            }
            self.at = Some(at + events.len() as u64);
            // It may have read some of them from the store already.
            let new: Vec<_> = events.into_iter().filter(|event| !self.cursor.has_passed(event.id)).collect();
            new.iter().for_each(|event| self.cursor.pass(event.id));
            if !new.is_empty() {
                return Ok(new);
            }
        }
    }

    /// Events in memory from that number on, or why it is no longer in memory.
    fn recent(&self, at: u64) -> std::result::Result<Vec<Arc<Event>>, FollowError> {
        let recent = self.shared.feed.lock();
        let skip = at.checked_sub(recent.first).and_then(|skip| usize::try_from(skip).ok());
        let skip = skip.ok_or_else(|| recent.ended(at))?;
        Ok(recent.events.iter().skip(skip).take(self.page_max).cloned().collect())
    }

    /// Reads a page from the store. At the position of the reader, switches to the events in memory.
    async fn catch_up(&mut self) -> std::result::Result<Vec<Arc<Event>>, FollowError> {
        let (end, reader) = {
            let recent = self.shared.feed.lock();
            (recent.end(), recent.cursor.clone())
        };
        let page =
            match self.shared.store.events(EventsFrom::After(self.cursor.clone()), self.page_max).await? {
                Events::Gone | Events::Elsewhere => return Err(FollowError::Gone),
                Events::Page(page) => page,
            };
        let before = self.cursor.clone();
        self.cursor.join(&page.next);
        let moved = self.cursor != before;
        if reader.is_some_and(|reader| self.cursor.has_reached(&reader)) {
            self.at = Some(end);
        }
        if !page.events.is_empty() {
            self.pause = POLL_MIN;
            return Ok(page.events.into_iter().map(Arc::new).collect());
        }
        if self.at.is_none() && !moved {
            tokio::time::sleep(self.pause).await;
            self.pause = (self.pause * 2).min(POLL_MAX);
        }
        Ok(Vec::new())
    }
}
