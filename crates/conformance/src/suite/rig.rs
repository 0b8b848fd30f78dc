//! A store under test with its clock, and short methods for the calls of a case.

use super::Harness;
use super::operations::*;
use futures::executor::block_on;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use towline_domain::change::Answer;
use towline_domain::command::Verb;
use towline_domain::kv::{KvCommand, KvRecord};
use towline_domain::{
    Adjust, CountKind, Counts, FieldSet, Item, ItemId, ItemState, LeaseToken, Order, Policy, QueueName,
    QueueState, Refusal, Submission, Timestamp, TokenSeed,
};
use towline_store::Answered;
use towline_store::{
    Clock, Filter, ManualClock, Operation, OperationError, QueueView, ReceiveCall, Received, Reply, Store,
    StoredItem,
};

pub(super) const START: Timestamp = Timestamp(1_700_000_000_000);

pub(super) struct Rig {
    pub(super) store: Arc<dyn Store>,
    pub(super) clock: Arc<ManualClock>,
    seeds: AtomicU64,
}

/// A received item with its lease.
#[derive(Debug, Clone)]
pub(super) struct Held {
    pub(super) id: ItemId,
    pub(super) token: LeaseToken,
    pub(super) item: Item,
}

impl Held {
    pub(super) fn of(item: Item) -> Held {
        let lease = item.head.lease().expect("a received item is processing");
        Held { id: item.head.id, token: lease.token, item }
    }

    pub(super) fn deadline(&self) -> Timestamp {
        self.item.head.lease().expect("a received item is processing").deadline
    }

    pub(super) fn call(&self, verb: Verb) -> Operation {
        self.call_with(verb, Adjust::default())
    }

    pub(super) fn call_with(&self, verb: Verb, adjust: Adjust) -> Operation {
        lease_call(self.id, self.token, verb, adjust)
    }
}

impl Rig {
    pub(super) fn open(harness: &dyn Harness) -> Rig {
        let clock = Arc::new(ManualClock::new(START));
        Rig { store: harness.open(clock.clone()), clock, seeds: AtomicU64::new(1) }
    }

    /// Opens a store that holds at most this many bytes of key-value records; `None` for a store without such a limit.
    pub(super) fn with_room_for_records(harness: &dyn Harness, bytes_max: usize) -> Option<Rig> {
        let clock = Arc::new(ManualClock::new(START));
        let store = harness.open_with_room_for_records(clock.clone(), bytes_max)?;
        Some(Rig { store, clock, seeds: AtomicU64::new(1) })
    }

    /// Opens a store with one queue named `jobs`.
    pub(super) fn with_queue(harness: &dyn Harness, policy: Policy) -> Rig {
        let rig = Rig::open(harness);
        rig.create("jobs", policy);
        rig
    }

    /// Closes and reopens the store; `None` for a store without durable data.
    pub(super) fn reopen(self, harness: &dyn Harness) -> Option<Rig> {
        let Rig { store, clock, seeds } = self;
        let store = harness.reopen(store, clock.clone())?;
        let rig = Rig { store, clock, seeds };
        rig.check();
        Some(rig)
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(super) fn advance(&self, millis: u64) {
        self.clock.advance(millis);
    }

    /// Moves the clock to `time` and carries out what is due.
    pub(super) fn at(&self, time: Timestamp) {
        self.clock.set(time);
        self.sweep();
    }

    pub(super) fn seed(&self) -> TokenSeed {
        let mut bytes = [0; 32];
        let count = self.seeds.fetch_add(1, Ordering::Relaxed);
        bytes[..8].copy_from_slice(&count.to_le_bytes());
        TokenSeed(bytes)
    }

    #[track_caller]
    pub(super) fn update(&self, batch: Vec<Operation>) -> Vec<Answered> {
        let size = batch.len();
        let answers = block_on(self.store.update(batch)).expect("the store answers").answers;
        assert_eq!(answers.len(), size, "one reply for each operation");
        self.check();
        answers
    }

    #[track_caller]
    pub(super) fn run(&self, operation: Operation) -> Answered {
        self.update(vec![operation]).remove(0)
    }

    #[track_caller]
    pub(super) fn ok(&self, operation: Operation) -> Reply {
        self.run(operation).expect("not refused")
    }

    #[track_caller]
    pub(super) fn refused(&self, operation: Operation) -> Refusal {
        match self.run(operation) {
            Err(OperationError::Refused(refusal)) => refusal,
            other => panic!("not refused: {other:?}"),
        }
    }

    /// Creates a queue. First, the dead-letter queue that its policy names.
    #[track_caller]
    pub(super) fn create(&self, queue: &str, policy: Policy) {
        if let Some(dead) = policy.dead_letter_queue.as_ref().map(QueueName::as_str)
            && self.find_queue(dead).is_none()
        {
            self.ok(create(dead, plain()));
        }
        self.ok(create(queue, policy));
    }

    #[track_caller]
    pub(super) fn close(&self, queue: &str) {
        self.ok(Operation::CloseQueue { queue: name(queue) });
    }

    #[track_caller]
    pub(super) fn submit(&self, queue: &str, submission: Submission) -> ItemId {
        let (id, created) = submitted(&self.run(submit(queue, submission)));
        assert!(created);
        id
    }

    /// Submits `count` items without options and returns their ids.
    #[track_caller]
    pub(super) fn submit_many(&self, queue: &str, count: usize) -> Vec<ItemId> {
        let batch = (0..count).map(|n| submit(queue, payload(n.to_string()))).collect();
        self.update(batch).iter().map(|answer| submitted(answer).0).collect()
    }

    pub(super) fn receive_call(&self, queue: &str, max: u32) -> ReceiveCall {
        ReceiveCall {
            queue: name(queue),
            max,
            visibility: None,
            assigned: false,
            seed: self.seed(),
            fields: FieldSet::ALL,
            make_buffers: false,
        }
    }

    #[track_caller]
    pub(super) fn received(&self, call: ReceiveCall) -> Received {
        match self.ok(Operation::Receive(Box::new(call))) {
            Reply::Received(received) => received,
            other => panic!("unexpected reply to a receive: {other:?}"),
        }
    }

    #[track_caller]
    pub(super) fn receive(&self, queue: &str, max: u32) -> Vec<Held> {
        let received = self.received(self.receive_call(queue, max));
        received.items.into_iter().map(Held::of).collect()
    }

    #[track_caller]
    pub(super) fn receive_ids(&self, queue: &str, max: u32) -> Vec<ItemId> {
        self.receive(queue, max).iter().map(|held| held.id).collect()
    }

    /// Receives exactly one item.
    #[track_caller]
    pub(super) fn take(&self, queue: &str) -> Held {
        let mut held = self.receive(queue, 1);
        assert_eq!(held.len(), 1, "{queue} has a ready item");
        held.remove(0)
    }

    /// Submits an item without options and receives it.
    #[track_caller]
    pub(super) fn hold(&self, queue: &str) -> Held {
        self.hold_this(queue, payload("work"))
    }

    #[track_caller]
    pub(super) fn hold_this(&self, queue: &str, submission: Submission) -> Held {
        let id = self.submit(queue, submission);
        let held = self.take(queue);
        assert_eq!(held.id, id);
        held
    }

    #[track_caller]
    pub(super) fn lease(&self, held: &Held, verb: Verb) -> Answered {
        self.run(held.call(verb))
    }

    #[track_caller]
    pub(super) fn commit(&self, held: &Held) {
        assert_eq!(self.lease(held, commit()), left(ItemState::Completed));
    }

    #[track_caller]
    pub(super) fn fail(&self, held: &Held) {
        assert_eq!(self.lease(held, fail("broken")), left(ItemState::Failed));
    }

    #[track_caller]
    pub(super) fn cancel(&self, id: ItemId) {
        let reason = "not needed".to_owned();
        assert_eq!(self.run(Operation::Cancel { id, reason }), left(ItemState::Failed));
    }

    #[track_caller]
    pub(super) fn delete(&self, id: ItemId) {
        assert_eq!(self.run(delete(id)), Ok(Reply::Answer(Answer::Removed)));
    }

    /// Carries out everything that is due.
    #[track_caller]
    pub(super) fn sweep(&self) {
        let nothing = Reply::Swept { changed: 0 };
        let over = (0..10_000).any(|_| self.ok(Operation::Sweep) == nothing);
        assert!(over, "a sweep leaves nothing due");
    }

    #[track_caller]
    pub(super) fn find(&self, id: ItemId) -> Option<StoredItem> {
        let mut found = block_on(self.store.get(vec![id], FieldSet::ALL)).expect("the store answers");
        assert_eq!(found.len(), 1);
        found.remove(0)
    }

    #[track_caller]
    pub(super) fn stored(&self, id: ItemId) -> StoredItem {
        self.find(id).expect("the item exists")
    }

    #[track_caller]
    pub(super) fn item(&self, id: ItemId) -> Item {
        self.stored(id).item
    }

    #[track_caller]
    pub(super) fn assert_gone(&self, id: ItemId) {
        assert_eq!(self.find(id), None, "removed");
        assert_eq!(self.refused(delete(id)), Refusal::ItemNotFound { id });
    }

    #[track_caller]
    pub(super) fn find_queue(&self, queue: &str) -> Option<QueueView> {
        block_on(self.store.queue(name(queue))).expect("the store answers")
    }

    #[track_caller]
    pub(super) fn view(&self, queue: &str) -> QueueView {
        self.find_queue(queue).expect("the queue exists")
    }

    #[track_caller]
    pub(super) fn queue_state(&self, queue: &str) -> QueueState {
        self.view(queue).queue.state
    }

    #[track_caller]
    pub(super) fn counts(&self, queue: &str) -> Counts {
        self.view(queue).counts
    }

    #[track_caller]
    pub(super) fn queues(&self) -> Vec<QueueView> {
        let mut all: Vec<QueueView> = Vec::new();
        loop {
            let after = all.last().map(|view| view.queue.name.clone());
            let page = block_on(self.store.queues(after, 7)).expect("the store answers");
            let Some(first) = page.first() else {
                return all;
            };
            let last = all.last().map(|view| &view.queue.name);
            assert!(last < Some(&first.queue.name), "a page begins after the previous one");
            all.extend(page);
        }
    }

    #[track_caller]
    pub(super) fn list(&self, filter: &Filter) -> Vec<StoredItem> {
        self.list_paged(filter, 1000, FieldSet::ALL)
    }

    #[track_caller]
    pub(super) fn list_paged(&self, filter: &Filter, limit: usize, fields: FieldSet) -> Vec<StoredItem> {
        let mut all = Vec::new();
        let mut after = None;
        loop {
            let page = block_on(self.store.list(filter.clone(), after, limit, fields)).expect("it answers");
            assert!(page.items.len() <= limit, "a page is at most as long as requested");
            all.extend(page.items);
            match page.next {
                None => return all,
                Some(next) => {
                    assert!(after.is_none_or(|after| next > after), "a cursor advances");
                    after = Some(next);
                }
            }
        }
    }

    #[track_caller]
    pub(super) fn list_ids(&self, filter: &Filter) -> Vec<ItemId> {
        let listed = self.list_paged(filter, 3, FieldSet::NONE);
        assert_eq!(self.count(filter), listed.len() as u64, "count and list agree: {filter:?}");
        listed.iter().map(|stored| stored.item.head.id).collect()
    }

    #[track_caller]
    pub(super) fn count(&self, filter: &Filter) -> u64 {
        let (mut sum, mut after) = (0, None);
        loop {
            let counted = block_on(self.store.count(filter.clone(), after)).expect("the store answers");
            sum += counted.count;
            match counted.next {
                None => return sum,
                Some(next) => {
                    assert!(after.is_none_or(|after| next > after), "a cursor advances");
                    after = Some(next);
                }
            }
        }
    }

    #[track_caller]
    pub(super) fn next_wake(&self) -> Option<Timestamp> {
        block_on(self.store.next_wake()).expect("the store answers")
    }

    #[track_caller]
    pub(super) fn kv(&self, key: &str, command: KvCommand) -> Answered {
        let key = key.to_owned();
        self.run(Operation::Kv { key, command })
    }

    #[track_caller]
    pub(super) fn kv_get(&self, key: &str) -> Option<KvRecord> {
        let mut found = block_on(self.store.kv_get(vec![key.to_owned()])).expect("the store answers");
        assert_eq!(found.len(), 1);
        found.remove(0)
    }

    /// Checks what must always hold: counts are the sum of states, a closed queue without unfinished items is completed,
    /// and lists and gets return the same items.
    #[track_caller]
    pub(super) fn check(&self) {
        let listed = self.list_paged(&Filter::default(), 1000, FieldSet::NONE);
        let mut counts: BTreeMap<QueueName, Counts> = BTreeMap::new();
        for stored in &listed {
            let kind = stored.item.head.count_kind(self.now());
            counts.entry(stored.queue.clone()).or_default().add(kind);
        }
        let views = self.queues();
        assert!(views.is_sorted_by(|a, b| a.queue.name < b.queue.name), "queues are in order of name");
        for QueueView { queue, counts: counted, oldest_ready } in views {
            let sum = counts.remove(&queue.name).unwrap_or_default();
            assert_eq!(counted, sum, "counts of {} are the sum of its items' states", queue.name);
            let ready = listed.iter().filter(|stored| {
                stored.queue == queue.name && stored.item.head.count_kind(self.now()) == CountKind::Pending
            });
            let oldest = ready.map(|stored| stored.item.head.ready_at).min();
            let oldest = oldest.filter(|_| !matches!(queue.policy.order, Order::Score(_)));
            assert_eq!(oldest_ready, oldest, "the oldest ready time of {}", queue.name);
            if !matches!(queue.state, QueueState::Open) {
                let completed = matches!(queue.state, QueueState::Completed { .. });
                assert_eq!(completed, sum.unfinished() == 0, "{} has {sum:?}", queue.name);
            }
            for stored in listed.iter().filter(|stored| stored.queue == queue.name) {
                assert_eq!(stored.item.head.queue, queue.id);
            }
        }
        assert!(counts.is_empty(), "items without a queue: {counts:?}");
        let ids: Vec<ItemId> = listed.iter().map(|stored| stored.item.head.id).collect();
        for (ids, listed) in ids.chunks(5000).zip(listed.chunks(5000)) {
            let found = block_on(self.store.get(ids.to_vec(), FieldSet::NONE)).expect("the store answers");
            assert!(found.iter().flatten().eq(listed), "get returns the listed items");
        }
    }
}
