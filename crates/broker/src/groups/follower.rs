//! Reads events, counts the members of groups, and resolves dependencies.
//!
//! **Invariant:** the cursor is saved after everything that follows from the events before it. A restart at the saved
//! cursor repeats some of that, which changes nothing.

use super::absent::Absent;
use super::dependents::Dependents;
use super::record::Progress;
use crate::broker::{Broker, Shared};
use crate::feed::{self, FollowError, Follower};
use futures::FutureExt;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;
use towline_domain::change::Answer;
use towline_domain::dependency::DependencyVerdict;
use towline_domain::{
    Condition, DependencyState, DependsOn, EventKind, FieldSet, GroupTag, HeadFilter, ItemId, ItemState,
    Refusal, StateKind, StateName, limits,
};
use towline_store::{
    Event, EventCursor, EventsFrom, Filter, Operation, OperationError, Reply, Result, StoreError,
};

const AFTER_FAULT: Duration = Duration::from_secs(1);
/// How often to check whether groups were first used at another broker.
const ASK_EVERY: Duration = Duration::from_secs(5);
/// How often to check whether the events up to the time of a missing dependency are read, if no event arrives.
const CHECK_ABSENT_EVERY: Duration = Duration::from_secs(1);
/// Maximum number of events counted together: each group is written once for all of them.
const GATHER_MAX: usize = 4000;
/// Maximum number of events between two saves of the cursor.
const SAVE_AFTER: usize = 20_000;
const PAGE: usize = 1000;

pub(crate) async fn run(shared: Weak<Shared>) {
    loop {
        let Some(shared) = shared.upgrade() else { return };
        if shared.is_stopping() {
            return;
        }
        if let Err(error) = follow(&shared).await {
            // Warn only once about a store that stays unreachable.
            match shared.groups.at.send_replace(None) {
                Some(_) => tracing::warn!("groups are not counted for now: {error}"),
                None => tracing::debug!("groups are not counted for now: {error}"),
            }
            tokio::time::sleep(AFTER_FAULT).await;
        }
    }
}

/// Returns when the follower has to start again.
async fn follow(shared: &Arc<Shared>) -> Result<()> {
    let Some(progress) = shared.read_progress().await? else {
        let woken = shared.groups.wake.notified();
        if shared.is_alone {
            woken.await;
        } else {
            let _ = tokio::time::timeout(ASK_EVERY, woken).await;
        }
        return Ok(());
    };
    shared.groups.begun.store(true, Ordering::Release);
    shared.groups.recount_number.fetch_max(progress.recount_number, Ordering::AcqRel);
    let follower = match progress.cursor() {
        Some(cursor) => follow_after(shared, cursor).await?,
        None => None,
    };
    let mut counter = Counter::new(shared);
    let Some(mut follower) = follower else { return counter.recount_all().await };
    counter.load_dependents().await?;
    shared.groups.at.send_replace(Some(follower.cursor().clone()));
    loop {
        counter.resolve_after_catch_up(follower.cursor()).await?;
        counter.resolve_absent(follower.cursor()).await?;
        match counter.next(&mut follower).await {
            Ok(events) => {
                let events = gather(&mut follower, events).await?;
                counter.count(&events, follower.cursor()).await?;
            }
            Err(FollowError::TooSlow | FollowError::TooMany(_)) => {
                match follow_after(shared, follower.cursor().clone()).await? {
                    Some(again) => follower = again,
                    None => return counter.recount_all().await,
                }
            }
            Err(FollowError::Gone) => return counter.recount_all().await,
            Err(FollowError::Stopping) => return counter.save(follower.cursor()).await,
            Err(FollowError::Store(fault)) => return Err(fault),
        }
    }
}

/// `None`: the events after the cursor were deleted.
async fn follow_after(shared: &Arc<Shared>, cursor: EventCursor) -> Result<Option<Follower>> {
    match Broker(Arc::clone(shared)).follow_from(EventsFrom::After(cursor)).await {
        Ok(follower) => Ok(Some(follower)),
        Err(FollowError::Store(fault)) => Err(fault),
        Err(_) => Ok(None),
    }
}

/// Adds events that are already there.
async fn gather(follower: &mut Follower, mut events: Vec<Arc<Event>>) -> Result<Vec<Arc<Event>>> {
    // Only from memory: a dropped read of the store would be wasted.
    while events.len() < GATHER_MAX && follower.is_caught_up() {
        match follower.next().now_or_never() {
            Some(Ok(more)) => events.extend(more),
            Some(Err(FollowError::Store(fault))) => return Err(fault),
            // The next call returns the same again.
            Some(Err(_)) | None => break,
        }
    }
    Ok(events)
}

struct Counter<'a> {
    shared: &'a Arc<Shared>,
    dependents: Dependents,
    /// Dependencies of these that the store no longer has.
    absent: Absent,
    /// All events before the start are counted.
    is_caught_up: bool,
    unsaved: usize,
}

/// Whether an event changes the counts of a group.
fn changes_counts(event: &Event, state: Option<StateKind>) -> bool {
    state.is_some_and(StateKind::is_terminal)
        || matches!(
            event.kind,
            EventKind::Submitted | EventKind::Restored | EventKind::Removed | EventKind::Redriven
        )
}

impl Counter<'_> {
    fn new(shared: &Arc<Shared>) -> Counter<'_> {
        let (dependents, absent) = (Dependents::default(), Absent::default());
        Counter { shared, dependents, absent, is_caught_up: false, unsaved: 0 }
    }

    /// The next events. None, after a while, if there is a dependency to check again.
    async fn next(&self, follower: &mut Follower) -> std::result::Result<Vec<Arc<Event>>, FollowError> {
        if self.absent.is_empty() {
            return follower.next().await;
        }
        tokio::time::timeout(CHECK_ABSENT_EVERY, follower.next()).await.unwrap_or_else(|_| Ok(Vec::new()))
    }

    /// Events were missed: every group is recounted when it is next read.
    async fn recount_all(&mut self) -> Result<()> {
        tracing::warn!("events were deleted before they were counted; groups are recounted from their items");
        let now = feed::now(self.shared).await?;
        self.shared.groups.recount_number.fetch_add(1, Ordering::AcqRel);
        self.save(&now).await
    }

    async fn save(&mut self, at: &EventCursor) -> Result<()> {
        let recount_number = self.shared.groups.recount_number.load(Ordering::Acquire);
        let operation = Shared::save_progress(&Progress::new(at, recount_number))?;
        self.shared.execute(vec![operation]).await?;
        self.unsaved = 0;
        Ok(())
    }

    /// Loads all items that wait for a dependency.
    async fn load_dependents(&mut self) -> Result<()> {
        self.dependents = Dependents::default();
        let head = HeadFilter { state: Some(StateName::Paused), ..HeadFilter::default() };
        let filter = Filter { head, ..Filter::default() };
        let mut after = None;
        loop {
            let page = self.shared.store.list(filter.clone(), after, PAGE, FieldSet::NONE).await?;
            for stored in page.items {
                let head = stored.item.head;
                if let Some(after) = head.dependency() {
                    self.dependents.put(head.id, after.clone());
                }
            }
            match page.next {
                None => return Ok(()),
                next => after = next,
            }
        }
    }

    async fn count(&mut self, events: &[Arc<Event>], through: &EventCursor) -> Result<()> {
        let mut by_group: BTreeMap<GroupTag, Vec<&Event>> = BTreeMap::new();
        let mut ended: HashMap<ItemId, bool> = HashMap::new();
        let mut check = BTreeSet::new();
        let mut new_dependents = Vec::new();
        let mut queue_deleted = false;
        for event in events {
            queue_deleted |= event.kind == EventKind::QueueDeleted;
            let Some(item) = &event.item else { continue };
            let state = item.after.as_ref().map(|after| after.state);
            if let Some(tag) = item.group.filter(|_| changes_counts(event, state)) {
                by_group.entry(tag).or_default().push(event);
            }
            match (event.kind, state) {
                (EventKind::Submitted | EventKind::Restored, Some(StateKind::Paused)) => {
                    new_dependents.push(item.id)
                }
                (_, Some(StateKind::Completed)) => drop(ended.insert(item.id, true)),
                (_, Some(StateKind::Failed)) => drop(ended.insert(item.id, false)),
                // An item that completed stays completed when it is removed.
                (_, None) => drop(ended.entry(item.id).or_insert(false)),
                (EventKind::Redriven, _) => drop(ended.remove(&item.id)),
                _ => {}
            }
            if state.is_none_or(|state| state != StateKind::Paused) {
                self.dependents.remove(item.id);
            }
            if ended.contains_key(&item.id) {
                check.extend(self.dependents.of_item(item.id));
            }
        }
        let counted = self.shared.count_events(&by_group, through).await?;
        for (tag, counts) in &counted {
            check.extend(self.dependents.of_group(*tag));
            if counts.unfinished() == 0 {
                self.shared.groups.waiters.wake([tag]);
            }
        }
        self.add_dependents(new_dependents, &mut check).await?;
        if queue_deleted {
            // There are no events for the items of a deleted queue, so every group is recounted when it is next read.
            self.shared.groups.recount_number.fetch_add(1, Ordering::AcqRel);
            self.shared.groups.waiters.wake_all();
            self.load_dependents().await?;
            check.extend(self.dependents.all());
        }
        self.check_dependents(check.into_iter().collect(), &ended, through).await?;
        self.unsaved += events.len();
        if queue_deleted || !by_group.is_empty() || self.unsaved >= SAVE_AFTER {
            self.save(through).await?;
        }
        self.shared.groups.at.send_replace(Some(through.clone()));
        Ok(())
    }

    /// Checks all dependents once, as soon as all earlier events are counted.
    async fn resolve_after_catch_up(&mut self, at: &EventCursor) -> Result<()> {
        if !self.is_caught_up && self.shared.has_read_all(at.clone()).await? {
            self.is_caught_up = true;
            self.check_dependents(self.dependents.all(), &HashMap::new(), at).await?;
        }
        Ok(())
    }

    /// Checks the dependents of items that the store no longer has, once all events up to the time of that finding are
    /// counted. Such an item did not complete, or its dependents would no longer wait for it.
    async fn resolve_absent(&mut self, at: &EventCursor) -> Result<()> {
        while let Some(end) = self.absent.next_end() {
            if !self.shared.has_read_to(at.clone(), end).await? {
                return Ok(());
            }
            let removed = self.absent.take();
            let dependents: BTreeSet<ItemId> =
                removed.iter().flat_map(|id| self.dependents.of_item(*id)).collect();
            let ended = removed.into_iter().map(|id| (id, false)).collect();
            self.check_dependents(dependents.into_iter().collect(), &ended, at).await?;
        }
        Ok(())
    }

    /// Adds new items that wait for a dependency.
    async fn add_dependents(&mut self, ids: Vec<ItemId>, check: &mut BTreeSet<ItemId>) -> Result<()> {
        for ids in ids.chunks(PAGE) {
            let found = self.shared.store.get(ids.to_vec(), FieldSet::NONE).await?;
            for stored in found.into_iter().flatten() {
                let head = stored.item.head;
                if let Some(after) = head.dependency() {
                    self.dependents.put(head.id, after.clone());
                    check.insert(head.id);
                }
            }
        }
        Ok(())
    }

    /// Checks the dependencies of these items and resolves them. `ended`: from the events just read, up to `through`.
    async fn check_dependents(
        &mut self,
        ids: Vec<ItemId>,
        ended: &HashMap<ItemId, bool>,
        through: &EventCursor,
    ) -> Result<()> {
        for ids in ids.chunks(PAGE) {
            let items = self.ended_dependencies(ids, ended, through).await?;
            let mut groups = HashMap::new();
            let mut batch = Vec::new();
            for &id in ids {
                let Some(after) = self.dependents.get(id) else { continue };
                let seen = match &after.on {
                    DependsOn::Items { ids, .. } => {
                        let known = |id: &ItemId| Some((*id, *items.get(id)?));
                        DependencyState { group: None, ended: ids.iter().filter_map(known).collect() }
                    }
                    DependsOn::Group { name, .. } => {
                        let counts = match groups.get(name) {
                            Some(counts) => *counts,
                            None => self.shared.group_counts(name).await?,
                        };
                        groups.insert(name.clone(), counts);
                        DependencyState { group: Some(counts), ended: Vec::new() }
                    }
                };
                let (known, verdict) = after.observe(&seen);
                if verdict == DependencyVerdict::Waiting && known == *after {
                    continue;
                }
                // The events of one of several shards may be behind: ask the store.
                if let DependsOn::Group { name, .. } = &after.on
                    && verdict == DependencyVerdict::Met
                    && !matches!(after.when, Condition::CountOf(_))
                    && self.shared.has_unfinished(name).await?
                {
                    continue;
                }
                batch.push((id, known, seen));
            }
            self.resolve(batch).await?;
        }
        Ok(())
    }

    /// Which dependencies of these items have ended, and whether they completed, as far as is known. Notes those that the store
    /// no longer has.
    async fn ended_dependencies(
        &mut self,
        dependents: &[ItemId],
        known: &HashMap<ItemId, bool>,
        through: &EventCursor,
    ) -> Result<HashMap<ItemId, bool>> {
        let mut wanted = BTreeSet::new();
        for after in dependents.iter().filter_map(|id| self.dependents.get(*id)) {
            if let DependsOn::Items { ids, .. } = &after.on {
                wanted.extend(ids.iter().copied());
            }
        }
        let wanted: Vec<ItemId> = wanted.into_iter().collect();
        let (mut ended, mut absent) = (HashMap::new(), Vec::new());
        for ids in wanted.chunks(limits::BATCH_MAX) {
            let found = self.shared.store.get(ids.to_vec(), FieldSet::NONE).await?;
            for (id, found) in ids.iter().zip(found) {
                let completed = match (known.get(id), found) {
                    (Some(completed), _) => Some(*completed),
                    (None, None) => {
                        absent.extend(Some(*id).filter(|id| !self.absent.contains(*id)));
                        None
                    }
                    (None, Some(stored)) => {
                        let head = &stored.item.head;
                        head.is_terminal().then(|| head.state.kind() == StateKind::Completed)
                    }
                };
                ended.extend(completed.map(|completed| (*id, completed)));
            }
        }
        if !absent.is_empty() {
            let end = feed::now(self.shared).await?;
            // A shard that is down has no end.
            if end.stores() < through.stores() {
                let cause = "a shard is down, so it is not known how an item that was removed ended";
                return Err(StoreError::Unavailable { cause: cause.to_owned() });
            }
            self.absent.put(absent, end);
        }
        Ok(ended)
    }

    async fn resolve(
        &mut self,
        batch: Vec<(ItemId, towline_domain::Dependency, DependencyState)>,
    ) -> Result<()> {
        if batch.is_empty() {
            return Ok(());
        }
        let operation = |(id, _, seen): &(ItemId, _, DependencyState)| Operation::ResolveDependency {
            id: *id,
            state: Box::new(seen.clone()),
        };
        let operations = batch.iter().map(operation).collect();
        // Through the broker, to wake receivers and result waiters.
        let answers = match Arc::clone(self.shared).update(operations).await {
            Ok(answers) => answers,
            Err(fault) => {
                // The store may have made some of them ready.
                self.shared.receivers.wake_one_of_each();
                return Err(fault);
            }
        };
        for ((id, known, _), answer) in batch.into_iter().zip(answers) {
            match answer {
                Ok(Reply::Answer(Answer::State(ItemState::Waiting))) => self.dependents.put(id, known),
                Ok(_) | Err(OperationError::Refused(Refusal::ItemNotFound { .. })) => {
                    self.dependents.remove(id);
                }
                Err(error) => return Err(error.into_fault()),
            }
        }
        Ok(())
    }
}
