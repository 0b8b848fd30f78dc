//! Groups of items, and items that wait for others.
//!
//! Both are made of what the store tells afterwards: whoever submits and settles waits for none of it. One follower a
//! broker (`follower.rs`) reads the events, counts them into one record for each group (`record.rs`), and lets those go that wait.
//! Any number of brokers may do so on one store: what is counted is counted once, and who goes, goes once.
//!
//! Nobody follows before the first item of a group is submitted.

mod dependents;
mod follower;
mod record;
mod recount;

pub(crate) use follower::run;

use crate::broker::{Broker, Shared};
use crate::feed;
use crate::waiters::results::Results;
use record::{Group, Progress};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use towline_domain::{GroupCounts, GroupTag};
use towline_store::{EventCursor, Events, EventsFrom, Result, StoreError};

/// How long an answer waits for what was told before it was asked for.
const CATCH_UP: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(5);
/// Who waits looks so often unasked.
const LOOK_EVERY: Duration = Duration::from_secs(5);
const TRIES: u32 = 100;

pub(crate) struct Groups {
    /// It is written down that there are groups, and from where on they are counted.
    begun: AtomicBool,
    rang: Notify,
    epoch: AtomicU64,
    /// Up to where they are counted here.
    at: watch::Sender<Option<EventCursor>>,
    waiters: Results<GroupTag>,
}

impl Default for Groups {
    fn default() -> Groups {
        Groups {
            begun: AtomicBool::new(false),
            rang: Notify::new(),
            epoch: AtomicU64::new(0),
            at: watch::Sender::new(None),
            waiters: Results::default(),
        }
    }
}

impl Groups {
    pub(crate) fn are_begun(&self) -> bool {
        self.begun.load(Ordering::Acquire)
    }

    pub(crate) fn ring(&self) {
        self.rang.notify_one();
    }

    /// Whether the follower is one of those who follow what happens.
    pub(crate) fn are_followed(&self) -> bool {
        self.at.borrow().is_some()
    }
}

impl Broker {
    /// How a group stands. What was answered before this was asked is counted.
    pub async fn group(&self, name: &str) -> Result<GroupCounts> {
        self.0.group(name).await
    }

    /// Waits until a group has had so many members, at least one, and all have ended, or for that long. How it stands then,
    /// and whether it is done.
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
            // Registered before the look, so that no end falls between the two.
            let mut told = shared.groups.waiters.register(GroupTag::of(name));
            let counts = shared.group(name).await?;
            let done = counts.is_done(expect) && !shared.has_unfinished(name).await?;
            if done || at_most.is_zero() || over.is_elapsed() || shared.is_stopping() {
                return Ok((counts, done));
            }
            tokio::select! {
                () = told.woken() => {}
                () = tokio::time::sleep(LOOK_EVERY) => {}
                () = &mut over => {}
                () = &mut stopped => {}
            }
        }
    }
}

impl Shared {
    /// Writes down from where on groups are counted. Before the first member is submitted.
    pub(crate) async fn begin_groups(&self) -> Result<()> {
        if self.read_progress().await?.is_none() {
            // Where others submit, too (a database's own transactions), there may have been members before.
            let epoch = u64::from(!self.is_alone);
            let progress = Progress::new(&feed::now(self).await?, epoch);
            self.begin_progress(&progress).await?;
        }
        self.groups.begun.store(true, Ordering::Release);
        self.groups.ring();
        Ok(())
    }

    async fn group(&self, name: &str) -> Result<GroupCounts> {
        if !self.groups.are_begun() {
            if self.read_progress().await?.is_none() {
                return Ok(self.recount(name).await?.0);
            }
            self.begin_groups().await?;
        }
        self.catch_up().await?;
        self.group_counts(name).await
    }

    /// How a group stands, as far as it has been counted.
    async fn group_counts(&self, name: &str) -> Result<GroupCounts> {
        let tag = GroupTag::of(name);
        for _ in 0..TRIES {
            let epoch = self.groups.epoch.load(Ordering::Acquire);
            let seen = self.read_groups(&[tag]).await?.pop().unwrap_or_default();
            if let Some(group) = seen.group.as_ref().filter(|group| group.epoch >= epoch) {
                return Ok(group.counts);
            }
            let (mut counts, at) = self.recount(name).await?;
            match &seen.group {
                Some(known) => join(&mut counts, &known.counts),
                None if counts.members == 0 => return Ok(counts),
                None => {}
            }
            if self.put_group(tag, seen, &Group::counted(counts, &at, epoch)).await? {
                return Ok(counts);
            }
        }
        Err(StoreError::Unavailable {
            cause: format!("group {name:?} is counted by others, again and again"),
        })
    }

    /// Waits until what has been told so far is counted, within reason.
    async fn catch_up(&self) -> Result<()> {
        let mut counted = self.groups.at.subscribe();
        let mut over = pin!(tokio::time::sleep(CATCH_UP));
        while !over.is_elapsed() && !self.is_stopping() {
            // `None`: the follower is about to begin, or the store is at fault.
            let here = counted.borrow_and_update().clone();
            if let Some(at) = here
                && self.has_told_all(at).await?
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

    /// Whether nothing was told after that. What is too old to be known has not been.
    async fn has_told_all(&self, mut at: EventCursor) -> Result<bool> {
        loop {
            match self.store.events(EventsFrom::After(at), 1).await? {
                Events::Page(page) if !page.events.is_empty() => return Ok(false),
                Events::Page(page) if page.more => at = page.next,
                Events::Page(_) | Events::Gone | Events::Elsewhere => return Ok(true),
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Members that are not kept any more were counted before. Which of them were tried again since, nobody knows.
fn join(counts: &mut GroupCounts, known: &GroupCounts) {
    let unfinished = counts.unfinished();
    counts.completed = counts.completed.max(known.completed);
    counts.failed = counts.failed.max(known.failed);
    counts.removed = counts.removed.max(known.removed);
    counts.members = unfinished + counts.completed + counts.failed + counts.removed;
}
