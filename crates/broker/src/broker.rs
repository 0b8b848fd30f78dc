//! The broker: starts and stops its tasks, and carries out updates.

use crate::collection::{self, Totals};
use crate::counters::{Counters, OperationCounts};
use crate::damage::DamagedPayloads;
use crate::feed::Feed;
use crate::groups::{self, Groups};
use crate::latency::{CALLS, Latencies, Latency};
use crate::peers::{self, Peers};
use crate::pipeline::attach::Storage;
use crate::pipeline::attachments::Attachments;
use crate::schedules::{self, ScheduleTimers};
use crate::sweeper::{self, SweepTimer};
use crate::topics::Topics;
use crate::waiters::receivers::ReceiveWaiters;
use crate::waiters::results::Results;
use crate::waiters::submitters::SubmitWaiters;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, OwnedRwLockWriteGuard, RwLock};
use towline_domain::{FieldSet, ItemId, Timestamp};
use towline_store::{Answered, Clock, Operation, Result, Store, StoreError, StoredItem};

/// Clones share the broker. It works until [`Broker::stop`].
#[derive(Clone)]
pub struct Broker(pub(crate) Arc<Shared>);

pub(crate) struct Shared {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) receivers: ReceiveWaiters,
    pub(crate) results: Results<ItemId>,
    pub(crate) submitters: SubmitWaiters,
    pub(crate) sweep_timer: SweepTimer,
    pub(crate) schedule_timers: ScheduleTimers,
    pub(crate) peers: Peers,
    pub(crate) attachments: Option<Attachments>,
    pub(crate) collected: Totals,
    /// Every deletion of an object by the broker holds it for reading: from the decision that no item names the object until it is
    /// deleted. A backup holds it for writing.
    pub(crate) deletions: Arc<RwLock<()>>,
    pub(crate) counters: Counters,
    pub(crate) damaged: DamagedPayloads,
    pub(crate) latencies: Latencies,
    pub(crate) topics: Arc<Topics>,
    pub(crate) feed: Feed,
    pub(crate) groups: Groups,
    /// No other broker uses the store.
    pub(crate) is_alone: bool,
    stopping: AtomicBool,
    stopped: Notify,
}

impl std::fmt::Debug for Broker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Broker")
    }
}

/// Whether other brokers use the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// All updates go through this broker.
    Alone,
    /// Other brokers use it: this one polls for their updates and receives hints ([`Broker::peer_hints`]).
    Shared { poll_every: Duration },
}

/// While it exists, the broker deletes nothing from object storage.
#[derive(Debug)]
pub struct DeletionPause(#[expect(dead_code, reason = "dropped")] OwnedRwLockWriteGuard<()>);

/// How waiting for a result ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Waited {
    /// The item is completed or failed.
    Ended(Box<StoredItem>),
    /// The item has not ended.
    Unfinished(Box<StoredItem>),
    /// The item does not exist.
    NotFound,
}

impl Broker {
    /// Starts the broker and its tasks on the current runtime. Without object storage, buffers are not checked and no
    /// payload field is offloaded.
    #[must_use]
    pub fn start(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        storage: Option<Storage>,
        sharing: Sharing,
    ) -> Broker {
        let (attachments, collection) = match storage {
            Some(Storage { buffers, offload, collection }) => {
                (Some(Attachments { buffers, offload }), Some(collection))
            }
            None => (None, None),
        };
        let shared = Arc::new(Shared {
            store,
            clock,
            receivers: ReceiveWaiters::default(),
            results: Results::default(),
            submitters: SubmitWaiters::default(),
            sweep_timer: SweepTimer::default(),
            schedule_timers: ScheduleTimers::new(sharing == Sharing::Alone),
            peers: Peers::default(),
            attachments,
            collected: Totals::default(),
            deletions: Arc::default(),
            counters: Counters::default(),
            damaged: DamagedPayloads::default(),
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
        if let Sharing::Shared { poll_every } = sharing {
            tokio::spawn(peers::poll(Arc::downgrade(&shared), poll_every));
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

    /// The store, for a task that may outlive a call.
    #[must_use]
    pub fn shared_store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.0.store)
    }

    /// The time by the broker's clock.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.0.clock.now()
    }

    /// The broker's clock, for a task that may outlive a call.
    #[must_use]
    pub fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.0.clock)
    }

    /// Operations since the start.
    #[must_use]
    pub fn operation_counts(&self) -> OperationCounts {
        self.0.counters.read()
    }

    /// How long the store took for batches since the start, by kind as in [`CALLS`](crate::CALLS).
    #[must_use]
    pub fn latencies(&self) -> [Latency; CALLS.len()] {
        self.0.latencies.read()
    }

    /// Carries out a batch and wakes the callers it concerns, even if the caller disconnects meanwhile.
    pub async fn update(&self, batch: Vec<Operation>) -> Result<Vec<Answered>> {
        let update = tokio::spawn(Arc::clone(&self.0).update_checked(batch));
        update.await.unwrap_or(Err(StoreError::Closed))
    }

    /// Waits until an item has ended, or until `at_most` has passed.
    pub async fn wait(&self, id: ItemId, at_most: Duration) -> Result<Waited> {
        let shared = &self.0;
        let mut stopped = pin!(shared.stopped.notified());
        let mut over = pin!(tokio::time::sleep(at_most));
        loop {
            // Register before reading the item, so that no wake-up is missed.
            let mut ended = shared.results.register(id);
            let seen = shared.read_result(id).await?;
            match &seen {
                Waited::Unfinished(stored) if !at_most.is_zero() && !shared.is_stopping() => {
                    ended.set_queue(&stored.queue);
                }
                _ => return Ok(seen),
            }
            tokio::select! {
                // The item may have been redriven since: then the wait goes on.
                () = ended.woken() => {}
                () = &mut over => break,
                () = &mut stopped => break,
            }
        }
        shared.read_result(id).await
    }

    /// Pauses deletions, so that every object that an item names now can be copied. Waits for deletions under way.
    pub async fn pause_deletions(&self) -> DeletionPause {
        DeletionPause(Arc::clone(&self.0.deletions).write_owned().await)
    }

    /// Ends all waits without an item and starts no new ones. Operations under way are finished.
    pub fn stop(&self) {
        self.0.stopping.store(true, Ordering::SeqCst);
        self.0.stopped.notify_waiters();
        self.0.receivers.dismiss();
        self.0.submitters.dismiss();
        self.0.topics.dismiss();
        self.0.sweep_timer.wake();
        self.0.schedule_timers.wake();
        self.0.feed.stop();
        self.0.groups.wake();
    }
}

impl Shared {
    pub(crate) fn stopped(&self) -> tokio::sync::futures::Notified<'_> {
        self.stopped.notified()
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    async fn read_result(&self, id: ItemId) -> Result<Waited> {
        let found = self.store.get(vec![id], FieldSet::NONE).await?.pop().flatten();
        Ok(match found {
            None => Waited::NotFound,
            Some(stored) if stored.item.head.is_terminal() => Waited::Ended(Box::new(stored)),
            Some(stored) => Waited::Unfinished(Box::new(stored)),
        })
    }
}
