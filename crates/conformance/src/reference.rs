//! The reference store: the simplest code that keeps the contract, for tests and as the model others are compared to.
//!
//! It scans where a real store has an index, so its behaviour can be checked by reading.

use futures::future::{BoxFuture, ready};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use towline_domain as domain;
use towline_domain::change::{Answer, QueueChange};
use towline_domain::command::{NewQueue, Receive};
use towline_domain::digest::ContentDigest;
use towline_domain::kv::{self, KvRecord};
use towline_domain::{
    Change, Command, Context, CountKind, Counts, FieldSet, Fields, Finish, FullKeys, Head, Hour, HourTally,
    Item, ItemId, KeyTag, Order, OrderKey, Queue, QueueId, QueueName, RateState, Refusal, RoundRobin, State,
    Submission, Tally, Timestamp, Weights, decide, limits,
};
use towline_store::{Answered, Result};
use towline_store::{
    Clock, CountPage, Cursor, Event, EventCursor, EventId, EventPage, Events, EventsFrom, Filter, KvPage,
    Operation, Page, QueueLookup, QueueView, Received, Reply, Restore, Store, StoreError, StoreMetrics,
    StoredItem, TallyRange, TallyRow, item_context,
};

pub struct ReferenceStore {
    clock: Arc<dyn Clock>,
    state: Mutex<Everything>,
}

impl std::fmt::Debug for ReferenceStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ReferenceStore")
    }
}

#[derive(Default)]
struct Everything {
    now: Timestamp,
    salt: u64,
    last_queue: u32,
    last_item: u64,
    queues: BTreeMap<QueueName, Queue>,
    /// By sequence number: the order of submission.
    items: BTreeMap<u64, Item>,
    sequences: HashMap<ItemId, u64>,
    kv: BTreeMap<String, KvRecord>,
    tallies: BTreeMap<QueueId, BTreeMap<Hour, HourTally<Tally>>>,
    /// Of queues with a rate.
    spent: BTreeMap<QueueId, RateState>,
    /// Of queues whose keys take turns.
    turns: BTreeMap<QueueId, RoundRobin>,
    /// The latest, by numbers without a gap.
    events: VecDeque<Event>,
    last_event: u64,
    figures: StoreMetrics,
}

/// Events that are kept.
const EVENTS_KEPT: usize = 10_000;

impl ReferenceStore {
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, salt: u64) -> ReferenceStore {
        ReferenceStore { clock, state: Mutex::new(Everything { salt, ..Everything::default() }) }
    }

    fn lock(&self) -> MutexGuard<'_, Everything> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.now = state.now.max(self.clock.now());
        state
    }
}

impl QueueLookup for Everything {
    fn by_id(&self, id: QueueId) -> Option<(&Queue, Counts)> {
        let queue = self.queues.values().find(|queue| queue.id == id)?;
        Some((queue, self.counts(id)))
    }

    fn by_name(&self, name: &QueueName) -> Option<&Queue> {
        self.queues.get(name)
    }
}

impl Everything {
    fn counts(&self, queue: QueueId) -> Counts {
        let mut counts = Counts::default();
        for item in self.items.values().filter(|item| item.head.queue == queue) {
            counts.add(item.head.count_kind(self.now));
        }
        counts
    }

    fn view(&self, queue: &Queue) -> QueueView {
        let ready = |head: &Head| head.queue == queue.id && head.count_kind(self.now) == CountKind::Pending;
        let ready = self.items.values().filter(|item| ready(&item.head)).map(|item| item.head.ready_at);
        let oldest_ready = if matches!(queue.policy.order, Order::Score(_)) { None } else { ready.min() };
        QueueView { queue: queue.clone(), counts: self.counts(queue.id), oldest_ready }
    }

    fn stored(&self, item: &Item, fields: FieldSet) -> StoredItem {
        let queue = self.queues.values().find(|queue| queue.id == item.head.queue);
        let name =
            queue.map_or_else(|| unreachable!("an item without its queue"), |queue| queue.name.clone());
        StoredItem { queue: name, item: with_fields(item, fields) }
    }

    fn sweep(&mut self) -> u64 {
        let mut changed = 0;
        loop {
            let due = |item: &Item| item.head.timer().filter(|&at| at <= self.now);
            let next = self.items.iter().filter_map(|(&seq, item)| Some((due(item)?, seq))).min();
            let Some((_, sequence)) = next else {
                return changed;
            };
            if self.on_item(sequence, Command::Elapse).is_err() {
                return changed;
            }
            changed += 1;
        }
    }

    fn run(&mut self, operation: Operation, swept: u64) -> Answered {
        let operation = match operation.of_item() {
            Ok((id, command)) => return self.by_id_do(id, command),
            Err(operation) => operation,
        };
        match operation {
            Operation::CreateQueue { queue, schema, policy } => {
                let id = QueueId(self.last_queue + 1);
                let new = NewQueue { id, name: queue.clone(), schema: *schema, policy: *policy };
                if self.queues.len() >= limits::QUEUES_MAX && !self.queues.contains_key(&queue) {
                    return Err(Refusal::StoreFull { what: "queues", held: self.queues.len() as u64 });
                }
                let context = Context { queue: self.queues.get(&queue), ..Context::default() };
                let change = decide(&context, Command::CreateQueue(Box::new(new)), self.now)?;
                self.last_queue += u32::from(!change.is_empty());
                self.apply(None, &queue, &change);
                Ok(Reply::Answer(change.answer().clone()))
            }
            Operation::ChangePolicy { queue, patch } => self.on_queue(queue, Command::ChangePolicy(patch)),
            Operation::CloseQueue { queue } => self.on_queue(queue, Command::CloseQueue),
            Operation::PauseQueue { queue } => self.on_queue(queue, Command::PauseQueue),
            Operation::ResumeQueue { queue } => self.on_queue(queue, Command::ResumeQueue),
            Operation::DeleteQueue { queue, force } => self.on_queue(queue, Command::DeleteQueue { force }),
            Operation::Submit { queue, submission } => self.submit(queue, submission),
            Operation::Receive(call) => self.receive(&call),
            Operation::Restore(restore) => self.restore(*restore),
            Operation::Sweep => Ok(Reply::Swept { changed: swept }),
            Operation::Kv { key, command } => {
                let decision = kv::decide(&key, |key| self.kv.get(key), command, self.now)?;
                for (key, after) in decision.after {
                    match after {
                        Some(record) => drop(self.kv.insert(key, record)),
                        None => drop(self.kv.remove(&key)),
                    }
                }
                Ok(Reply::Kv(decision.answer))
            }
            other => Err(other.without_item()),
        }
    }

    fn on_queue(&mut self, name: QueueName, command: Command) -> Answered {
        let Some(queue) = self.queues.get(&name) else {
            return Err(Refusal::QueueNotFound { name: name.to_string() });
        };
        let context = Context { queue: Some(queue), counts: self.counts(queue.id), ..Context::default() };
        let change = decide(&context, command, self.now)?;
        self.apply(None, &name, &change);
        Ok(Reply::Answer(change.answer().clone()))
    }

    fn submit(&mut self, name: QueueName, submission: Box<Submission>) -> Answered {
        let Some(queue) = self.queues.get(&name) else {
            return Err(Refusal::QueueNotFound { name: name.to_string() });
        };
        let key_owner = self.key_owner(queue.id, submission.body.idempotency_key.as_ref());
        let replaces = self.replaceable(queue.id, submission.body.replace_key.as_ref());
        let sequence = replaces.map_or(self.last_item + 1, |(sequence, _)| sequence);
        let taken = submission.id.and_then(|id| self.sequences.get(&id)).and_then(|seq| self.items.get(seq));
        let context = Context {
            queue: Some(queue),
            counts: self.counts(queue.id),
            item: taken.map(|item| &item.head),
            key_owner,
            replaces: replaces.map(|(_, head)| head),
            record: submission.record_guard.as_ref().and_then(|once| self.kv.get(&once.key)),
            new_id: Some(ItemId::derive(self.salt, self.now, sequence)),
            ..Context::default()
        };
        let change = decide(&context, Command::Submit(submission), self.now)?;
        if !change.is_empty() {
            self.last_item = self.last_item.max(sequence);
            self.apply(Some(sequence), &name, &change);
        }
        Ok(Reply::Answer(change.answer().clone()))
    }

    /// One key, one item, in the queue it was submitted to, wherever the item is now.
    fn key_owner(&self, queue: QueueId, key: Option<&String>) -> Option<(ItemId, ContentDigest)> {
        self.items.values().find_map(|item| {
            let claim = item.body.claim.filter(|claim| claim.queue == queue)?;
            (key.is_some() && item.body.idempotency_key.as_ref() == key)
                .then_some((item.head.id, claim.content))
        })
    }

    /// The item that a submit with this key takes the place of.
    fn replaceable(&self, queue: QueueId, key: Option<&String>) -> Option<(u64, &Head)> {
        let owns = |item: &Item| {
            let claimed = item.body.claim.is_some_and(|claim| claim.queue == queue);
            claimed && item.head.is_replaceable() && item.body.replace_key.as_ref() == key
        };
        key?;
        self.items.iter().find(|(_, item)| owns(item)).map(|(&sequence, item)| (sequence, &item.head))
    }

    fn restore(&mut self, restore: Restore) -> Answered {
        let name = restore.queue.clone();
        let item = restore.item(self);
        let Some(queue) = self.queues.get(&name) else {
            return Err(Refusal::QueueNotFound { name: name.to_string() });
        };
        let claimed_in = item.body.claim.map(|claim| claim.queue);
        let taken = self.sequences.get(&item.head.id).and_then(|sequence| self.items.get(sequence));
        let context = Context {
            queue: Some(queue),
            item: taken.map(|item| &item.head),
            key_owner: claimed_in.and_then(|queue| self.key_owner(queue, item.body.idempotency_key.as_ref())),
            replaces: claimed_in
                .and_then(|queue| self.replaceable(queue, item.body.replace_key.as_ref()))
                .map(|(_, head)| head),
            ..Context::default()
        };
        let answer = Answer::Submitted { id: item.head.id, created: true };
        let changes = domain::restore(&context, item)?;
        self.last_item += 1;
        for change in changes {
            self.apply(Some(self.last_item), &name, &change);
        }
        Ok(Reply::Answer(answer))
    }

    fn receive(&mut self, call: &towline_store::ReceiveCall) -> Answered {
        let Some(queue) = self.queues.get(&call.queue) else {
            return Err(Refusal::QueueNotFound { name: call.queue.to_string() });
        };
        call.check()?;
        let (id, flow) = (queue.id, queue.policy.flow.clone());
        let spent = self.spent.get(&id).copied().unwrap_or_default();
        let allowed = flow.allowance(self.counts(id).processing, spent, self.now);
        // An item can expire in the call that submitted it, before the next sweep.
        let ready =
            |head: &Head| head.queue == queue.id && head.state == State::Pending && head.ready_at <= self.now;
        // One key is all of them where keys take no turns.
        let key = |head: &Head| if flow.takes_turns() { head.fairness_key } else { KeyTag::NONE };
        let mut candidates: BTreeMap<KeyTag, BTreeSet<(OrderKey, u64)>> = BTreeMap::new();
        for (&sequence, item) in self.items.iter().filter(|(_, item)| ready(&item.head) && !queue.paused) {
            let place = (queue.policy.order.key(&item.head), sequence);
            candidates.entry(key(&item.head)).or_default().insert(place);
        }
        let mut leased: BTreeMap<KeyTag, u64> = BTreeMap::new();
        for item in self.items.values().filter(|item| item.head.queue == id && item.head.lease().is_some()) {
            *leased.entry(item.head.fairness_key).or_default() += 1;
        }
        let weights = Weights::of(&flow);
        let mut turn = self.turns.get(&id).copied().unwrap_or_default();
        let mut items = Vec::new();
        while items.len() < call.max as usize && (items.len() as u64) < allowed {
            let has_room = |key: &KeyTag| flow.has_room(leased.get(key).copied().unwrap_or(0));
            let from = |from| candidates.range(from..).map(|(&key, _)| key).find(has_room);
            let Some(whose) = turn.next(&weights, from) else { break };
            let Some((_, sequence)) = candidates.get_mut(&whose).and_then(BTreeSet::pop_first) else {
                candidates.remove(&whose);
                continue;
            };
            let receive = Receive {
                token: call.seed.token(u32::try_from(items.len()).unwrap_or(u32::MAX), self.now),
                visibility: call.visibility,
                assigned: call.assigned,
                make_buffers: call.make_buffers,
            };
            match self.on_item(sequence, Command::Receive(receive)) {
                Ok(_) => {}
                // Submitted in this call with an expiry that is due: it fails when its turn comes.
                Err(Refusal::NotDue { .. }) => {
                    self.on_item(sequence, Command::Elapse)?;
                    continue;
                }
                Err(refusal) => return Err(refusal),
            }
            turn = turn.record_delivery(whose, &weights);
            *leased.entry(whose).or_default() += 1;
            if let Some(item) = self.items.get(&sequence) {
                items.push(with_fields(item, call.fields));
            }
        }
        if flow.takes_turns() {
            self.turns.insert(id, turn);
        }
        let spent = flow.record_delivery(items.len(), spent, self.now);
        if flow.rate.is_some() {
            self.spent.insert(id, spent);
        }
        let counts = self.counts(id);
        let full = || {
            let full = leased.iter().filter(|&(_, &leased)| !flow.has_room(leased)).map(|(&key, _)| key);
            FullKeys::from_iter(full).throttle().filter(|_| items.len() < call.max as usize)
        };
        let throttle = flow.throttle(counts.processing, spent, self.now).or_else(full);
        let more = flow.more(&counts, spent, self.now);
        let queue = self.queues.get(&call.queue).map(|queue| queue.state);
        let queue = queue.unwrap_or_else(|| unreachable!("receive never deletes its queue"));
        Ok(Reply::Received(Received { queue, items, throttle, more }))
    }

    fn by_id_do(&mut self, id: ItemId, command: Command) -> Answered {
        match self.sequences.get(&id) {
            Some(&sequence) => self.on_item(sequence, command),
            None => Err(Refusal::ItemNotFound { id }),
        }
    }

    fn on_item(&mut self, sequence: u64, command: Command) -> Answered {
        let Some(item) = self.items.get(&sequence) else {
            unreachable!("a sequence number without its item")
        };
        let context = item_context(self, &item.head, &command);
        let queue = context.queue.map(|queue| queue.name.clone());
        let change = decide(&context, command, self.now)?;
        if let Some(queue) = queue {
            self.apply(Some(sequence), &queue, &change);
        }
        Ok(Reply::Answer(change.answer().clone()))
    }

    fn tally(&mut self, finish: &Finish<'_>) {
        let hours = self.tallies.entry(finish.queue).or_default();
        *hours = hours.split_off(&Hour::oldest(self.now));
        let hour = hours.entry(finish.hour).or_default();
        hour.all.add(finish.ending);
        for (name, value) in finish.tags {
            let tag = hour.tag(name, value);
            hour.slot(Some(&tag)).add(finish.ending);
        }
    }

    fn tell(&mut self, queue: &QueueName, change: &Change) {
        let about = self.queues.get(queue).map(|queue| queue.id);
        for told in change.events(about) {
            let made = change.queue().and_then(|change| match change {
                QueueChange::Put(queue) => Some(&**queue),
                QueueChange::Deleted => None,
            });
            let known = self.queues.values().chain(made).find(|queue| queue.id == told.queue);
            let queue = known.map(|queue| queue.name.clone());
            self.last_event += 1;
            let id = EventId { store: EventId::store_of(self.salt), group: self.last_event, nth: 0 };
            self.events.push_back(Event { id, at: self.now, kind: told.kind, queue, item: told.item });
            if self.events.len() > EVENTS_KEPT {
                self.events.pop_front();
            }
        }
    }

    fn apply(&mut self, sequence: Option<u64>, queue: &QueueName, change: &Change) {
        self.tell(queue, change);
        self.figures.add(change, self.now);
        if let Some(finish) = change.finish() {
            self.tally(&finish);
        }
        if let Some(sequence) = sequence.filter(|_| change.head().is_some() || change.removes_item()) {
            let before = self.items.remove(&sequence);
            if let Some(item) = &before {
                self.sequences.remove(&item.head.id);
            }
            if let Some(after) = change.apply(before) {
                self.sequences.insert(after.head.id, sequence);
                self.items.insert(sequence, after);
            }
        }
        if let Some((key, record)) = change.record() {
            self.kv.insert(key.clone(), record.clone());
        }
        match change.queue() {
            None => {}
            Some(QueueChange::Put(after)) => {
                // Who begins to take turns begins anew.
                if !after.policy.flow.takes_turns() {
                    self.turns.remove(&after.id);
                }
                self.queues.insert(after.name.clone(), (**after).clone());
            }
            Some(QueueChange::Deleted) => {
                let Some(gone) = self.queues.remove(queue) else {
                    return;
                };
                self.tallies.remove(&gone.id);
                self.spent.remove(&gone.id);
                self.turns.remove(&gone.id);
                self.items.retain(|_, item| item.head.queue != gone.id);
                self.sequences.retain(|_, sequence| self.items.contains_key(sequence));
            }
        }
    }
}

fn with_fields(item: &Item, wanted: FieldSet) -> Item {
    if wanted == FieldSet::HEADS {
        return Item::of_head(item.head.clone());
    }
    let mut fields = Fields::default();
    for field in towline_domain::Field::ALL {
        if wanted.contains(field) {
            fields.set(field, item.fields.get(field).cloned());
        }
    }
    Item { fields, ..item.clone() }
}

impl Store for ReferenceStore {
    fn update(&self, batch: Vec<Operation>) -> BoxFuture<'_, Result<Vec<Answered>>> {
        if let Err(error) = StoreError::check_size("operations", batch.len(), limits::BATCH_MAX) {
            return Box::pin(ready(Err(error)));
        }
        let mut state = self.lock();
        let swept = state.sweep();
        let answers = batch.into_iter().map(|operation| state.run(operation, swept)).collect();
        Box::pin(ready(Ok(answers)))
    }

    fn queue(&self, name: QueueName) -> BoxFuture<'_, Result<Option<QueueView>>> {
        let state = self.lock();
        Box::pin(ready(Ok(state.queues.get(&name).map(|queue| state.view(queue)))))
    }

    fn queues(&self, after: Option<QueueName>, limit: usize) -> BoxFuture<'_, Result<Vec<QueueView>>> {
        let state = self.lock();
        let later = |name: &QueueName| after.as_ref().is_none_or(|after| name > after);
        let queues = state.queues.values().filter(|queue| later(&queue.name));
        let page = queues.take(limit.min(limits::PAGE_MAX)).map(|queue| state.view(queue)).collect();
        Box::pin(ready(Ok(page)))
    }

    fn get(&self, ids: Vec<ItemId>, fields: FieldSet) -> BoxFuture<'_, Result<Vec<Option<StoredItem>>>> {
        if let Err(error) = StoreError::check_size("ids", ids.len(), limits::BATCH_MAX) {
            return Box::pin(ready(Err(error)));
        }
        let state = self.lock();
        let find = |id| state.items.get(state.sequences.get(id)?).map(|item| state.stored(item, fields));
        Box::pin(ready(Ok(ids.iter().map(find).collect())))
    }

    fn list(
        &self,
        filter: Filter,
        after: Option<Cursor>,
        limit: usize,
        fields: FieldSet,
    ) -> BoxFuture<'_, Result<Page>> {
        if let Err(error) = filter.check() {
            return Box::pin(ready(Err(error)));
        }
        let state = self.lock();
        let limit = limit.clamp(1, limits::PAGE_MAX);
        let mut page = Page { items: Vec::new(), next: None };
        let first = after.map_or(0, |cursor| cursor.0.saturating_add(1));
        for (&sequence, item) in state.items.range(first..) {
            if filter.matches(&state.stored(item, FieldSet::NONE), state.now) {
                page.items.push(state.stored(item, fields));
                if page.items.len() == limit {
                    page.next = Some(Cursor(sequence));
                    break;
                }
            }
        }
        Box::pin(ready(Ok(page)))
    }

    fn count(&self, filter: Filter, after: Option<Cursor>) -> BoxFuture<'_, Result<CountPage>> {
        if let Err(error) = filter.check() {
            return Box::pin(ready(Err(error)));
        }
        let state = self.lock();
        let first = after.map_or(0, |cursor| cursor.0.saturating_add(1));
        let matching = state.items.range(first..).filter(|(_, item)| {
            let stored = state.stored(item, FieldSet::NONE);
            filter.matches(&stored, state.now)
        });
        Box::pin(ready(Ok(CountPage { count: matching.count() as u64, next: None })))
    }

    fn next_wake(&self) -> BoxFuture<'_, Result<Option<Timestamp>>> {
        let state = self.lock();
        let scheduled = |head: &Head| {
            (head.state == State::Pending && head.ready_at > state.now).then_some(head.ready_at)
        };
        let times = state.items.values().flat_map(|item| [item.head.timer(), scheduled(&item.head)]);
        Box::pin(ready(Ok(times.flatten().min())))
    }

    fn tally(&self, queue: QueueName, asked: TallyRange) -> BoxFuture<'_, Result<Option<Vec<TallyRow>>>> {
        let state = self.lock();
        let none = BTreeMap::new();
        let rows = state.queues.get(&queue).map(|queue| {
            let hours = state.tallies.get(&queue.id).unwrap_or(&none);
            asked.rows(hours, state.now, |tally| *tally)
        });
        Box::pin(ready(Ok(rows)))
    }

    fn events(&self, from: EventsFrom, limit: usize) -> BoxFuture<'_, Result<Events>> {
        let state = self.lock();
        let store = EventId::store_of(state.salt);
        let kept_after = state.last_event - state.events.len() as u64;
        let after = match from {
            EventsFrom::Oldest => Some(kept_after),
            EventsFrom::Now => Some(state.last_event),
            EventsFrom::After(cursor) => match cursor.in_store(store) {
                Some(at) => Some(at.group).filter(|group| (kept_after..=state.last_event).contains(group)),
                None => return Box::pin(ready(Ok(Events::Elsewhere))),
            },
        };
        let Some(after) = after else { return Box::pin(ready(Ok(Events::Gone))) };
        let limit = limit.clamp(1, limits::EVENTS_PAGE_MAX);
        let later = state.events.iter().skip_while(|event| event.id.group <= after);
        let events: Vec<Event> = later.take(limit).cloned().collect();
        let last = events.last().map_or(after, |event| event.id.group);
        let next = EventCursor::after_group(store, last);
        Box::pin(ready(Ok(Events::Page(EventPage { events, next, more: last < state.last_event }))))
    }

    fn issued(&self, id: ItemId) -> bool {
        id.sequence(self.lock().salt).is_some()
    }

    fn metrics(&self) -> BoxFuture<'_, Result<StoreMetrics>> {
        Box::pin(ready(Ok(self.lock().figures)))
    }

    fn kv_list(&self, page: KvPage) -> BoxFuture<'_, Result<Vec<(String, KvRecord)>>> {
        let state = self.lock();
        Box::pin(ready(Ok(page.take(&state.kv, |record| record, state.now))))
    }

    fn kv_get(&self, keys: Vec<String>) -> BoxFuture<'_, Result<Vec<Option<KvRecord>>>> {
        if let Err(error) = StoreError::check_size("keys", keys.len(), limits::BATCH_MAX) {
            return Box::pin(ready(Err(error)));
        }
        let state = self.lock();
        let live = |key| state.kv.get(key).filter(|record| record.is_live(state.now)).cloned();
        Box::pin(ready(Ok(keys.iter().map(live).collect())))
    }
}
