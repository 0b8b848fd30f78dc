//! The PostgreSQL store.

use super::{backend, queue};
use crate::error::Error;
use crate::ports::{Backend, PortError, Queue};
use std::sync::{Arc, Weak};
use std::time::Duration;
use towline_broker::store::{Clock, Store};
use towline_broker::{Broker, Sharing, SteadyClock};
use towline_postgres::{Address, Options, Time};

/// How often the broker asks for ready items of other processes while no notification arrives.
const ASK_EVERY: Duration = Duration::from_millis(500);
/// How often the listener checks whether the backend is still in use.
const CHECK_EVERY: Duration = Duration::from_secs(5);

/// A backend in a PostgreSQL database, for any number of processes.
///
/// Processes notify each other of ready items (`NOTIFY`), and poll in case a notification is lost. Messages that wake waiters
/// stay within a process; waiters of other processes look into the store four times a second.
#[derive(Debug, Clone)]
pub struct Postgres {
    broker: Broker,
    backend: Backend,
}

impl Postgres {
    /// Connects to the database at an address such as `postgres://user@host/database`, and creates or migrates the tables.
    pub async fn connect(address: &str) -> Result<Postgres, Error> {
        Postgres::connect_with(address, Options::default(), Time::Database, Arc::new(SteadyClock::new()))
            .await
    }

    /// Like [`Postgres::connect`], with other options and another clock.
    pub async fn connect_with(
        address: &str,
        options: Options,
        time: Time,
        clock: Arc<dyn Clock>,
    ) -> Result<Postgres, Error> {
        let address: Address = address
            .parse()
            .map_err(|error: towline_postgres::AddressError| Error::Configuration(error.to_string()))?;
        let store = towline_postgres::Postgres::open(&address, options, time).await;
        let store = Arc::new(store.map_err(|error| PortError::Unavailable(error.to_string()))?);
        let sharing = Sharing::Shared { poll_every: ASK_EVERY };
        let broker = Broker::start(Arc::clone(&store) as Arc<dyn Store>, clock, None, sharing);
        let backend = backend(&broker)?;
        tokio::spawn(pass_notifications(store, broker.clone(), Arc::downgrade(&backend.store)));
        Ok(Postgres { broker, backend })
    }

    /// Replaces the queue `work` as the queue of all kinds without their own. Unrelated systems that share a backend need their
    /// own queue and their own prefix ([`crate::Builder::prefix`]).
    pub fn on_queue(mut self, name: &str) -> Result<Postgres, Error> {
        self.backend.queue = self.queue(name)?;
        Ok(self)
    }

    /// A queue of the store for one kind of work ([`crate::Work::queue`]).
    pub fn queue(&self, name: &str) -> Result<Arc<dyn Queue>, Error> {
        queue(&self.broker, name)
    }
}

impl From<Postgres> for Backend {
    fn from(postgres: Postgres) -> Backend {
        postgres.backend
    }
}

/// Passes notifications of other processes to the broker, until the backend is dropped.
async fn pass_notifications(
    store: Arc<towline_postgres::Postgres>,
    broker: Broker,
    used: Weak<dyn crate::ports::Store>,
) {
    while used.strong_count() > 0 {
        let Ok(hints) = tokio::time::timeout(CHECK_EVERY, store.peer_hints()).await else { continue };
        broker.peers_heard(hints.listening);
        broker.peer_hints(&hints);
    }
    broker.stop();
}
