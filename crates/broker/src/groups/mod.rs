//! Groups of items, and items with dependencies.
//!
//! Both are computed from events, so submits and settles do not wait for them. One follower a broker (`follower.rs`)
//! reads the events, counts the members of each group in a record (`record.rs`), and resolves dependencies. Any number
//! of brokers may do so on one store: each event is counted once, and each dependency is resolved once.
//!
//! The follower starts with the first item that has a group or a dependency.

mod absent;
mod dependents;
mod follower;
mod record;
mod recount;

pub(crate) use follower::run;
pub use record::{begin_groups, groups_are_begun};

use crate::broker::{Broker, Shared};
use crate::feed;
use crate::waiters::results::Results;
use record::{Group, Progress};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use towline_domain::{GroupCounts, GroupTag, limits};
use towline_store::{EventCursor, Events, EventsFrom, Result, StoreError};

/// How long a request for counts waits until earlier events are counted.
const CATCH_UP: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(5);
/// Poll interval of a caller that waits for a group.
const LOOK_EVERY: Duration = Duration::from_secs(5);
const TRIES: u32 = 100;
/// The record of a new group has recount number 0: its first read finds out whether an earlier record expired, and whether clients
/// submitted members without a broker (SQL transactions).
const FIRST_RECOUNT_NUMBER: u64 = 1;

pub(crate) struct Groups {
    /// The store has a record of the cursor from which groups are counted.
    begun: AtomicBool,
    wake: Notify,
    /// A group that was last recounted with a smaller number is recounted when it is read.
    recount_number: AtomicU64,
    /// Up to which event this broker has counted.
    at: watch::Sender<Option<EventCursor>>,
    waiters: Results<GroupTag>,
}

impl Default for Groups {
    fn default() -> Groups {
        Groups {
            begun: AtomicBool::new(false),
            wake: Notify::new(),
            recount_number: AtomicU64::new(FIRST_RECOUNT_NUMBER),
            at: watch::Sender::new(None),
            waiters: Results::default(),
        }
    }
}

impl Groups {
    pub(crate) fn are_begun(&self) -> bool {
        self.begun.load(Ordering::Acquire)
    }

    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }

    /// Whether the follower of groups is running.
    pub(crate) fn are_followed(&self) -> bool {
        self.at.borrow().is_some()
    }
}

impl Broker {
    /// The counts of a group. They include every operation that was answered before this call.
    pub async fn group(&self, name: &str) -> Result<GroupCounts> {
        self.0.group(name).await
    }

    /// Waits until a group has had `expect` members, at least one, and all have ended, or until `at_most` has passed.
    /// Returns the counts, and whether the group is done.
    pub async fn wait_group(
        &self,
        name: &str,
        expect: u64,
        at_most: Duration,
    ) -> Result<(GroupCounts, bool)> {
        let shared = &self.0;
        let mut stopped = pin!(shared.stopped());
        let mut over = pin!(tokio::time::sleep(at_most));
        loop {
            // Register before reading the counts, so that no wake-up is missed.
            let mut registration = shared.groups.waiters.register(GroupTag::of(name));
            let counts = shared.group(name).await?;
            let done = counts.is_done(expect) && !shared.has_unfinished(name).await?;
            if done || at_most.is_zero() || over.is_elapsed() || shared.is_stopping() {
                return Ok((counts, done));
            }
            tokio::select! {
                () = registration.woken() => {}
                () = tokio::time::sleep(LOOK_EVERY) => {}
                () = &mut over => {}
                () = &mut stopped => {}
            }
        }
    }
}

impl Shared {
    /// Stores the cursor from which groups are counted. Must happen before the first member is submitted.
    pub(crate) async fn begin_groups(&self) -> Result<()> {
        if self.read_progress().await?.is_none() {
            let progress = Progress::new(&feed::now(self).await?, FIRST_RECOUNT_NUMBER);
            self.begin_progress(&progress).await?;
        }
        self.groups.begun.store(true, Ordering::Release);
        self.groups.wake();
        Ok(())
    }

    async fn group(&self, name: &str) -> Result<GroupCounts> {
        if !self.groups.are_begun() {
            if self.read_progress().await?.is_none() {
                return Ok(self.recount(name, None).await?.0);
            }
            self.begin_groups().await?;
        }
        self.catch_up().await?;
        self.group_counts(name).await
    }

    /// The counts of a group, without waiting for the follower.
    async fn group_counts(&self, name: &str) -> Result<GroupCounts> {
        let tag = GroupTag::of(name);
        for _ in 0..TRIES {
            let recount_number = self.groups.recount_number.load(Ordering::Acquire);
            // Before the record is read, so that the record counts all events up to here.
            let counted = self.counted_through().await?;
            let seen = self.read_groups(&[tag]).await?.pop().unwrap_or_default();
            if let Some(group) = seen.group.as_ref().filter(|group| group.recount_number >= recount_number) {
                return Ok(group.counts);
            }
            let known = seen.group.as_ref().map(|group| (group.counts, group.counted_through(counted)));
            let (counts, at) = self.recount(name, known).await?;
            if seen.group.is_none() && counts.members == 0 {
                return Ok(counts);
            }
            if self.put_group(tag, seen, &Group::counted(counts, &at, recount_number)).await? {
                return Ok(counts);
            }
        }
        Err(StoreError::Unavailable {
            cause: format!("other servers keep changing the counts of group {name:?}; try again"),
        })
    }

    /// The cursor up to which all events are counted.
    async fn counted_through(&self) -> Result<EventCursor> {
        let here = self.groups.at.borrow().clone();
        match here {
            Some(at) => Ok(at),
            None => {
                let progress = self.read_progress().await?;
                Ok(progress.and_then(|progress| progress.cursor()).unwrap_or_default())
            }
        }
    }

    /// Waits until all events so far are counted, for [`CATCH_UP`] at most.
    async fn catch_up(&self) -> Result<()> {
        let mut counted = self.groups.at.subscribe();
        let mut over = pin!(tokio::time::sleep(CATCH_UP));
        while !over.is_elapsed() && !self.is_stopping() {
            // `None`: the follower has not started, or the store has failed.
            let here = counted.borrow_and_update().clone();
            if let Some(at) = here
                && self.has_read_all(at).await?
            {
                return Ok(());
            }
            tokio::select! {
                _ = counted.changed() => {}
                () = &mut over => {}
            }
        }
        Ok(())
    }

    /// Whether the store has no event after `at` that can still be read.
    async fn has_read_all(&self, mut at: EventCursor) -> Result<bool> {
        loop {
            match self.store.events(EventsFrom::After(at), 1).await? {
                Events::Page(page) if !page.events.is_empty() => return Ok(false),
                Events::Page(page) if page.more => at = page.next,
                Events::Page(_) | Events::Gone | Events::Elsewhere => return Ok(true),
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
    /// Whether the store has no event after `at` and up to `end`. `false` also if it cannot be found out now.
    async fn has_read_to(&self, mut at: EventCursor, end: &EventCursor) -> Result<bool> {
        while !at.has_reached(end) {
            let read = self.store.events(EventsFrom::After(at.clone()), limits::EVENTS_PAGE_MAX).await?;
            let Events::Page(page) = read else { return Ok(false) };
            if page.events.iter().any(|event| end.has_passed(event.id)) {
                return Ok(false);
            }
            at.join(&page.next);
            if !page.more {
                return Ok(at.has_reached(end));
            }
            if page.events.is_empty() {
                tokio::time::sleep(PAUSE).await;
            }
        }
        Ok(true)
    }
}
