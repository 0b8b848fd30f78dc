//! Reads what happens, counts what happens in groups, and lets those go who wait.
//!
//! **Invariant:** how far it has come is written down after all that follows from it was done. Whoever begins there does
//! some of it again, which changes nothing.

use super::dependents::Dependents;
use super::record::Progress;
use crate::broker::{Broker, Shared};
use crate::feed::{self, Followed, Follower};
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
use towline_store::{Event, EventCursor, EventsFrom, Filter, Operation, OperationError, Reply, Result};

const AFTER_FAULT: Duration = Duration::from_secs(1);
/// How often to look whether another broker's caller was the first to submit into a group.
const ASK_EVERY: Duration = Duration::from_secs(5);
/// Events counted together: a group is written once for all of them.
const TOGETHER: usize = 4000;
/// Where it is, is written down at the latest after so many.
const SAVE_AFTER: usize = 20_000;
const PAGE: usize = 1000;

pub(crate) async fn run(shared: Weak<Shared>) {
    loop {
        let Some(shared) = shared.upgrade() else { return };
        if shared.is_stopping() {
            return;
        }
        if let Err(error) = follow(&shared).await {
            // A store that is away for long is told of once.
            match shared.groups.at.send_replace(None) {
                Some(_) => tracing::warn!("groups are counted later: {error}"),
                None => tracing::debug!("groups are counted later: {error}"),
            }
            tokio::time::sleep(AFTER_FAULT).await;
        }
    }
}

/// Until something has to be begun anew.
async fn follow(shared: &Arc<Shared>) -> Result<()> {
    let Some(progress) = shared.read_progress().await? else {
        let rang = shared.groups.rang.notified();
        if shared.is_alone {
            rang.await;
        } else {
            let _ = tokio::time::timeout(ASK_EVERY, rang).await;
        }
        return Ok(());
    };
    shared.groups.begun.store(true, Ordering::Release);
    shared.groups.epoch.fetch_max(progress.epoch, Ordering::AcqRel);
    let follower = match progress.cursor() {
        Some(cursor) => Broker(Arc::clone(shared)).follow_from(EventsFrom::After(cursor)).await?.ok(),
        None => None,
    };
    let mut counter = Counter { shared, dependents: Dependents::default(), is_abreast: false, unsaved: 0 };
    let Some(mut follower) = follower else { return counter.miss().await };
    counter.load().await?;
    shared.groups.at.send_replace(Some(follower.cursor().clone()));
    counter.draw_abreast(follower.cursor()).await?;
    loop {
        match follower.next().await? {
            Followed::Events(events) => {
                let events = gather(&mut follower, events).await?;
                counter.count(&events, follower.cursor()).await?;
                counter.draw_abreast(follower.cursor()).await?;
            }
            Followed::TooSlow => {
                let from = EventsFrom::After(follower.cursor().clone());
                match Broker(Arc::clone(shared)).follow_from(from).await? {
                    Ok(again) => follower = again,
                    Err(_) => return counter.miss().await,
                }
            }
            Followed::Gone => return counter.miss().await,
            Followed::Stopping => return counter.save(follower.cursor()).await,
        }
    }
}

/// More of them, if there are more already.
async fn gather(follower: &mut Follower, mut events: Vec<Arc<Event>>) -> Result<Vec<Arc<Event>>> {
    // What has to be read is not read by a future that is dropped.
    while events.len() < TOGETHER && follower.is_abreast() {
        match follower.next().now_or_never() {
            Some(Ok(Followed::Events(more))) => events.extend(more),
            Some(Err(fault)) => return Err(fault),
            // It says so again when it is asked again.
            Some(Ok(_)) | None => break,
        }
    }
    Ok(events)
}

struct Counter<'a> {
    shared: &'a Arc<Shared>,
    dependents: Dependents,
    /// All that had been told when it began is counted. Before that nobody knows how an item ended that is gone.
    is_abreast: bool,
    unsaved: usize,
}

/// Whether an event changes how a group stands.
fn counts(event: &Event, state: Option<StateKind>) -> bool {
    state.is_some_and(StateKind::is_terminal)
        || matches!(
            event.kind,
            EventKind::Submitted | EventKind::Restored | EventKind::Removed | EventKind::Redriven
        )
}

impl Counter<'_> {
    /// Something was not told: what was counted is counted again when it is asked for.
    async fn miss(&mut self) -> Result<()> {
        tracing::warn!("events were gone before groups were counted; they are counted from their items");
        let now = feed::now(self.shared).await?;
        self.shared.groups.epoch.fetch_add(1, Ordering::AcqRel);
        self.save(&now).await
    }

    async fn save(&mut self, at: &EventCursor) -> Result<()> {
        let epoch = self.shared.groups.epoch.load(Ordering::Acquire);
        let operation = Shared::save_progress(&Progress::new(at, epoch))?;
        self.shared.execute(vec![operation]).await?;
        self.unsaved = 0;
        Ok(())
    }

    /// Everybody who waits.
    async fn load(&mut self) -> Result<()> {
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
        let mut of_groups: BTreeMap<GroupTag, Vec<&Event>> = BTreeMap::new();
        let mut ended: HashMap<ItemId, bool> = HashMap::new();
        let mut look = BTreeSet::new();
        let mut fresh = Vec::new();
        let mut queue_gone = false;
        for event in events {
            queue_gone |= event.kind == EventKind::QueueDeleted;
            let Some(item) = &event.item else { continue };
            let state = item.after.as_ref().map(|after| after.state);
            if let Some(tag) = item.group.filter(|_| counts(event, state)) {
                of_groups.entry(tag).or_default().push(event);
            }
            match (event.kind, state) {
                (EventKind::Submitted | EventKind::Restored, Some(StateKind::Paused)) => fresh.push(item.id),
                (_, Some(StateKind::Completed)) => drop(ended.insert(item.id, true)),
                (_, Some(StateKind::Failed) | None) => drop(ended.insert(item.id, false)),
                _ => {}
            }
            if state.is_none_or(|state| state != StateKind::Paused) {
                self.dependents.remove(item.id);
            }
            if ended.contains_key(&item.id) {
                look.extend(self.dependents.of_item(item.id));
            }
        }
        let stand = self.shared.count_events(&of_groups, through).await?;
        for (tag, counts) in &stand {
            look.extend(self.dependents.of_group(*tag));
            if counts.unfinished() == 0 {
                self.shared.groups.waiters.look_again(&[*tag]);
            }
        }
        self.meet(fresh, &mut look).await?;
        if queue_gone {
            // Its items are gone without a word.
            self.shared.groups.epoch.fetch_add(1, Ordering::AcqRel);
            self.load().await?;
            look.extend(self.dependents.all());
        }
        self.look(look.into_iter().collect(), &ended).await?;
        self.unsaved += events.len();
        if queue_gone || !of_groups.is_empty() || self.unsaved >= SAVE_AFTER {
            self.save(through).await?;
        }
        self.shared.groups.at.send_replace(Some(through.clone()));
        Ok(())
    }

    /// Looks at everybody who waits, once what was told before is counted.
    async fn draw_abreast(&mut self, at: &EventCursor) -> Result<()> {
        if !self.is_abreast && self.shared.has_told_all(at.clone()).await? {
            self.is_abreast = true;
            self.look(self.dependents.all(), &HashMap::new()).await?;
        }
        Ok(())
    }

    /// Takes in who is new among those that wait.
    async fn meet(&mut self, ids: Vec<ItemId>, look: &mut BTreeSet<ItemId>) -> Result<()> {
        for ids in ids.chunks(PAGE) {
            let found = self.shared.store.get(ids.to_vec(), FieldSet::NONE).await?;
            for stored in found.into_iter().flatten() {
                let head = stored.item.head;
                if let Some(after) = head.dependency() {
                    self.dependents.put(head.id, after.clone());
                    look.insert(head.id);
                }
            }
        }
        Ok(())
    }

    /// Looks how those stand that these wait for, and does what follows. `ended`: what was just told.
    async fn look(&mut self, ids: Vec<ItemId>, ended: &HashMap<ItemId, bool>) -> Result<()> {
        for ids in ids.chunks(PAGE) {
            let items = self.ended_of(ids, ended).await?;
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
                let (known, turn) = after.observe(&seen);
                if turn == DependencyVerdict::Waiting && known == *after {
                    continue;
                }
                // Of several shards one may be behind: the store itself knows whether all have ended.
                if let DependsOn::Group { name, .. } = &after.on
                    && turn == DependencyVerdict::Met
                    && !matches!(after.when, Condition::CountOf(_))
                    && self.shared.has_unfinished(name).await?
                {
                    continue;
                }
                batch.push((id, known, seen));
            }
            self.tell(batch).await?;
        }
        Ok(())
    }

    /// Which of the items that these wait for have ended, and whether well. One that is gone did not.
    async fn ended_of(
        &self,
        dependents: &[ItemId],
        told: &HashMap<ItemId, bool>,
    ) -> Result<HashMap<ItemId, bool>> {
        let mut wanted = BTreeSet::new();
        for after in dependents.iter().filter_map(|id| self.dependents.get(*id)) {
            if let DependsOn::Items { ids, .. } = &after.on {
                wanted.extend(ids.iter().copied());
            }
        }
        let wanted: Vec<ItemId> = wanted.into_iter().collect();
        let mut ended = HashMap::new();
        for ids in wanted.chunks(limits::BATCH_MAX) {
            let found = self.shared.store.get(ids.to_vec(), FieldSet::NONE).await?;
            for (id, found) in ids.iter().zip(found) {
                let well = match (told.get(id), found) {
                    (Some(well), _) => Some(*well),
                    (None, None) => Some(false).filter(|_| self.is_abreast),
                    (None, Some(stored)) => {
                        let head = &stored.item.head;
                        head.is_terminal().then(|| head.state.name() == "completed")
                    }
                };
                ended.extend(well.map(|well| (*id, well)));
            }
        }
        Ok(ended)
    }

    async fn tell(
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
        // Through the broker: receivers may wait for it to be ready, and result waiters for its end.
        let answers = match Arc::clone(self.shared).update(operations).await {
            Ok(answers) => answers,
            Err(fault) => {
                // Some may be ready all the same: whether the store did it is not known.
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
