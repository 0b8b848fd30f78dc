//! The store behind the server: embedded, one PostgreSQL database, or several databases as shards.

pub(crate) mod buffers;
mod schema;
mod sharded;

pub use schema::Schema;

use crate::config::{Settings, StoreChoice};
use crate::server::ServerError;
use schema::postgres_options;
use sharded::ShardedPostgres;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use towline_broker::{Broker, Sharing, entropy};
use towline_embedded::{Embedded, Options};
use towline_postgres::{Postgres, Time};
use towline_shards::Shards;
use towline_store::{Clock, Store};

/// How often a waiting receiver asks the database, in case a hint from a peer was lost.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(crate) enum Backend {
    Embedded(Arc<Embedded>),
    Postgres(Arc<Postgres>),
    Sharded(ShardedPostgres),
}

impl Backend {
    pub(crate) async fn open(settings: &Settings, clock: Arc<dyn Clock>) -> Result<Backend, ServerError> {
        match &settings.store {
            StoreChoice::Embedded => {
                let options = Options {
                    durability: settings.durability,
                    salt: entropy::number(),
                    ..Options::default()
                };
                let open = || Embedded::open(&settings.data, options, clock);
                Ok(Backend::Embedded(Arc::new(tokio::task::block_in_place(open)?)))
            }
            StoreChoice::Postgres(addresses) => {
                let options = postgres_options(settings);
                let [address] = &addresses[..] else {
                    return Ok(Backend::Sharded(ShardedPostgres::open(addresses, &options).await?));
                };
                let opened = Postgres::open(address, options, Time::Database).await;
                Ok(Backend::Postgres(Arc::new(opened.map_err(ServerError::Postgres)?)))
            }
        }
    }

    pub(crate) fn store(&self) -> Arc<dyn Store> {
        match self {
            Backend::Embedded(store) => store.clone(),
            Backend::Postgres(store) => store.clone(),
            Backend::Sharded(databases) => databases.shards.clone(),
        }
    }

    pub(crate) fn embedded(&self) -> Option<Arc<Embedded>> {
        match self {
            Backend::Embedded(store) => Some(store.clone()),
            Backend::Postgres(_) | Backend::Sharded(_) => None,
        }
    }

    pub(crate) fn shards(&self) -> Option<Arc<Shards>> {
        match self {
            Backend::Sharded(databases) => Some(databases.shards.clone()),
            Backend::Embedded(_) | Backend::Postgres(_) => None,
        }
    }

    pub(crate) fn sharing(&self) -> Sharing {
        match self {
            Backend::Embedded(_) => Sharing::Alone,
            Backend::Postgres(_) | Backend::Sharded(_) => Sharing::Shared { poll_every: POLL_INTERVAL },
        }
    }

    /// Passes peer hints on to the broker, until the task is aborted.
    pub(crate) fn listen(&self, broker: &Broker) -> Option<JoinHandle<()>> {
        let store = match self {
            Backend::Embedded(_) => return None,
            Backend::Postgres(store) => store.clone(),
            Backend::Sharded(databases) => return Some(databases.listen(broker)),
        };
        let broker = broker.clone();
        Some(tokio::spawn(async move {
            loop {
                let hints = store.peer_hints().await;
                broker.peers_heard(hints.listening);
                broker.peer_hints(&hints);
            }
        }))
    }

    /// Closes the store and returns whether it is closed. This may block, because dropping the embedded store syncs it.
    /// Tasks of cut connections may hold the store a moment longer.
    pub(crate) fn close(self) -> bool {
        let Backend::Embedded(store) = self else { return true };
        let mut store = Some(store);
        for _ in 0..100 {
            match store.take().map(Arc::try_unwrap) {
                Some(Err(shared)) => store = Some(shared),
                _ => return true,
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        false
    }
}
