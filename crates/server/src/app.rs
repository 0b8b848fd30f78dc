//! What every route works with.

use crate::auth::Auth;
use crate::backend::Backend;
use crate::config::Settings;
use crate::metrics::Metrics;
use crate::traces::Traces;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, watch};
use towline_broker::Broker;
use towline_domain::Timestamp;
use towline_embedded::Embedded;
use towline_shards::{ShardHealth, Shards};

/// Room for request bodies is counted in pieces of this size.
pub(crate) const ROOM_BYTES: usize = 1024;

/// Clones share everything.
#[derive(Clone)]
pub(crate) struct App(Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) broker: Broker,
    pub(crate) body_bytes_max: usize,
    /// For bodies, in pieces of [`ROOM_BYTES`].
    pub(crate) room: Arc<Semaphore>,
    pub(crate) room_pieces: usize,
    /// Only these may be named as the host: a page elsewhere that had its name point here is told no.
    pub(crate) loopback_only: bool,
    /// Whether connections are encrypted here, and not by somebody in between.
    pub(crate) tls: bool,
    pub(crate) auth: Auth,
    pub(crate) metrics: Metrics,
    /// Only where a collector is configured.
    pub(crate) traces: Option<Traces>,
    /// For its figures; all else goes by way of the broker.
    embedded: Option<Arc<Embedded>>,
    /// For their health.
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
        let room_pieces = settings.bodies_bytes_max / ROOM_BYTES;
        App(Arc::new(Inner {
            broker,
            body_bytes_max: settings.body_bytes_max,
            room: Arc::new(Semaphore::new(room_pieces)),
            room_pieces,
            loopback_only: settings.listen.ip().is_loopback(),
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

    /// How each of several databases is; empty if there is one store.
    pub(crate) fn shards(&self) -> Vec<ShardHealth> {
        self.shards.as_ref().map_or_else(Vec::new, |shards| shards.health())
    }

    /// Receives are refused from now on, and those that wait are let go.
    pub(crate) fn stop(&self) {
        self.stopping.send_replace(true);
        self.broker.stop();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }

    /// Ready when the server is told to stop: for calls that would go on for long.
    pub(crate) fn stopped(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut stopping = self.stopping.subscribe();
        async move { drop(stopping.wait_for(|stopping| *stopping).await) }
    }

    /// Waits until nobody follows what happens: a WebSocket is no part of its connection any more.
    pub(crate) async fn unfollowed(&self, at_most: Duration) {
        let nobody = async {
            while self.broker.followers() > 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let _ = tokio::time::timeout(at_most, nobody).await;
    }

    /// For telling scheduled items from ready ones; the store has the last word on what is due.
    pub(crate) fn now(&self) -> Timestamp {
        self.broker.now()
    }
}
