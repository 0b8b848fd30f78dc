//! In a PostgreSQL database.

use super::{backend, queue};
use crate::error::Error;
use crate::ports::{Backend, PortError, Queue};
use std::sync::{Arc, Weak};
use std::time::Duration;
use towline_broker::store::{Clock, Store};
use towline_broker::{Broker, Sharing, SteadyClock};
use towline_postgres::{Address, Options, Time};

/// How often what others brought is asked for while nothing is heard of them.
const ASK_EVERY: Duration = Duration::from_millis(500);
/// How often whoever listens looks whether anybody is left to be told.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// A backend in a PostgreSQL database, for any number of processes.
///
/// What one process queues, another that waits is told of by `NOTIFY`, and finds out by asking if that is not heard. That
/// something has ended is told within a process only; waiters elsewhere see it when they look, four times a second.
#[derive(Debug, Clone)]
pub struct Postgres {
    broker: Broker,
    backend: Backend,
}

impl Postgres {
    /// Connects to the database at an address like `postgres://user@host/database`, and makes or upgrades the tables.
    pub async fn connect(address: &str) -> Result<Postgres, Error> {
        Postgres::connect_with(address, Options::default(), Time::Database, Arc::new(SteadyClock::new()))
            .await
    }

    /// With another schema or other numbers, and another clock.
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
        tokio::spawn(listen(store, broker.clone(), Arc::downgrade(&backend.store)));
        Ok(Postgres { broker, backend })
    }

    /// All kinds of work that have no queue of their own are in this one, and not in `work`: systems that have nothing to do
    /// with each other share a backend so, and a prefix of their own ([`crate::Builder::prefix`]).
    pub fn on_queue(mut self, name: &str) -> Result<Postgres, Error> {
        self.backend.queue = self.queue(name)?;
        Ok(self)
    }

    /// A queue of its own for a kind of work ([`crate::Work::queue`]).
    pub fn queue(&self, name: &str) -> Result<Arc<dyn Queue>, Error> {
        queue(&self.broker, name)
    }
}

impl From<Postgres> for Backend {
    fn from(postgres: Postgres) -> Backend {
        postgres.backend
    }
}

/// Passes on what others bring, until nobody is left who works on it.
async fn listen(store: Arc<towline_postgres::Postgres>, broker: Broker, used: Weak<dyn crate::ports::Store>) {
    while used.strong_count() > 0 {
        let Ok(heard) = tokio::time::timeout(LOOK_EVERY, store.peer_hints()).await else { continue };
        broker.peers_heard(heard.hears);
        for (queue, &count) in &heard.ready {
            broker.peer_hint(queue, count as usize);
        }
        if heard.anything {
            broker.peer_hints_missed();
        }
    }
    broker.stop();
}
