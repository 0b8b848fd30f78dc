//! The broker itself: every update goes through here, so it knows what may have become ready and what has ended.

use crate::buffers::Storage;
use crate::collection::{self, Totals};
use crate::depot::Depot;
use crate::entropy;
use crate::feed::Feed;
use crate::groups::{self, Groups};
use crate::latency::{CALLS, Latencies, Latency};
use crate::line::{Attempt, Came, Epoch, Handed, Lines, Waiter};
use crate::others::{self, Others};
use crate::results::Results;
use crate::room::Room;
use crate::schedules::{self, Board};
use crate::sweeper::{self, Alarm};
use crate::tally::{Asked, Done, Tally};
use crate::topics::Topics;
use std::collections::{HashMap, HashSet};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, oneshot};
use towline_domain::command::{Verb, When};
use towline_domain::{
    Adjust, FieldSet, Item, ItemId, KeyTag, LeaseCall, Millis, QueueName, QueueState, Refusal, Submission,
    Throttle, Timestamp,
};
use towline_store::{Answered, Clock, Operation, ReceiveCall, Received, Reply, Result, Store, StoredItem};

/// Waiting receivers served in one batch with what they wait for.
pub(crate) const RIDERS_MAX: usize = 64;

/// How long nobody else in line looks after one met a fault of the store.
const AFTER_FAULT: Millis = Millis(100);

/// Clones share the broker. It works until [`Broker::stop`].
#[derive(Clone)]
pub struct Broker(pub(crate) Arc<Shared>);

pub(crate) struct Shared {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) lines: Lines,
    pub(crate) results: Results<ItemId>,
    pub(crate) room: Room,
    pub(crate) alarm: Alarm,
    pub(crate) board: Board,
    pub(crate) others: Others,
    pub(crate) depot: Option<Depot>,
    pub(crate) collected: Totals,
    pub(crate) tally: Tally,
    latencies: Latencies,
    pub(crate) topics: Arc<Topics>,
    pub(crate) feed: Feed,
    pub(crate) groups: Groups,
    /// Nobody else changes what is in the store.
    pub(crate) is_alone: bool,
    stopping: AtomicBool,
    stopped: Notify,
}

impl std::fmt::Debug for Broker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Broker")
    }
}

#[derive(Debug, Clone)]
pub struct ReceiveRequest {
    pub queue: QueueName,
    pub max: u32,
    /// How long to wait for a first item.
    pub wait: Duration,
    pub visibility: Option<Millis>,
    pub fields: FieldSet,
    /// Make a buffer for each output slot the queue declares.
    pub make_buffers: bool,
}

/// Who else uses the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// Nobody: everything that happens goes through this broker.
    Alone,
    /// Other brokers: what they bring to those who wait here is asked for, and heard of ([`Broker::brought`]).
    Shared { ask_every: Duration },
}

/// How waiting for a result ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Waited {
    /// The item is completed or failed.
    Ended(Box<StoredItem>),
    /// It is as it was.
    Unfinished(Box<StoredItem>),
    /// There is no such item (any more).
    NotFound,
}

impl Broker {
    /// Starts the broker and its sweeper on the current runtime. Without object storage, items name what buffers they
    /// like, and payloads stay with their items.
    #[must_use]
    pub fn start(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        storage: Option<Storage>,
        sharing: Sharing,
    ) -> Broker {
        let (depot, collection) = match storage {
            Some(Storage { buffers, offload, collection }) => {
                (Some(Depot { buffers, offload }), Some(collection))
            }
            None => (None, None),
        };
        let shared = Arc::new(Shared {
            store,
            clock,
            lines: Lines::default(),
            results: Results::default(),
            room: Room::default(),
            alarm: Alarm::default(),
            board: Board::new(sharing == Sharing::Alone),
            others: Others::default(),
            depot,
            collected: Totals::default(),
            tally: Tally::default(),
            latencies: Latencies::default(),
            topics: Arc::default(),
            feed: Feed::default(),
            groups: Groups::default(),
            is_alone: sharing == Sharing::Alone,
            stopping: AtomicBool::new(false),
            stopped: Notify::new(),
        });
        tokio::spawn(sweeper::run(Arc::downgrade(&shared)));
        tokio::spawn(schedules::run(Arc::downgrade(&shared)));
        tokio::spawn(groups::run(Arc::downgrade(&shared)));
        if let Sharing::Shared { ask_every } = sharing {
            tokio::spawn(others::ask_again(Arc::downgrade(&shared), ask_every));
        }
        if let Some(rule) = collection {
            tokio::spawn(collection::run(Arc::downgrade(&shared), rule));
        }
        Broker(shared)
    }

    #[must_use]
    pub fn store(&self) -> &dyn Store {
        &*self.0.store
    }

    /// The time by the clock it was started with.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.0.clock.now()
    }

    /// How much has been done since the start.
    #[must_use]
    pub fn done(&self) -> Done {
        self.0.tally.read()
    }

    /// How long batches took the store since the start, by what they are about as in [`CALLS`](crate::CALLS).
    #[must_use]
    pub fn latencies(&self) -> [Latency; CALLS.len()] {
        self.0.latencies.read()
    }

    /// Carries out a batch and serves whoever waits for what it brings, also if the caller goes away meanwhile.
    pub async fn update(&self, batch: Vec<Operation>) -> Result<Vec<Answered>> {
        let shared = Arc::clone(&self.0);
        let update = match Broker::waits_for_items(&batch) {
            true => tokio::spawn(shared.update_known(batch)),
            false => tokio::spawn(shared.update_whole(batch)),
        };
        update.await.unwrap_or(Err(towline_store::StoreError::Closed))
    }

    /// Receives, waiting for a first item if there is none.
    pub async fn receive(&self, request: ReceiveRequest) -> Result<std::result::Result<Received, Refusal>> {
        let shared = &self.0;
        let nothing = || async {
            // Its state when the wait was over; a queue deleted meanwhile is not found, as it would be at once.
            match shared.store.queue(request.queue.clone()).await? {
                Some(view) => Ok(Ok(Received::nothing(view.queue.state))),
                None => Ok(Err(Refusal::QueueNotFound { name: request.queue.to_string() })),
            }
        };
        if request.wait.is_zero() {
            let handed = match Arc::clone(shared).attempt(call(&request), None).await? {
                Ok(handed) => handed,
                Err(refusal) => return Ok(Err(refusal)),
            };
            return Ok(shared.open_up(handed).await);
        }
        // Dropping this future at any point gives back what was on its way: see `Handed`.
        match shared.receive_or_wait(&request).await {
            Some(received) => received,
            None => nothing().await,
        }
    }

    /// Waits until an item has ended, or for that long.
    pub async fn wait(&self, id: ItemId, at_most: Duration) -> Result<Waited> {
        let shared = &self.0;
        let mut stopped = pin!(shared.stopped.notified());
        let mut over = pin!(tokio::time::sleep(at_most));
        loop {
            // Registered before the look, so that no end falls between the two.
            let mut ended = shared.results.register(id);
            let seen = shared.look(id).await?;
            if !matches!(seen, Waited::Unfinished(_)) || at_most.is_zero() || shared.is_stopping() {
                return Ok(seen);
            }
            tokio::select! {
                // Somebody gave it back, perhaps: then it goes on.
                () = ended.told() => {}
                () = &mut over => break,
                () = &mut stopped => break,
            }
        }
        shared.look(id).await
    }

    /// Lets waiting receivers go with nothing, and takes no new ones. What is under way is finished.
    pub fn stop(&self) {
        self.0.stopping.store(true, Ordering::SeqCst);
        self.0.stopped.notify_waiters();
        self.0.lines.dismiss();
        self.0.room.dismiss();
        self.0.topics.dismiss();
        self.0.alarm.ring();
        self.0.board.ring();
        self.0.feed.stop();
        self.0.groups.ring();
    }
}

fn call(request: &ReceiveRequest) -> Box<ReceiveCall> {
    Box::new(ReceiveCall {
        queue: request.queue.clone(),
        max: request.max,
        visibility: request.visibility,
        assigned: false,
        seed: entropy::token_seed(),
        fields: request.fields,
        make_buffers: request.make_buffers,
    })
}

/// What a batch may bring about, told from its operations.
#[derive(Default)]
struct Touched {
    /// Items that are ready at once, by queue.
    ready: HashMap<QueueName, Came>,
    /// Of these, queues where what kept items back may be over.
    free: HashSet<QueueName>,
    /// Queues whose limits may be others.
    changed: Vec<QueueName>,
    /// An item may have left its queue together with its lease.
    left: bool,
    /// Not yet in `ready`: a batch is mostly about one queue, which need not be looked up for every item.
    run: Option<(QueueName, usize)>,
    /// Items given back to queues that only the store knows.
    given_back: Vec<ItemId>,
    /// Items that may end; a closed queue may complete by it.
    may_end: Vec<ItemId>,
    swept: bool,
    /// Queues that are gone: who waits there is to hear it.
    deleted: Vec<QueueName>,
    /// Items leave full queues, or a queue changes: who waits for room looks.
    makes_room: bool,
    /// An item is in a group, or waits for others.
    grouped: bool,
    /// The shortest delay until something is due.
    due_in: Option<Millis>,
    asked: Asked,
}

impl Touched {
    fn of(batch: &[Operation]) -> Touched {
        let mut touched = Touched::default();
        for operation in batch {
            touched.asked.add(operation);
            touched.left |=
                matches!(operation.asked(), Operation::Lease { call, .. } if call.adjust.queue.is_some());
            let operation = operation.asked();
            touched.makes_room |= matches!(
                operation,
                Operation::Cancel { .. }
                    | Operation::Delete { .. }
                    | Operation::Move { .. }
                    | Operation::ChangePolicy { .. }
                    | Operation::CloseQueue { .. }
                    | Operation::DeleteQueue { .. }
            );
            match operation {
                Operation::Submit { queue, submission } => touched.submit(queue, submission),
                Operation::ResumeQueue { queue } | Operation::CloseQueue { queue } => {
                    touched.ready(queue);
                    touched.free.insert(queue.clone());
                }
                Operation::ChangePolicy { queue, .. } => touched.changed.push(queue.clone()),
                Operation::Lease { id, call } => match &call.verb {
                    Verb::Commit(_) | Verb::Fail { .. } => touched.may_end.push(*id),
                    Verb::Retry { delay, .. } => touched.give_back(*id, *delay),
                    Verb::Release { delay } => touched.give_back(*id, Some(*delay)),
                    Verb::Defer { until: When::After(delay) } => touched.give_back(*id, Some(*delay)),
                    Verb::Defer { until: When::At(_) } => touched.give_back(*id, None),
                    Verb::Heartbeat { .. } | Verb::Edit => {}
                },
                Operation::Cancel { id, .. } | Operation::Delete { id, .. } => touched.may_end.push(*id),
                Operation::Resume { id } | Operation::Redrive { id } => touched.given_back.push(*id),
                // It may be ready, and it may have failed.
                Operation::ResolveDependency { id, .. } => {
                    touched.given_back.push(*id);
                    touched.may_end.push(*id);
                }
                Operation::Restore(restore) => {
                    touched.grouped |=
                        restore.item.head.dependency().is_some() || restore.item.body.group.is_some()
                }
                // It may be ready in a queue where somebody waits, and the last of the one it left.
                Operation::Move { id, .. } => {
                    touched.given_back.push(*id);
                    touched.may_end.push(*id);
                }
                Operation::DeleteQueue { queue, .. } => touched.deleted.push(queue.clone()),
                Operation::Sweep => touched.swept = true,
                _ => {}
            }
        }
        touched.end_run();
        touched
    }

    fn ready(&mut self, queue: &QueueName) {
        match &mut self.run {
            Some((same, count)) if same == queue => *count += 1,
            _ => {
                self.end_run();
                self.run = Some((queue.clone(), 1));
            }
        }
    }

    fn end_run(&mut self) {
        if let Some((queue, count)) = self.run.take() {
            self.ready.entry(queue).or_default().count += count;
        }
    }

    /// Time may have made something ready.
    fn anything(&mut self, queue: QueueName) {
        self.free.insert(queue.clone());
        self.ready.entry(queue).or_insert(Came { count: 1, of: Vec::new() });
    }

    /// Says whose items are that are ready at once, where that matters.
    fn tell_keys(&mut self, batch: &[Operation], matters: impl Fn(&QueueName) -> bool) {
        let asked: HashSet<QueueName> = self.ready.keys().filter(|queue| matters(queue)).cloned().collect();
        if asked.is_empty() {
            return;
        }
        for operation in batch {
            if let Operation::Submit { queue, submission } = operation.asked()
                && submission.ready == When::NOW
                && asked.contains(queue)
                && let Some(came) = self.ready.get_mut(queue)
            {
                came.of.push(KeyTag::of_any(submission.body.fairness_key.as_deref()));
            }
        }
    }

    fn submit(&mut self, queue: &QueueName, submission: &Submission) {
        self.grouped |= submission.after.is_some() || submission.body.group.is_some();
        match submission.ready {
            When::After(Millis::ZERO) => self.ready(queue),
            // How far it was pushed back before, only the store knows.
            When::After(_) if submission.delay_max.is_some() => self.due(Millis::ZERO),
            When::After(delay) => self.due(delay),
            When::At(_) => self.due(Millis::ZERO),
        }
        if let Some(expiry) = submission.overrides.expire_after {
            self.due(expiry);
        }
    }

    fn give_back(&mut self, id: ItemId, delay: Option<Millis>) {
        self.given_back.push(id);
        // It may have been the last attempt.
        self.may_end.push(id);
        self.due(delay.unwrap_or(Millis::ZERO));
    }

    fn due(&mut self, delay: Millis) {
        self.due_in = Some(self.due_in.map_or(delay, |earlier| earlier.min(delay)));
    }
}

impl Shared {
    pub(crate) fn stopped(&self) -> tokio::sync::futures::Notified<'_> {
        self.stopped.notified()
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    pub(crate) async fn update(self: Arc<Self>, mut batch: Vec<Operation>) -> Result<Vec<Answered>> {
        let mut touched = Touched::of(&batch);
        if touched.grouped && !self.groups.are_begun() {
            self.begin_groups().await?;
        }
        if touched.swept {
            // Time may have made anything ready.
            self.lines.waiting(false).into_iter().for_each(|queue| touched.anything(queue));
        }
        touched.tell_keys(&batch, |queue| self.lines.asks_for_keys(queue));
        let own = batch.len();
        let riders = self.take_riders(&touched, &mut batch);
        let timed = Latencies::begin(batch.first());
        let answered = self.store.update(batch).await;
        self.latencies.end(&timed);
        let mut answers = match answered {
            Ok(answers) => answers,
            Err(fault) => {
                riders.into_iter().for_each(|(rider, _)| rider.try_again());
                return Err(fault);
            }
        };
        self.tally.add(touched.asked, &answers);
        let rode = answers.split_off(own.min(answers.len()));
        for ((rider, epoch), answer) in riders.into_iter().zip(rode) {
            self.hand_over(rider, epoch, answer);
        }
        self.after(touched, &answers).await;
        Ok(answers)
    }

    /// Puts waiting receivers behind the operations that may bring what they wait for.
    fn take_riders(&self, touched: &Touched, batch: &mut Vec<Operation>) -> Vec<(Waiter, Epoch)> {
        let mut riders = Vec::new();
        for (queue, came) in &touched.ready {
            let is_free = touched.free.contains(queue);
            let count = if is_free { came.count } else { self.lines.open_to(queue, came) };
            for _ in 0..count {
                if riders.len() == RIDERS_MAX || batch.len() == towline_domain::limits::BATCH_MAX {
                    return riders;
                }
                let rider = match is_free {
                    true => self.lines.take_for_free(queue),
                    false => self.lines.take_for_submit(queue),
                };
                let Some(rider) = rider else { break };
                batch.push(Operation::Receive(rider.0.call.clone()));
                riders.push(rider);
            }
        }
        riders
    }

    fn hand_over(self: &Arc<Self>, rider: Waiter, epoch: Epoch, answer: Answered) {
        match answer {
            Ok(Reply::Received(received)) => {
                let full = received.items.len() == rider.call.max as usize;
                let useful =
                    !received.items.is_empty() || matches!(received.queue, QueueState::Completed { .. });
                let queue = rider.call.queue.clone();
                self.room.made(&queue, received.items.len());
                let throttle = received.throttle.clone().filter(|_| !received.items.is_empty());
                let more = received.more;
                if useful {
                    rider.give(Attempt::Received(Handed::new(self, received)));
                } else {
                    rider.try_again();
                }
                self.go_on(&queue, full.then_some(more), throttle, Some(epoch));
            }
            // Refused: the waiter hears it from its own attempt.
            _ => rider.try_again(),
        }
    }

    /// A receive was given something: who is next in line looks, or is throttle. One that was given all it asked for says how
    /// many more would pass: one after the other, receivers would be too late for a rate.
    fn go_on(
        self: &Arc<Self>,
        queue: &QueueName,
        more: Option<usize>,
        throttle: Option<Throttle>,
        epoch: Option<Epoch>,
    ) {
        match (throttle, epoch) {
            (Some(throttle), Some(epoch)) => {
                if !self.lines.hold(queue, &throttle, epoch, self) {
                    self.pass_on(queue);
                }
            }
            (Some(Throttle::Rate(span)), None) => self.lines.hold_for(queue, span, self),
            (Some(Throttle::Concurrency | Throttle::Keys(_)), None) => {}
            (None, _) => {
                // Where nothing limits the queue, nothing is known, and one looks for all.
                let next = more.map_or(0, |more| more.max(1));
                (0..next).map_while(|_| self.lines.take(queue)).for_each(Waiter::try_again);
            }
        }
    }

    /// There may be more: the next in line looks.
    pub(crate) fn pass_on(&self, queue: &QueueName) {
        if let Some(next) = self.lines.take(queue) {
            next.try_again();
        }
    }

    /// These items may be ready: as many in line look as may be given out.
    fn wake(&self, queue: &QueueName, came: &Came) {
        for _ in 0..self.lines.came(queue, came) {
            match self.lines.take_for_submit(queue) {
                Some((waiter, _)) => waiter.try_again(),
                None => break,
            }
        }
    }

    /// So many leases may have ended: as many in line look.
    pub(crate) fn wake_freed(&self, queue: &QueueName, count: usize) {
        self.lines.freed(queue);
        for _ in 0..count {
            match self.lines.take_for_free(queue) {
                Some((waiter, _)) => waiter.try_again(),
                None => break,
            }
        }
    }

    /// Looks up where leases ended and where items were given back.
    async fn look_up(&self, touched: &mut Touched) {
        let watched = self.lines.watched();
        let mut ids = std::mem::take(&mut touched.given_back);
        let given_back: HashSet<ItemId> = ids.iter().copied().collect();
        if !watched.is_empty() {
            ids.extend(&touched.may_end);
            ids.sort_unstable();
            ids.dedup();
        }
        if ids.is_empty() || self.lines.is_empty() {
            return;
        }
        let Ok(found) = self.store.get(ids, FieldSet::HEADS).await else {
            // It may have been anywhere.
            return self.lines.all().iter().for_each(|queue| self.wake_freed(queue, 1));
        };
        let mut ended: HashMap<QueueName, usize> = HashMap::new();
        let mut nowhere = usize::from(touched.left);
        for found in found {
            let Some(StoredItem { queue, item }) = found else {
                nowhere += 1;
                continue;
            };
            let origin = item.head.extras.as_ref().and_then(|extras| extras.origin.as_ref());
            let queue = origin.map_or(queue, |origin| origin.queue.clone());
            if given_back.contains(&item.head.id) || watched.contains(&queue) {
                *ended.entry(queue).or_default() += 1;
            }
        }
        for queue in watched.iter().filter(|_| nowhere > 0) {
            *ended.entry(queue.clone()).or_default() += nowhere;
        }
        for (queue, count) in ended {
            self.wake_freed(&queue, count);
        }
    }

    /// Wakes whoever may find something now.
    async fn after(self: &Arc<Self>, mut touched: Touched, answers: &[Answered]) {
        if touched.swept {
            // Who came to a line while it swept may have looked before, and those who are about to come look again.
            self.lines.all().into_iter().for_each(|queue| touched.anything(queue));
        }
        for (queue, came) in &touched.ready {
            match touched.free.contains(queue) {
                true => self.wake_freed(queue, came.count),
                false => self.wake(queue, came),
            }
        }
        for queue in &touched.changed {
            self.lines.release(queue);
            self.pass_on(queue);
        }
        for queue in &touched.deleted {
            self.lines.ready(queue);
            self.lines.dismiss_queue(queue);
            self.results.look_again_all();
        }
        self.look_up(&mut touched).await;
        let changed =
            answers.iter().any(|answer| matches!(answer, Ok(Reply::Swept { changed }) if *changed > 0));
        if changed {
            self.results.look_again_all();
        }
        if touched.makes_room || changed {
            self.room.made_anywhere();
        }
        if !touched.may_end.is_empty() || changed {
            self.results.look_again(&touched.may_end);
            // A settle may have completed a closed queue: one of its waiters finds out, and the others through it.
            for queue in self.lines.waiting(true) {
                self.lines.ready(&queue);
                self.pass_on(&queue);
            }
        }
        self.alarm.updated(touched.due_in.map(|delay| self.clock.now().after(delay)));
        self.feed.updated();
    }

    /// One receive, carried to its end even if the caller goes away: then the items go back.
    async fn attempt(
        self: Arc<Self>,
        call: Box<ReceiveCall>,
        epoch: Option<Epoch>,
    ) -> Result<std::result::Result<Handed, Refusal>> {
        let (give, take) = oneshot::channel();
        tokio::spawn(async move {
            let queue = call.queue.clone();
            let max = call.max as usize;
            let batch = vec![Operation::Receive(call)];
            let timed = Latencies::begin(batch.first());
            let answered = self.store.update(batch).await;
            self.latencies.end(&timed);
            self.alarm.updated(None);
            self.feed.updated();
            if let Ok(answers) = &answered {
                self.tally.add(Asked::default(), answers);
            }
            let outcome = match answered.map(|mut answers| answers.pop()) {
                Err(fault) => Err(fault),
                Ok(Some(Ok(Reply::Received(received)))) => {
                    self.room.made(&queue, received.items.len());
                    if !received.items.is_empty() {
                        let more = (received.items.len() == max).then_some(received.more);
                        self.go_on(&queue, more, received.throttle.clone(), epoch);
                    } else if let Some(Throttle::Rate(span)) = received.throttle {
                        // Who asked may be gone by now: the others in line have their time all the same.
                        self.lines.hold_for(&queue, span, &self);
                    }
                    Ok(Ok(Handed::new(&self, received)))
                }
                Ok(Some(Err(refusal))) => Ok(Err(refusal)),
                Ok(_) => Err(towline_store::StoreError::Closed),
            };
            // If nobody listens any more, dropping the outcome gives the items back.
            let _ = give.send(outcome);
        });
        take.await.unwrap_or(Err(towline_store::StoreError::Closed))
    }

    /// `None`: the wait is over, or the broker is stopping.
    async fn receive_or_wait(
        self: &Arc<Self>,
        request: &ReceiveRequest,
    ) -> Option<Result<std::result::Result<Received, Refusal>>> {
        // Only standing in line is timed: an attempt under way is waited for, or what it brings would be given back.
        let mut over = pin!(tokio::time::sleep(request.wait));
        let mut visit = self.lines.visit(&request.queue);
        loop {
            let epoch = visit.epoch();
            let handed = match Arc::clone(self).attempt(call(request), Some(epoch)).await {
                Ok(Ok(handed)) => handed,
                Ok(Err(refusal)) => return Some(Ok(Err(refusal))),
                Err(fault) => {
                    if visit.is_relieved() {
                        // The next in line looks, but not at once: it would meet the same.
                        self.lines.hold_for(&request.queue, AFTER_FAULT, self);
                    }
                    return Some(Err(fault));
                }
            };
            if handed.is_useful() {
                visit.is_relieved();
                if handed.is_completed() {
                    // Everybody else in line should know.
                    self.lines.dismiss_queue(&request.queue);
                }
                return Some(Ok(self.open_up(handed).await));
            }
            if self.is_stopping() {
                return None;
            }
            if over.is_elapsed() {
                return None;
            }
            let (hand_over, mut handed_over) = oneshot::channel();
            let waiter = Waiter { call: call(request), hand_over };
            if visit.join(waiter, epoch, &handed, self).is_err() {
                continue;
            }
            if self.is_stopping() {
                return None;
            }
            let attempt = tokio::select! {
                attempt = &mut handed_over => attempt,
                () = &mut over => {
                    if visit.leave() {
                        return None;
                    }
                    // Somebody took it out of the line: what it is given is on its way.
                    handed_over.await
                }
            };
            match attempt {
                Ok(Attempt::Received(handed)) => {
                    visit.is_relieved();
                    return Some(Ok(self.open_up(handed).await));
                }
                Ok(Attempt::TryAgain) => {}
                Err(_) => return None,
            }
        }
    }

    async fn look(&self, id: ItemId) -> Result<Waited> {
        let found = self.store.get(vec![id], FieldSet::NONE).await?.pop().flatten();
        Ok(match found {
            None => Waited::NotFound,
            Some(stored) if stored.item.head.is_terminal() => Waited::Ended(Box::new(stored)),
            Some(stored) => Waited::Unfinished(Box::new(stored)),
        })
    }

    /// Gives items back that nobody took: not counted as an attempt.
    pub(crate) fn give_back(self: Arc<Self>, items: Vec<Item>, until: When) {
        let defer = |item: Item| {
            let token = item.head.lease()?.token;
            let verb = Verb::Defer { until };
            let call = LeaseCall { token, verb, adjust: Adjust::default() };
            Some(Operation::Lease { id: item.head.id, call: Box::new(call) })
        };
        let batch: Vec<Operation> = items.into_iter().filter_map(defer).collect();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            // If this fails the leases lapse, as they would for any receiver that vanished.
            runtime.spawn(async move { drop(self.update(batch).await) });
        }
    }
}
