//! The state that all routes share.

use crate::auth::Auth;
use crate::backend::Backend;
use crate::backup::Place;
use crate::config::{Settings, StoreChoice};
use crate::consumers::Consumers;
use crate::metrics::Metrics;
use crate::request::BodyRoom;
use crate::response::ProblemResponse;
use crate::traces::Traces;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use towline_api::Code;
use towline_broker::{Broker, DeletionPause};
use towline_buffers::Location;
use towline_compute::Compute;
use towline_domain::{Counts, Timestamp};
use towline_embedded::Embedded;
use towline_shards::{ShardHealth, Shards};

/// Memory for the parts of buffers that are being sent.
const SEND_BYTES_MAX: usize = 512 << 20;

/// Clones share the state.
#[derive(Clone)]
pub(crate) struct App(Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) broker: Broker,
    pub(crate) compute: Compute,
    pub(crate) body_bytes_max: usize,
    pub(crate) body_room: Arc<BodyRoom>,
    /// For parts of buffers that are sent to clients.
    pub(crate) send_room: Arc<BodyRoom>,
    /// The names that a request may give for this server, besides IP addresses and `localhost`. `None`: any.
    pub(crate) hosts: Option<Vec<String>>,
    /// Whether this server itself terminates TLS.
    pub(crate) tls: bool,
    /// Whether a submit to a queue that does not exist creates it.
    pub(crate) auto_create_queues: bool,
    pub(crate) auth: Auth,
    pub(crate) metrics: Metrics,
    /// `None` if no collector is configured.
    pub(crate) traces: Option<Traces>,
    /// The place for buffers, for a backup.
    buffers: Location,
    pub(crate) consumers: Consumers,
    /// A permit for each connection.
    connections: Arc<Semaphore>,
    pub(crate) connections_max: usize,
    /// Directories whose disk metrics describe, with the name of each.
    pub(crate) disks: Vec<(&'static str, PathBuf)>,
    /// One backup, export or import at a time.
    copies: Arc<Semaphore>,
    /// While it is set, no client may change anything.
    importing: Arc<AtomicBool>,
    /// For metrics and backups only. Everything else goes through the broker.
    embedded: Option<Arc<Embedded>>,
    /// For their health only.
    shards: Option<Arc<Shards>>,
    stopping: watch::Sender<bool>,
}

/// An import is under way.
pub(crate) struct ImportGuard(Arc<AtomicBool>);

impl Drop for ImportGuard {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

fn disks(settings: &Settings) -> Vec<(&'static str, PathBuf)> {
    let data = matches!(settings.store, StoreChoice::Embedded).then(|| ("data", settings.data.clone()));
    let buffers = match settings.buffers.location(&settings.data) {
        Location::Directory(directory) => Some(("buffers", directory)),
        Location::S3 { .. } => None,
    };
    data.into_iter().chain(buffers).collect()
}

impl std::ops::Deref for App {
    type Target = Inner;
    fn deref(&self) -> &Inner {
        &self.0
    }
}

impl App {
    pub(crate) fn new(
        broker: Broker,
        compute: Compute,
        backend: &Backend,
        metrics: Metrics,
        traces: Option<Traces>,
        auth: Auth,
        settings: &Settings,
    ) -> App {
        App(Arc::new(Inner {
            broker,
            compute,
            body_bytes_max: settings.body_bytes_max,
            body_room: BodyRoom::new(settings.bodies_bytes_max),
            send_room: BodyRoom::new(SEND_BYTES_MAX),
            hosts: (!settings.requires_tokens()).then(|| settings.hosts.clone()),
            tls: settings.tls_files().is_some(),
            auto_create_queues: settings.auto_create_queues,
            auth,
            metrics,
            traces,
            buffers: settings.buffers.location(&settings.data),
            consumers: Consumers::default(),
            connections: Arc::new(Semaphore::new(settings.connections_max)),
            connections_max: settings.connections_max,
            disks: disks(settings),
            copies: Arc::new(Semaphore::new(1)),
            importing: Arc::default(),
            embedded: backend.embedded(),
            shards: backend.shards(),
            stopping: watch::Sender::new(false),
        }))
    }

    pub(crate) fn embedded(&self) -> Option<&Embedded> {
        self.embedded.as_deref()
    }

    pub(crate) fn connections(&self) -> Arc<Semaphore> {
        Arc::clone(&self.connections)
    }

    /// Connections that are open, and the one that the server is ready to accept.
    pub(crate) fn connections_taken(&self) -> usize {
        self.connections_max.saturating_sub(self.connections.available_permits())
    }

    /// What a backup copies. `None` if the store is not embedded.
    pub(crate) fn backup_place(&self) -> Option<Place> {
        Some(Place { store: self.embedded.clone()?, buffers: self.buffers.clone() })
    }

    /// Begins a backup, an export or an import. Until the returned guard is dropped, no other one begins, and the broker deletes nothing from
    /// object storage.
    pub(crate) async fn begin_copy(&self) -> Result<(OwnedSemaphorePermit, DeletionPause), ProblemResponse> {
        let busy = |_| {
            let detail = "a backup, an export or an import is under way; try again when it has ended";
            ProblemResponse::new(Code::Busy, detail)
        };
        let permit = Arc::clone(&self.copies).try_acquire_owned().map_err(busy)?;
        Ok((permit, self.broker.pause_deletions().await))
    }

    /// Refuses all calls that change something until the guard is dropped.
    pub(crate) fn begin_import(&self) -> ImportGuard {
        self.importing.store(true, Ordering::Release);
        ImportGuard(Arc::clone(&self.importing))
    }

    pub(crate) fn is_importing(&self) -> bool {
        self.importing.load(Ordering::Acquire)
    }

    /// The items of each shard that is up. Empty if the store is not sharded.
    pub(crate) async fn shard_counts(&self, queues_max: usize) -> Vec<(String, Counts)> {
        match &self.shards {
            Some(shards) => shards.counts(queues_max).await,
            None => Vec::new(),
        }
    }

    /// The health of each shard. Empty if the store is not sharded.
    pub(crate) fn shard_health(&self) -> Vec<ShardHealth> {
        self.shards.as_ref().map_or_else(Vec::new, |shards| shards.health())
    }

    /// Stops receives: new ones are refused, and waiting ones return without items.
    pub(crate) fn stop(&self) {
        self.stopping.send_replace(true);
        self.broker.stop();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }

    /// Completes when the server begins to stop. Long requests end then.
    pub(crate) fn stopped(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut stopping = self.stopping.subscribe();
        async move { drop(stopping.wait_for(|stopping| *stopping).await) }
    }

    /// Waits until all event streams have ended. A WebSocket outlives the connection task that the server waits for.
    pub(crate) async fn wait_for_followers(&self, time_max: Duration) {
        let no_followers = async {
            while self.broker.followers() > 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let _ = tokio::time::timeout(time_max, no_followers).await;
    }

    /// The time for display and token checks. The store itself decides what is due.
    pub(crate) fn now(&self) -> Timestamp {
        self.broker.now()
    }
}
