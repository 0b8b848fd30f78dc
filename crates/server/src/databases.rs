//! Several databases behind one server, as the shards of one store.

use crate::config::shown;
use crate::server::ServerError;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, Notify, mpsc};
use tokio::task::{JoinHandle, JoinSet};
use towline_broker::Broker;
use towline_postgres::{Address, Options, PeerHints, Postgres, Time};
use towline_shards::{LazyStore, Shards};
use towline_store::{BoxFuture, Store};

/// How often a database that is gone is asked whether it is back.
const PROBE_EVERY: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Databases {
    pub(crate) shards: Arc<Shards>,
    /// Each when it is open.
    opened: Arc<Mutex<mpsc::UnboundedReceiver<Arc<Postgres>>>>,
}

impl Databases {
    /// One that is gone joins later; an error if none is there.
    pub(crate) async fn open(addresses: &[Address], options: &Options) -> Result<Databases, ServerError> {
        let (told, opened) = mpsc::unbounded_channel();
        let shards = addresses.iter().map(|address| {
            let (address, options, told) = (address.clone(), options.clone(), told.clone());
            let name = shown(&address);
            let open = move || -> BoxFuture<'static, towline_store::Result<Arc<dyn Store>>> {
                let (address, options, told) = (address.clone(), options.clone(), told.clone());
                Box::pin(async move {
                    let store = Arc::new(Postgres::open(&address, options, Time::Database).await?);
                    // Nobody listens if this is not a server.
                    let _ = told.send(store.clone());
                    Ok(store as Arc<dyn Store>)
                })
            };
            (name, Arc::new(LazyStore::new(open)) as Arc<dyn Store>)
        });
        let shards = Shards::new(shards.collect()).map_err(ServerError::Postgres)?;
        shards.reconcile().await.map_err(ServerError::Postgres)?;
        Ok(Databases { shards: Arc::new(shards), opened: Arc::new(Mutex::new(opened)) })
    }

    /// Passes on what other servers tell, and looks for databases that are gone, until it is aborted.
    pub(crate) fn listen(&self, broker: &Broker) -> JoinHandle<()> {
        let (shards, opened, broker) = (self.shards.clone(), self.opened.clone(), broker.clone());
        tokio::spawn(async move {
            let mut opened = opened.lock().await;
            let mut tasks = JoinSet::new();
            // Each may take long, and none waits for another.
            let back = Arc::new(Notify::new());
            tasks.spawn(probe(shards.clone(), back.clone()));
            tasks.spawn(tidy(shards, back));
            while let Some(store) = opened.recv().await {
                let broker = broker.clone();
                tasks.spawn(async move {
                    loop {
                        // Whether all of them can be heard is not known, so all are asked as well.
                        pass_on(&broker, &store.peer_hints().await);
                    }
                });
            }
            while tasks.join_next().await.is_some() {}
        })
    }
}

/// Looks for databases that are gone.
async fn probe(shards: Arc<Shards>, back: Arc<Notify>) {
    let mut probe = tokio::time::interval(PROBE_EVERY);
    loop {
        probe.tick().await;
        if shards.probe().await {
            back.notify_one();
        }
    }
}

/// Brings records home that other servers wrote before they knew of a new database: once after the start, and after one was gone.
async fn tidy(shards: Arc<Shards>, back: Arc<Notify>) {
    loop {
        shards.place_records().await;
        back.notified().await;
    }
}

/// Wakes those who wait for what was brought.
pub(crate) fn pass_on(broker: &Broker, heard: &PeerHints) {
    for (queue, &count) in &heard.ready {
        broker.peer_hint(queue, count as usize);
    }
    if heard.anything {
        broker.peer_hints_missed();
    }
}
