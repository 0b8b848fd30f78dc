//! The broker itself: every update goes through here, so it knows what may have become ready and what has ended.

use crate::collection::{self, Totals};
use crate::damage::DamagedPayloads;
use crate::feed::Feed;
use crate::groups::{self, Groups};
use crate::latency::{CALLS, Latencies, Latency};
use crate::peers::{self, Peers};
use crate::pipeline::attach::Storage;
use crate::pipeline::attachments::Attachments;
use crate::schedules::{self, ScheduleTimers};
use crate::sweeper::{self, SweepTimer};
use crate::tally::{Done, Tally};
use crate::topics::Topics;
use crate::waiters::receivers::ReceiveWaiters;
use crate::waiters::results::Results;
use crate::waiters::submitters::SubmitWaiters;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
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
    pub(crate) damaged: DamagedPayloads,
    pub(crate) tally: Tally,
    pub(crate) latencies: Latencies,
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

/// Who else uses the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// Nobody: everything that happens goes through this broker.
    Alone,
    /// Other brokers: this one polls for what they did, and hears hints of it ([`Broker::peer_hint`]).
    Shared { poll_every: Duration },
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
            damaged: DamagedPayloads::default(),
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

    /// Carries out a batch and wakes the callers it concerns, also if the caller goes away meanwhile.
    pub async fn update(&self, batch: Vec<Operation>) -> Result<Vec<Answered>> {
        let update = tokio::spawn(Arc::clone(&self.0).update_checked(batch));
        update.await.unwrap_or(Err(StoreError::Closed))
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
                // It was redriven since, perhaps: then the wait goes on.
                () = ended.woken() => {}
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
        self.0.receivers.dismiss();
        self.0.submitters.dismiss();
        self.0.topics.dismiss();
        self.0.sweep_timer.ring();
        self.0.schedule_timers.ring();
        self.0.feed.stop();
        self.0.groups.ring();
    }
}

impl Shared {
    pub(crate) fn stopped(&self) -> tokio::sync::futures::Notified<'_> {
        self.stopped.notified()
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    async fn look(&self, id: ItemId) -> Result<Waited> {
        let found = self.store.get(vec![id], FieldSet::NONE).await?.pop().flatten();
        Ok(match found {
            None => Waited::NotFound,
            Some(stored) if stored.item.head.is_terminal() => Waited::Ended(Box::new(stored)),
            Some(stored) => Waited::Unfinished(Box::new(stored)),
        })
    }
}
