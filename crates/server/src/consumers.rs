//! The consumers of each queue: clients that received items from this server, for operators that look for a silent worker.
//!
//! In memory and only for this server. Bounded: the consumers that have not received for longest are forgotten first.

use crate::auth::Caller;
use crate::request::excerpt;
use axum::extract::FromRequestParts;
use http::header::USER_AGENT;
use http::request::Parts;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use towline_api::ConsumerShown;
use towline_domain::{ItemId, Lease, LeaseToken, QueueName, Timestamp};

/// Queues with consumers.
const QUEUES_MAX: usize = 1000;
/// Consumers of a queue.
const CONSUMERS_MAX: usize = 100;
/// Leases that are counted as in flight.
const LEASES_MAX: usize = 100_000;
/// The header with which a client names itself.
const CLIENT: &str = "x-towline-client";

/// The name of a client: its `x-towline-client` header, or its `user-agent`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ClientName(String);

impl<S: Sync> FromRequestParts<S> for ClientName {
    type Rejection = Infallible;
    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<ClientName, Infallible> {
        let header = |name: &str| parts.headers.get(name)?.to_str().ok().filter(|text| !text.is_empty());
        Ok(ClientName(excerpt(header(CLIENT).or_else(|| header(USER_AGENT.as_str())).unwrap_or("unknown"))))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct ConsumerKey {
    token: Option<String>,
    client: ClientName,
}

#[derive(Debug)]
struct Consumer {
    last_receive: Timestamp,
    received: u64,
    /// Receives that wait for an item.
    waiting: u64,
}

#[derive(Debug)]
struct HeldLease {
    token: LeaseToken,
    queue: QueueName,
    consumer: ConsumerKey,
    deadline: Timestamp,
}

#[derive(Debug, Default)]
struct Seen {
    queues: HashMap<QueueName, BTreeMap<ConsumerKey, Consumer>>,
    leases: HashMap<ItemId, HeldLease>,
}

#[derive(Debug, Default)]
pub(crate) struct Consumers(Mutex<Seen>);

/// A receive under way. Dropping it ends its wait.
pub(crate) struct Receiving<'a> {
    consumers: &'a Consumers,
    queue: QueueName,
    key: ConsumerKey,
}

impl Consumers {
    /// Notes the begin of a receive.
    pub(crate) fn begin(
        &self,
        queue: &QueueName,
        caller: &Caller,
        client: ClientName,
        now: Timestamp,
    ) -> Receiving<'_> {
        let key = ConsumerKey { token: caller.record().map(|token| token.name().to_owned()), client };
        let mut seen = self.0.lock();
        if !seen.queues.contains_key(queue) && seen.queues.len() >= QUEUES_MAX {
            let last = |consumers: &BTreeMap<_, Consumer>| {
                consumers.values().map(|consumer| consumer.last_receive).max()
            };
            let oldest =
                seen.queues.iter().min_by_key(|(_, consumers)| last(consumers)).map(|(name, _)| name.clone());
            oldest.and_then(|name| seen.queues.remove(&name));
        }
        let consumers = seen.queues.entry(queue.clone()).or_default();
        if !consumers.contains_key(&key) && consumers.len() >= CONSUMERS_MAX {
            let oldest = consumers
                .iter()
                .min_by_key(|(_, consumer)| consumer.last_receive)
                .map(|(key, _)| key.clone());
            oldest.and_then(|key| consumers.remove(&key));
        }
        let new = || Consumer { last_receive: now, received: 0, waiting: 0 };
        let consumer = consumers.entry(key.clone()).or_insert_with(new);
        consumer.last_receive = now;
        consumer.waiting += 1;
        Receiving { consumers: self, queue: queue.clone(), key }
    }

    /// Notes the new deadline of a lease, or its end. A lease that another one has followed is of no interest.
    pub(crate) fn settled(&self, id: ItemId, token: LeaseToken, deadline: Option<Timestamp>) {
        let mut seen = self.0.lock();
        match (deadline, seen.leases.get_mut(&id).filter(|lease| lease.token == token)) {
            (Some(deadline), Some(lease)) => lease.deadline = deadline,
            (None, Some(_)) => drop(seen.leases.remove(&id)),
            (_, None) => {}
        }
    }

    /// Leases in flight, as far as this server knows. A lease may have ended without a call of its holder.
    pub(crate) fn leases(&self, queue: &QueueName, now: Timestamp) -> Vec<(ItemId, LeaseToken)> {
        let mut seen = self.0.lock();
        seen.leases.retain(|_, lease| lease.deadline > now);
        let of_queue = seen.leases.iter().filter(|(_, lease)| lease.queue == *queue);
        of_queue.map(|(id, lease)| (*id, lease.token)).collect()
    }

    /// The consumers of a queue, the latest receive first.
    pub(crate) fn of(&self, queue: &QueueName, now: Timestamp) -> Vec<ConsumerShown> {
        let mut seen = self.0.lock();
        let Seen { queues, leases } = &mut *seen;
        leases.retain(|_, lease| lease.deadline > now);
        let mut in_flight: BTreeMap<&ConsumerKey, u64> = BTreeMap::new();
        for lease in leases.values().filter(|lease| lease.queue == *queue) {
            *in_flight.entry(&lease.consumer).or_default() += 1;
        }
        let mut consumers: Vec<(&ConsumerKey, &Consumer)> = queues.get(queue).into_iter().flatten().collect();
        consumers.sort_by_key(|(_, consumer)| std::cmp::Reverse(consumer.last_receive));
        let shown = consumers.into_iter().map(|(key, consumer)| ConsumerShown {
            client: key.client.0.clone(),
            token: key.token.clone(),
            last_receive_at: consumer.last_receive.into(),
            waiting: consumer.waiting,
            received: consumer.received,
            in_flight: in_flight.get(key).copied().unwrap_or(0),
        });
        shown.collect()
    }
}

impl Receiving<'_> {
    /// Forgets a client that got nothing but a refusal. It may have named a queue that does not exist.
    pub(crate) fn refused(&self) {
        let mut seen = self.consumers.0.lock();
        let Some(consumers) = seen.queues.get_mut(&self.queue) else { return };
        if consumers.get(&self.key).is_some_and(|consumer| consumer.received == 0 && consumer.waiting == 1) {
            consumers.remove(&self.key);
        }
        if consumers.is_empty() {
            seen.queues.remove(&self.queue);
        }
    }

    /// Notes the leases of the delivered items.
    pub(crate) fn received<'l>(&self, leases: impl Iterator<Item = (ItemId, &'l Lease)>, now: Timestamp) {
        let mut seen = self.consumers.0.lock();
        let (mut count, mut purged) = (0, false);
        for (id, Lease { token, deadline, .. }) in leases {
            count += 1;
            // Once a call: it looks at all leases, and other receives and settles wait meanwhile.
            if seen.leases.len() >= LEASES_MAX && !std::mem::replace(&mut purged, true) {
                seen.leases.retain(|_, lease| lease.deadline > now);
            }
            if seen.leases.len() < LEASES_MAX || seen.leases.contains_key(&id) {
                let (queue, consumer) = (self.queue.clone(), self.key.clone());
                let lease = HeldLease { token: *token, queue, consumer, deadline: *deadline };
                seen.leases.insert(id, lease);
            }
        }
        if let Some(consumer) = seen.consumer(&self.queue, &self.key) {
            consumer.received += count;
            consumer.last_receive = now;
        }
    }
}

impl Seen {
    fn consumer(&mut self, queue: &QueueName, key: &ConsumerKey) -> Option<&mut Consumer> {
        self.queues.get_mut(queue)?.get_mut(key)
    }
}

impl Drop for Receiving<'_> {
    fn drop(&mut self) {
        if let Some(consumer) = self.consumers.0.lock().consumer(&self.queue, &self.key) {
            consumer.waiting = consumer.waiting.saturating_sub(1);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use towline_domain::Millis;

    fn lease(token: u128, deadline: u64) -> Lease {
        Lease {
            token: LeaseToken(uuid::Uuid::from_u128(token)),
            deadline: Timestamp(deadline),
            visibility: Millis(100),
            unacknowledged: false,
            renewals: 0,
            buffers: None,
        }
    }

    fn receive(consumers: &Consumers, queue: &str, client: &str, at: u64, items: &[ItemId]) {
        let (queue, client) = (queue.parse().unwrap(), ClientName(client.to_owned()));
        let receiving = consumers.begin(&queue, &Caller::without_token(), client, Timestamp(at));
        let lease = lease(u128::from(at), at + 100);
        receiving.received(items.iter().map(|id| (*id, &lease)), Timestamp(at));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let consumers = Consumers::default();
        let queue = "jobs".parse().unwrap();
        for nth in 0..CONSUMERS_MAX + 5 {
            receive(&consumers, "jobs", &format!("client {nth}"), nth as u64, &[]);
        }
        let shown = consumers.of(&queue, Timestamp(500));
        assert_eq!(shown.len(), CONSUMERS_MAX);
        assert_eq!(shown[0].client, format!("client {}", CONSUMERS_MAX + 4));
        assert!(shown.iter().all(|consumer| consumer.client != "client 4" && consumer.waiting == 0));
        for nth in 0..QUEUES_MAX {
            receive(&consumers, &format!("queue-{nth}"), "client", 1000 + nth as u64, &[]);
        }
        assert_eq!(consumers.0.lock().queues.len(), QUEUES_MAX);
        assert_eq!(consumers.of(&queue, Timestamp(500)), []);
    }

    #[test]
    fn a_lease_is_in_flight_until_it_ends_or_lapses() {
        let consumers = Consumers::default();
        let ids = [1, 2, 3].map(|nth| ItemId::derive(7, Timestamp(1), nth));
        receive(&consumers, "jobs", "worker", 0, &ids);
        let in_flight = |at| consumers.of(&"jobs".parse().unwrap(), Timestamp(at))[0].in_flight;
        assert_eq!(in_flight(99), 3);
        let token = lease(0, 0).token;
        consumers.settled(ids[0], token, None);
        consumers.settled(ids[1], token, Some(Timestamp(200)));
        assert_eq!((in_flight(99), in_flight(100), in_flight(200)), (2, 1, 0));
    }

    #[test]
    fn a_call_with_an_old_lease_leaves_the_new_one_in_flight() {
        let consumers = Consumers::default();
        let (queue, id) = ("jobs".parse().unwrap(), ItemId::derive(7, Timestamp(1), 1));
        receive(&consumers, "jobs", "worker", 0, &[id]);
        receive(&consumers, "jobs", "worker", 50, &[id]);
        consumers.settled(id, lease(0, 0).token, None);
        consumers.settled(id, lease(0, 0).token, Some(Timestamp(1000)));
        let in_flight = |at| consumers.of(&queue, Timestamp(at))[0].in_flight;
        assert_eq!((in_flight(149), in_flight(150)), (1, 0));
    }

    #[test]
    fn a_receive_looks_at_all_leases_once() {
        let consumers = Consumers::default();
        let ids = |from: u32, count: u32| -> Vec<ItemId> {
            (from..from + count).map(|nth| ItemId::derive(7, Timestamp(1), nth.into())).collect()
        };
        receive(&consumers, "jobs", "worker", 0, &ids(0, LEASES_MAX as u32));
        // Nothing has lapsed, so looking again finds no room either. Looking for each item would take minutes.
        receive(&consumers, "jobs", "worker", 1, &ids(200_000, 10_000));
        assert_eq!(consumers.leases(&"jobs".parse().unwrap(), Timestamp(1)).len(), LEASES_MAX);
        receive(&consumers, "jobs", "worker", 100, &ids(300_000, 10_000));
        assert_eq!(consumers.leases(&"jobs".parse().unwrap(), Timestamp(100)).len(), 10_000);
    }
}
