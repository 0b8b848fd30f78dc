//! Several PostgreSQL databases as the shards of one store.

use crate::config::display_address;
use crate::server::ServerError;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, Notify, mpsc};
use tokio::task::{JoinHandle, JoinSet};
use towline_broker::Broker;
use towline_postgres::{Address, Options, Postgres, Time};
use towline_shards::{LazyStore, Shards};
use towline_store::{BoxFuture, Store};

/// How often the server tries to reach a database that is down.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct ShardedPostgres {
    pub(crate) shards: Arc<Shards>,
    /// Receives each database when it has been opened.
    opened: Arc<Mutex<mpsc::UnboundedReceiver<Arc<Postgres>>>>,
}

impl ShardedPostgres {
    /// Opens the databases. One that is down joins later; if all are down, this is an error.
    pub(crate) async fn open(
        addresses: &[Address],
        options: &Options,
    ) -> Result<ShardedPostgres, ServerError> {
        let (announce, opened) = mpsc::unbounded_channel();
        let shards = addresses.iter().map(|address| {
            let (address, options, announce) = (address.clone(), options.clone(), announce.clone());
            let name = display_address(&address);
            let open = move || -> BoxFuture<'static, towline_store::Result<Arc<dyn Store>>> {
                let (address, options, announce) = (address.clone(), options.clone(), announce.clone());
                Box::pin(async move {
                    let store = Arc::new(Postgres::open(&address, options, Time::Database).await?);
                    // Fails if this process does not serve: then no task listens.
                    let _ = announce.send(store.clone());
                    Ok(store as Arc<dyn Store>)
                })
            };
            (name, Arc::new(LazyStore::new(open)) as Arc<dyn Store>)
        });
        let shards = Shards::new(shards.collect()).map_err(ServerError::Postgres)?;
        shards.reconcile().await.map_err(ServerError::Postgres)?;
        Ok(ShardedPostgres { shards: Arc::new(shards), opened: Arc::new(Mutex::new(opened)) })
    }

    /// Passes peer hints on to the broker and probes databases that are down, until the task is aborted.
    pub(crate) fn listen(&self, broker: &Broker) -> JoinHandle<()> {
        let (shards, opened, broker) = (self.shards.clone(), self.opened.clone(), broker.clone());
        tokio::spawn(async move {
            let mut opened = opened.lock().await;
            let mut tasks = JoinSet::new();
            // Separate tasks, because each step may take long.
            let back = Arc::new(Notify::new());
            tasks.spawn(probe(shards.clone(), back.clone()));
            tasks.spawn(tidy(shards, back));
            while let Some(store) = opened.recv().await {
                let broker = broker.clone();
                tasks.spawn(async move {
                    loop {
                        // The broker keeps polling: not every shard may be able to send hints.
                        broker.peer_hints(&store.peer_hints().await);
                    }
                });
            }
            while tasks.join_next().await.is_some() {}
        })
    }
}

/// Probes databases that are down, and notifies `back` when one is up again.
async fn probe(shards: Arc<Shards>, back: Arc<Notify>) {
    let mut probe = tokio::time::interval(PROBE_INTERVAL);
    loop {
        probe.tick().await;
        if shards.probe().await {
            back.notify_one();
        }
    }
}

/// Moves records to their own shard: peers may have written them elsewhere before they knew of a new database. Runs once after
/// the start, and again when a database is back.
async fn tidy(shards: Arc<Shards>, back: Arc<Notify>) {
    loop {
        shards.place_records().await;
        back.notified().await;
    }
}
