//! Which store is behind the server.

use crate::config::{Settings, StoreChoice, shown};
use crate::databases::{Databases, pass_on};
use crate::server::ServerError;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use towline_broker::{Broker, Sharing, entropy};
use towline_embedded::{Embedded, Options};
use towline_postgres::{Address, Migrated, Postgres, SchemaVersion, Time};
use towline_shards::Shards;
use towline_store::{Clock, Store};

/// How often a server asks what others have brought for those who wait.
const ASK_EVERY: Duration = Duration::from_millis(500);

fn postgres_options(settings: &Settings) -> towline_postgres::Options {
    towline_postgres::Options { migrate: settings.store_migrate, ..towline_postgres::Options::default() }
}

/// A database whose schema is looked at or brought up to date, without serving anything.
#[derive(Debug)]
pub struct Schema<'a> {
    address: &'a Address,
    options: towline_postgres::Options,
}

impl Schema<'_> {
    /// Of each database; the embedded store has none.
    #[must_use]
    pub fn of(settings: &Settings) -> Vec<Schema<'_>> {
        match &settings.store {
            StoreChoice::Embedded => Vec::new(),
            StoreChoice::Postgres(addresses) => {
                let of = |address| Schema { address, options: postgres_options(settings) };
                addresses.iter().map(of).collect()
            }
        }
    }

    /// Which database it is in, for people.
    #[must_use]
    pub fn database(&self) -> String {
        shown(self.address)
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.options.schema
    }

    pub async fn version(&self) -> Result<SchemaVersion, ServerError> {
        towline_postgres::schema_version(self.address, &self.options).await.map_err(ServerError::Postgres)
    }

    pub async fn migrate(&self) -> Result<Migrated, ServerError> {
        towline_postgres::migrate(self.address, &self.options).await.map_err(ServerError::Postgres)
    }
}

#[derive(Debug)]
pub(crate) enum Backend {
    Embedded(Arc<Embedded>),
    Postgres(Arc<Postgres>),
    Several(Databases),
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
                    return Ok(Backend::Several(Databases::open(addresses, &options).await?));
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
            Backend::Several(databases) => databases.shards.clone(),
        }
    }

    pub(crate) fn embedded(&self) -> Option<Arc<Embedded>> {
        match self {
            Backend::Embedded(store) => Some(store.clone()),
            Backend::Postgres(_) | Backend::Several(_) => None,
        }
    }

    pub(crate) fn shards(&self) -> Option<Arc<Shards>> {
        match self {
            Backend::Several(databases) => Some(databases.shards.clone()),
            Backend::Embedded(_) | Backend::Postgres(_) => None,
        }
    }

    pub(crate) fn sharing(&self) -> Sharing {
        match self {
            Backend::Embedded(_) => Sharing::Alone,
            Backend::Postgres(_) | Backend::Several(_) => Sharing::Shared { poll_every: ASK_EVERY },
        }
    }

    /// Passes on what other servers tell, until it is aborted.
    pub(crate) fn listen(&self, broker: &Broker) -> Option<JoinHandle<()>> {
        let store = match self {
            Backend::Embedded(_) => return None,
            Backend::Postgres(store) => store.clone(),
            Backend::Several(databases) => return Some(databases.listen(broker)),
        };
        let broker = broker.clone();
        Some(tokio::spawn(async move {
            loop {
                let heard = store.peer_hints().await;
                broker.peers_heard(heard.hears);
                pass_on(&broker, &heard);
            }
        }))
    }

    /// Closes it, which may block: dropping the embedded store syncs it. Tasks of cut connections may hold it a moment
    /// longer. Whether it is closed.
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
