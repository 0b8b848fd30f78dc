//! Receives the work of a pool and carries it out: runs, replicas of services, slots of triggers.
//!
//! **Invariant:** what runs under a lease is killed before the lease can lapse. The node counts from the last heartbeat that the
//! server acknowledged, so it also holds when the server cannot be reached.

mod beat;
mod copy;
mod execution;
mod heartbeat;
mod holds;
mod launch;
mod log;
mod outputs;
mod replica;
mod report;
mod run;
mod slot;

use crate::runner::Runner;
use holds::{Hold, Holds};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use towline_api::compute::{LeaseSecret, pool_queue, tag};
use towline_api::{Client, ItemId, LeaseToken, ReceiveRequest, ReceivedItem, Text};

/// How long a lease of this node lasts without a heartbeat.
const LEASE: Duration = Duration::from_secs(30);
/// How long one call waits for work.
const WAIT: Duration = Duration::from_secs(20);
/// Pause after a call that failed.
const AFTER_FAULT: Duration = Duration::from_secs(1);

/// What a node is.
#[derive(Debug, Clone)]
pub struct NodeOptions {
    pub name: String,
    /// A name that no node ever had before.
    pub instance: String,
    pub pool: String,
    /// `process` or `container`.
    pub runner: &'static str,
    /// How much it runs at most.
    pub slots: u32,
    /// The address of the server for what it runs.
    pub url: String,
    /// Certificate authorities for what it runs.
    pub ca_file: Option<PathBuf>,
    /// The program `towline` for what it runs.
    pub cli: Option<PathBuf>,
}

/// A node. [`Node::run`] works until its `stop` completes.
#[derive(Clone)]
pub struct Node(Arc<Shared>);

pub(crate) struct Shared {
    options: NodeOptions,
    client: Client,
    runner: Arc<dyn Runner>,
    holds: Arc<Holds>,
    /// Set when the node stops: what runs is stopped and given back.
    stopping: watch::Sender<bool>,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Node").field(&self.0.options.name).finish()
    }
}

impl Node {
    #[must_use]
    pub fn new(options: NodeOptions, client: Client, runner: Arc<dyn Runner>) -> Node {
        let (holds, stopping) = (Arc::default(), watch::Sender::new(false));
        Node(Arc::new(Shared { options, client, runner, holds, stopping }))
    }

    /// Works until `stop` completes. Then it stops what runs, gives it back, and returns.
    pub async fn run(&self, stop: impl Future<Output = ()>) {
        let node = &self.0;
        // The first beat creates the queue of the pool.
        beat::once(node, Duration::ZERO).await;
        let heartbeats = tokio::spawn(heartbeat::keep(Arc::clone(node)));
        let beats = tokio::spawn(beat::keep(Arc::clone(node)));
        let mut work = JoinSet::new();
        let slots = Arc::new(Semaphore::new(node.options.slots as usize));
        let mut stop = std::pin::pin!(stop);
        loop {
            tokio::select! {
                () = &mut stop => break,
                Some(_) = work.join_next() => {}
                taken = node.take(&slots) => {
                    for (item, permit) in taken {
                        work.spawn(Arc::clone(node).carry_out(item, permit));
                    }
                }
            }
        }
        node.stopping.send_replace(true);
        while work.join_next().await.is_some() {}
        heartbeats.abort();
        beats.abort();
        // A server that cannot be reached takes the node off its list by itself.
        let _ = node.client.remove_node(&node.options.name, &node.options.instance).await;
    }
}

impl Shared {
    /// Receives as much as there are free slots. Waits for a slot, and for work.
    ///
    /// Dropping the future may leave received items to their leases; it is dropped only when the node stops.
    async fn take(&self, slots: &Arc<Semaphore>) -> Vec<(ReceivedItem, OwnedSemaphorePermit)> {
        let Ok(first) = Arc::clone(slots).acquire_owned().await else { return Vec::new() };
        let mut permits = vec![first];
        while let Ok(permit) = Arc::clone(slots).try_acquire_owned() {
            permits.push(permit);
        }
        let request = ReceiveRequest {
            max: Some(permits.len() as i64),
            wait: Some(WAIT.into()),
            visibility_timeout: Some(LEASE.into()),
            ..ReceiveRequest::default()
        };
        match self.client.receive(&pool_queue(&self.options.pool), &request).await {
            Ok(answer) => answer.items.into_iter().zip(permits).collect(),
            Err(error) => {
                tracing::warn!("cannot receive the work of pool {:?}: {error}", self.options.pool);
                tokio::time::sleep(AFTER_FAULT).await;
                Vec::new()
            }
        }
    }

    async fn carry_out(self: Arc<Self>, item: ReceivedItem, permit: OwnedSemaphorePermit) {
        let (Text::Good(id), Text::Good(lease)) = (item.id.clone(), item.lease.clone()) else { return };
        let hold = self.holds.add((id, lease), (self.client.clone(), None), LEASE);
        match item.tags.get(tag::KIND).map(String::as_str) {
            Some("run") => run::carry_out(&self, &hold, &item).await,
            Some("replica") => replica::carry_out(&self, &hold, &item).await,
            Some("slot") => slot::carry_out(&self, &hold, &item).await,
            other => {
                let reason =
                    format!("this node cannot carry out an item of kind {other:?}; upgrade the node");
                hold.fail(reason, None).await;
            }
        }
        drop(permit);
    }

    /// Completes when the node stops.
    async fn stopped(&self) {
        let mut stopping = self.stopping.subscribe();
        // The sender lives as long as the node.
        let _ = stopping.wait_for(|stopping| *stopping).await;
    }

    fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }

    /// The client of what has this lease: with the rights of the replica or the slot, and no others.
    fn client_of(&self, item: ItemId, lease: LeaseToken) -> Client {
        let secret = LeaseSecret::new(item, lease).text();
        // Cannot fail: the token is letters and digits.
        self.client.clone().token(&secret).unwrap_or_else(|_| self.client.clone())
    }

    /// A hold on an item that was received with the client of a slot.
    fn hold(&self, id: ItemId, lease: LeaseToken, client: &Client, slot: ItemId) -> Hold {
        self.holds.add((id, lease), (client.clone(), Some(slot)), LEASE)
    }
}
