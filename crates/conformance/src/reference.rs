//! The reference store: the simplest code that keeps the contract, for tests and as the model of the other stores.
//!
//! It scans where a real store has an index, so its behaviour can be checked by reading.

use futures::future::{BoxFuture, ready};
use parking_lot::{Mutex, MutexGuard};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;
use towline_domain::change::{Answer, QueueChange};
use towline_domain::digest::ContentDigest;
use towline_domain::kv::{self, KvRecord};
use towline_domain::select::READ_BYTES_MAX;
use towline_domain::{
    Change, CountKind, Counts, EffectsRecorder, FieldSet, Fields, Finish, FullKeys, Head, Hour, HourTally,
    Item, ItemId, KeyTag, Order, OrderKey, Queue, QueueId, QueueName, RateState, RoundRobin, State, Tally,
    Timestamp, Weights, limits,
};
use towline_store::transaction::{self, Outcome, Workspace};
use towline_store::{
    Answered, Clock, CountPage, Cursor, Event, EventCursor, EventId, EventPage, Events, EventsFrom, Filter,
    KvPage, Operation, Page, QueueLookup, QueueView, Reply, Result, Store, StoreError, StoreIdentity,
    StoreMetrics, StoredItem, TallyRange, TallyRow, Updated,
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
    rates: BTreeMap<QueueId, RateState>,
    round_robins: BTreeMap<QueueId, RoundRobin>,
    /// The latest events, with consecutive numbers.
    events: VecDeque<Event>,
    last_event: u64,
    metrics: StoreMetrics,
    effects: EffectsRecorder,
    /// Items that became ready up to this time are in the effects of an update.
    promoted_to: Timestamp,
    /// How many items this update swept.
    swept: u64,
    read_budget: u64,
    kv_bytes_max: Option<usize>,
}

/// How many events are kept.
const EVENTS_KEPT: usize = 10_000;

impl ReferenceStore {
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, salt: u64) -> ReferenceStore {
        ReferenceStore { clock, state: Mutex::new(Everything { salt, ..Everything::default() }) }
    }

    /// Limits the bytes of key-value records.
    #[must_use]
    pub fn with_room_for_records(self, bytes_max: usize) -> ReferenceStore {
        self.state.lock().kv_bytes_max = Some(bytes_max);
        self
    }

    fn lock(&self) -> MutexGuard<'_, Everything> {
        let mut state = self.state.lock();
        state.now = state.now.max(self.clock.now());
        state
    }
}

impl Everything {
    fn run(&mut self, operation: Operation) -> Answered {
        let Ok(outcome) = transaction::run(self, operation);
        match outcome {
            Outcome::Decided(decided) => decided.map_err(Into::into),
            Outcome::Received(deliveries) => Ok(Reply::Received(
                deliveries
                    .received(|items, fields| items.iter().map(|item| with_fields(item, fields)).collect()),
            )),
        }
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

    /// Advances the time, and carries out what is due, earliest first.
    fn sweep(&mut self, clock: Timestamp) {
        self.now = self.now.max(clock);
        let before = std::mem::replace(&mut self.promoted_to, self.now);
        let promoted =
            |head: &Head| head.state == State::Pending && before < head.ready_at && head.ready_at <= self.now;
        for item in self.items.values().filter(|item| promoted(&item.head)) {
            self.effects.promoted(item.head.queue, item.head.fairness_key);
        }
        self.swept = 0;
        loop {
            let due = |item: &Item| item.head.timer().filter(|&at| at <= self.now);
            let next = self.items.iter().filter_map(|(&seq, item)| Some((due(item)?, seq))).min();
            let Some((_, sequence)) = next else { return };
            let Ok(answered) = transaction::elapse(self, sequence);
            if answered.is_err() {
                return;
            }
            self.swept += 1;
        }
    }

    /// Ready items of a queue by fairness key, each in the queue's order. Without fairness, all have the same key.
    fn ready(&self, queue: QueueId) -> BTreeMap<KeyTag, BTreeSet<(OrderKey, u64)>> {
        let mut ready: BTreeMap<KeyTag, BTreeSet<(OrderKey, u64)>> = BTreeMap::new();
        let Some((known, _)) = self.by_id(queue) else { return ready };
        let policy = &known.policy;
        for (&sequence, Item { head, .. }) in &self.items {
            if head.queue == queue && head.count_kind(self.now) == CountKind::Pending {
                let key = if policy.flow.takes_turns() { head.fairness_key } else { KeyTag::NONE };
                ready.entry(key).or_default().insert((policy.order.key(head), sequence));
            }
        }
        ready
    }

    fn leased(&self, queue: QueueId) -> BTreeMap<KeyTag, u64> {
        let mut leased: BTreeMap<KeyTag, u64> = BTreeMap::new();
        let of_queue = |item: &&Item| item.head.queue == queue && item.head.lease().is_some();
        for item in self.items.values().filter(of_queue) {
            *leased.entry(item.head.fairness_key).or_default() += 1;
        }
        leased
    }

    fn tally(&mut self, finish: &Finish<'_>) {
        let queue = self.queues.values().find(|queue| queue.id == finish.queue);
        let values_max = queue.map_or(limits::TALLY_VALUES_DEFAULT, |queue| queue.policy.tally_values_max);
        let hours = self.tallies.entry(finish.queue).or_default();
        *hours = hours.split_off(&Hour::oldest(self.now));
        let hour = hours.entry(finish.hour).or_default();
        hour.all.add(finish.ending);
        for (name, value) in finish.tags {
            let tag = hour.tag(name, value, values_max);
            hour.slot(Some(&tag)).add(finish.ending);
        }
    }

    fn record_events(&mut self, about: Option<QueueId>, change: &Change) {
        for event in change.events(about) {
            let made = change.queue().and_then(|change| match change {
                QueueChange::Put(queue) => Some(&**queue),
                QueueChange::Deleted => None,
            });
            let known = self.queues.values().chain(made).find(|queue| queue.id == event.queue);
            let queue = known.map(|queue| queue.name.clone());
            self.last_event += 1;
            let id = EventId { store: EventId::store_of(self.salt, 0), group: self.last_event, nth: 0 };
            self.events.push_back(Event { id, at: self.now, kind: event.kind, queue, item: event.item });
            if self.events.len() > EVENTS_KEPT {
                self.events.pop_front();
            }
        }
    }

    /// Applies everything but the item itself.
    fn apply(&mut self, about: Option<QueueId>, change: &Change) {
        self.record_events(about, change);
        self.metrics.add(change, self.now);
        if let Some(finish) = change.finish() {
            self.tally(&finish);
        }
        if let Some((key, record)) = change.record() {
            self.kv.insert(key.clone(), record.clone());
        }
        match change.queue() {
            None => {}
            Some(QueueChange::Put(after)) => {
                // If fairness is turned on again, it starts at the first key.
                if !after.policy.flow.takes_turns() {
                    self.round_robins.remove(&after.id);
                }
                self.last_queue = self.last_queue.max(after.id.0);
                self.queues.insert(after.name.clone(), (**after).clone());
            }
            Some(QueueChange::Deleted) => {
                let Some(deleted) = about else { return };
                self.queues.retain(|_, queue| queue.id != deleted);
                self.tallies.remove(&deleted);
                self.rates.remove(&deleted);
                self.round_robins.remove(&deleted);
                self.items.retain(|_, item| item.head.queue != deleted);
                self.sequences.retain(|_, sequence| self.items.contains_key(sequence));
            }
        }
    }
}

impl Workspace for Everything {
    type Fault = Infallible;
    type Delivery = Item;

    fn now(&self) -> Timestamp {
        self.now
    }

    fn find(&self, id: ItemId) -> Option<u64> {
        self.sequences.get(&id).copied()
    }

    fn head(&self, sequence: u64) -> Option<Cow<'_, Head>> {
        self.items.get(&sequence).map(|item| Cow::Borrowed(&item.head))
    }

    fn key_owner(&self, queue: QueueId, key: &str) -> Option<(ItemId, ContentDigest)> {
        self.items.values().find_map(|item| {
            let claim = item.body.claim.filter(|claim| claim.queue == queue && !item.head.has_freed_key())?;
            (item.body.idempotency_key.as_deref() == Some(key)).then_some((item.head.id, claim.content))
        })
    }

    fn replace_key_owner(&self, queue: QueueId, key: &str) -> Option<u64> {
        let owns = |item: &Item| {
            let claimed = item.body.claim.is_some_and(|claim| claim.queue == queue);
            claimed && item.head.is_replaceable() && item.body.replace_key.as_deref() == Some(key)
        };
        self.items.iter().find(|(_, item)| owns(item)).map(|(&sequence, _)| sequence)
    }

    fn record(&self, key: &str) -> Option<&KvRecord> {
        self.kv.get(key)
    }

    fn check_record_room(
        &self,
        after: &[(String, Option<KvRecord>)],
    ) -> std::result::Result<(), towline_domain::Refusal> {
        let held = self.kv.iter().map(|(key, record)| record.bytes(key)).sum();
        self.kv_bytes_max.map_or(Ok(()), |max| kv::check_room(after, |key| self.record(key), held, max))
    }

    fn queue_count(&self) -> usize {
        self.queues.len()
    }

    fn swept(&self) -> u64 {
        self.swept
    }

    fn next_sequence(&self) -> u64 {
        self.last_item + 1
    }

    fn new_id(&self, sequence: u64) -> ItemId {
        ItemId::derive(self.salt, self.now, sequence)
    }

    fn next_queue_id(&self) -> QueueId {
        QueueId(self.last_queue + 1)
    }

    fn first_ready(&mut self, queue: QueueId, key: Option<KeyTag>) -> Option<u64> {
        let ready = self.ready(queue);
        ready.get(&key.unwrap_or(KeyTag::NONE)).and_then(BTreeSet::first).map(|(_, sequence)| *sequence)
    }

    fn open_key(&self, queue: QueueId, from: KeyTag) -> Option<KeyTag> {
        let (flow, leased) = (&self.by_id(queue)?.0.policy.flow, self.leased(queue));
        let has_room = |key: &KeyTag| flow.has_room(leased.get(key).copied().unwrap_or(0));
        self.ready(queue).range(from..).map(|(&key, _)| key).find(has_room)
    }

    fn ready_left(&mut self, queue: QueueId, _: bool) -> u64 {
        let takes_turns = self.by_id(queue).is_some_and(|(queue, _)| queue.policy.flow.limits_keys());
        match takes_turns {
            true => u64::from(self.open_key(queue, KeyTag::NONE).is_some()),
            false => self.ready(queue).values().map(|items| items.len() as u64).sum(),
        }
    }

    fn full_keys(&self, queue: QueueId) -> FullKeys {
        let Some((known, _)) = self.by_id(queue) else { return FullKeys::default() };
        let full = |leased: &u64| !known.policy.flow.has_room(*leased);
        self.leased(queue).into_iter().filter(|(_, leased)| full(leased)).map(|(key, _)| key).collect()
    }

    fn rate_state(&self, queue: QueueId) -> RateState {
        self.rates.get(&queue).copied().unwrap_or_default()
    }

    fn round_robin(&self, queue: QueueId) -> (RoundRobin, Arc<Weights>) {
        let weights = self.by_id(queue).map(|(queue, _)| Weights::of(&queue.policy.flow));
        let round_robin = self.round_robins.get(&queue).copied().unwrap_or_default();
        (round_robin, Arc::new(weights.unwrap_or_default()))
    }

    fn record_delivery(&mut self, queue: QueueId, rate: RateState, round_robin: Option<RoundRobin>) {
        self.rates.insert(queue, rate);
        self.round_robins.extend(round_robin.map(|round_robin| (queue, round_robin)));
    }

    fn read_bytes(&self, sequence: u64, fields: FieldSet) -> u64 {
        let item = self.items.get(&sequence).filter(|_| fields.has_any());
        item.map_or(0, |item| item.fields.bytes() as u64)
    }

    fn read_budget(&mut self) -> &mut u64 {
        &mut self.read_budget
    }

    fn delivery(&mut self, sequence: u64) -> Option<Item> {
        self.items.get(&sequence).cloned()
    }

    fn effects(&mut self) -> &mut EffectsRecorder {
        &mut self.effects
    }

    fn apply_item(
        &mut self,
        sequence: u64,
        _: Option<ItemId>,
        change: Change,
    ) -> std::result::Result<Answer, Infallible> {
        self.last_item = self.last_item.max(sequence);
        self.apply(None, &change);
        let before = self.items.remove(&sequence);
        if let Some(item) = &before {
            self.sequences.remove(&item.head.id);
        }
        if let Some(after) = change.apply(before) {
            self.sequences.insert(after.head.id, sequence);
            self.items.insert(sequence, after);
        }
        Ok(change.answer().clone())
    }

    fn apply_queue(
        &mut self,
        queue: Option<QueueId>,
        change: Change,
    ) -> std::result::Result<Answer, Infallible> {
        self.apply(queue, &change);
        Ok(change.answer().clone())
    }

    fn apply_records(
        &mut self,
        after: Vec<(String, Option<KvRecord>)>,
    ) -> std::result::Result<(), Infallible> {
        for (key, after) in after {
            match after {
                Some(record) => drop(self.kv.insert(key, record)),
                None => drop(self.kv.remove(&key)),
            }
        }
        Ok(())
    }

    fn forget_orphan(&mut self, sequence: u64) -> std::result::Result<(), Infallible> {
        unreachable!("item {sequence} without its queue: a queue is deleted together with its items")
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
    fn update(&self, batch: Vec<Operation>) -> BoxFuture<'_, Result<Updated>> {
        if let Err(error) = StoreError::check_size("operations", batch.len(), limits::BATCH_MAX) {
            return Box::pin(ready(Err(error)));
        }
        let mut state = self.lock();
        let state = &mut *state;
        state.sweep(self.clock.now());
        state.read_budget = READ_BYTES_MAX;
        let answers = batch.into_iter().map(|operation| state.run(operation)).collect();
        let queues = &state.queues;
        let name = |id| queues.values().find(|queue| queue.id == id).map(|queue| queue.name.clone());
        let effects = state.effects.take(name);
        Box::pin(ready(Ok(Updated { answers, effects })))
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
            (head.state == State::Pending && head.ready_at > state.promoted_to).then_some(head.ready_at)
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
        let store = EventId::store_of(state.salt, 0);
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

    fn identity(&self) -> StoreIdentity {
        StoreIdentity::of(self.lock().salt, 0)
    }

    fn metrics(&self) -> BoxFuture<'_, Result<StoreMetrics>> {
        Box::pin(ready(Ok(self.lock().metrics)))
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
