//! The state that all routes share.

use crate::auth::Auth;
use crate::backend::Backend;
use crate::config::Settings;
use crate::metrics::Metrics;
use crate::request::BodyRoom;
use crate::traces::Traces;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use towline_broker::Broker;
use towline_domain::Timestamp;
use towline_embedded::Embedded;
use towline_shards::{ShardHealth, Shards};

/// Clones share the state.
#[derive(Clone)]
pub(crate) struct App(Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) broker: Broker,
    pub(crate) body_bytes_max: usize,
    pub(crate) body_room: Arc<BodyRoom>,
    /// The names that a request may give for this server, besides IP addresses and `localhost`. `None`: any.
    pub(crate) hosts: Option<Vec<String>>,
    /// Whether this server itself terminates TLS.
    pub(crate) tls: bool,
    pub(crate) auth: Auth,
    pub(crate) metrics: Metrics,
    /// `None` if no collector is configured.
    pub(crate) traces: Option<Traces>,
    /// For metrics only. Everything else goes through the broker.
    embedded: Option<Arc<Embedded>>,
    /// For their health only.
    shards: Option<Arc<Shards>>,
    stopping: watch::Sender<bool>,
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
        backend: &Backend,
        metrics: Metrics,
        traces: Option<Traces>,
        auth: Auth,
        settings: &Settings,
    ) -> App {
        App(Arc::new(Inner {
            broker,
            body_bytes_max: settings.body_bytes_max,
            body_room: BodyRoom::new(settings.bodies_bytes_max),
            hosts: (!settings.requires_tokens()).then(|| settings.hosts.clone()),
            tls: settings.tls_files().is_some(),
            auth,
            metrics,
            traces,
            embedded: backend.embedded(),
            shards: backend.shards(),
            stopping: watch::Sender::new(false),
        }))
    }

    pub(crate) fn embedded(&self) -> Option<&Embedded> {
        self.embedded.as_deref()
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
