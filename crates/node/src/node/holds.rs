//! The leases that the node holds, and what becomes of each.

use crate::clock;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use towline_api::{Client, ItemId, LeaseToken};

/// What is to become of the work under a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fate {
    Held,
    /// A client wants it to stop.
    Stop(String),
    /// The lease is lost: another node may have the work.
    Lost(String),
}

#[derive(Default)]
pub(super) struct Holds(Mutex<HashMap<ItemId, Entry>>);

struct Entry {
    lease: LeaseToken,
    client: Client,
    owner: Option<ItemId>,
    lasts: Duration,
    /// The lease cannot have lapsed before.
    valid_until: Instant,
    fate: watch::Sender<Fate>,
}

/// A lease that is due for a heartbeat.
#[derive(Debug, Clone)]
pub(super) struct Due {
    pub(super) id: ItemId,
    pub(super) lease: LeaseToken,
    pub(super) client: Client,
    /// From whose lease the token of the client is derived. `None`: it is the node's own.
    pub(super) owner: Option<ItemId>,
    pub(super) lasts: Duration,
}

/// A lease that the node holds. Dropping it ends the heartbeats.
pub(super) struct Hold {
    pub(super) id: ItemId,
    pub(super) lease: LeaseToken,
    pub(super) client: Client,
    fate: watch::Receiver<Fate>,
    holds: Arc<Holds>,
}

impl Holds {
    pub(super) fn add(
        self: &Arc<Self>,
        (id, lease): (ItemId, LeaseToken),
        (client, owner): (Client, Option<ItemId>),
        lasts: Duration,
    ) -> Hold {
        let (sender, fate) = watch::channel(Fate::Held);
        let valid_until = clock::now() + lasts;
        let entry = Entry { lease, client: client.clone(), owner, lasts, valid_until, fate: sender };
        self.0.lock().insert(id, entry);
        Hold { id, lease, client, fate, holds: Arc::clone(self) }
    }

    pub(super) fn ids(&self) -> Vec<ItemId> {
        self.0.lock().keys().copied().collect()
    }

    pub(super) fn all(&self) -> Vec<Due> {
        let held = self.0.lock();
        let due = |(id, entry): (&ItemId, &Entry)| Due {
            id: *id,
            lease: entry.lease,
            client: entry.client.clone(),
            owner: entry.owner,
            lasts: entry.lasts,
        };
        held.iter().map(due).collect()
    }

    /// The server extended a lease by a call that began at `asked`.
    pub(super) fn extended(&self, id: ItemId, asked: Instant) {
        if let Some(entry) = self.0.lock().get_mut(&id) {
            entry.valid_until = asked + entry.lasts;
        }
    }

    pub(super) fn lost(&self, id: ItemId, why: &str) {
        if let Some(entry) = self.0.lock().get(&id) {
            entry.fate.send_replace(Fate::Lost(why.to_owned()));
        }
    }

    /// Says whether this is news.
    pub(super) fn stop(&self, id: ItemId, reason: &str) -> bool {
        self.0.lock().get(&id).is_some_and(|entry| {
            entry.fate.send_if_modified(|fate| {
                let is_news = *fate == Fate::Held;
                if is_news {
                    *fate = Fate::Stop(reason.to_owned());
                }
                is_news
            })
        })
    }

    /// Gives up leases that may lapse before `by`.
    pub(super) fn give_up(&self, by: Instant) {
        for entry in self.0.lock().values().filter(|entry| entry.valid_until <= by) {
            let why = "the server did not acknowledge a heartbeat in time";
            entry.fate.send_if_modified(|fate| {
                let is_held = !matches!(fate, Fate::Lost(_));
                if is_held {
                    *fate = Fate::Lost(why.to_owned());
                }
                is_held
            });
        }
    }
}

impl Hold {
    pub(super) fn fate(&self) -> Fate {
        self.fate.borrow().clone()
    }

    /// Waits until the lease is no longer simply held.
    pub(super) async fn changed(&self) -> Fate {
        self.until(|fate| *fate != Fate::Held).await
    }

    pub(super) async fn lost(&self) -> Fate {
        self.until(|fate| matches!(fate, Fate::Lost(_))).await
    }

    async fn until(&self, is: impl FnMut(&Fate) -> bool) -> Fate {
        let mut fate = self.fate.clone();
        match fate.wait_for(is).await {
            Ok(fate) => fate.clone(),
            // The sender lives as long as the hold.
            Err(_) => Fate::Lost("the node dropped the lease".to_owned()),
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut held = self.holds.0.lock();
        if held.get(&self.id).is_some_and(|entry| entry.lease == self.lease) {
            held.remove(&self.id);
        }
    }
}
