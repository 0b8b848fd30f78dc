//! The embedded store: a directory of this machine.

use super::{backend, queue};
use crate::error::Error;
use crate::ports::{Backend, PortError, Queue};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use towline_broker::store::{Clock, Store};
use towline_broker::{Broker, Sharing, SteadyClock, entropy};

/// A backend in a directory of this machine, for one process at a time.
///
/// Items, results and groups survive the process. Work that ran when the process died is delivered again, as its next attempt.
/// `towline serve` uses the same store: a server that is started on the directory continues with its items.
#[derive(Debug, Clone)]
pub struct Embedded {
    store: Arc<towline_embedded::Embedded>,
    broker: Broker,
    backend: Backend,
}

/// The store holds its records in memory. Only results and groups of this library are in it, so they may use this much.
const RECORDS_BYTES_MAX: usize = 1 << 30;

impl Embedded {
    /// Opens the store in this directory, or creates one. Must be called within a Tokio runtime.
    pub fn open(directory: impl AsRef<Path>) -> Result<Embedded, Error> {
        Embedded::open_with(
            directory.as_ref(),
            towline_embedded::Options { kv_bytes_max: RECORDS_BYTES_MAX, ..Default::default() },
            Arc::new(SteadyClock::new()),
        )
    }

    /// Like [`Embedded::open`], with other options and another clock.
    pub fn open_with(
        directory: &Path,
        options: towline_embedded::Options,
        clock: Arc<dyn Clock>,
    ) -> Result<Embedded, Error> {
        let options = towline_embedded::Options { salt: entropy::number(), ..options };
        let store = towline_embedded::Embedded::open(directory, options, Arc::clone(&clock))
            .map_err(|error| Error::Port(PortError::Refused(error.to_string())))?;
        let store = Arc::new(store);
        let broker = Broker::start(Arc::clone(&store) as Arc<dyn Store>, clock, None, Sharing::Alone);
        let backend = backend(&broker)?;
        Ok(Embedded { store, broker, backend })
    }

    /// Replaces the queue `work` as the queue of all kinds without their own. Unrelated systems that share a backend need their
    /// own queue and their own prefix ([`crate::Builder::prefix`]).
    pub fn on_queue(mut self, name: &str) -> Result<Embedded, Error> {
        self.backend.queue = self.queue(name)?;
        Ok(self)
    }

    /// A queue of the store for one kind of work ([`crate::Work::queue`]).
    pub fn queue(&self, name: &str) -> Result<Arc<dyn Queue>, Error> {
        queue(&self.broker, name)
    }

    /// Closes the store, so that another process can open it. Stop and drop all systems on it before. Returns `false` if the store
    /// is still in use after `limit`.
    pub async fn close(self, limit: Duration) -> bool {
        let Embedded { store, broker, backend } = self;
        broker.stop();
        drop((broker, backend));
        let last = async {
            let mut store = store;
            loop {
                match Arc::try_unwrap(store) {
                    Ok(last) => return last,
                    // Calls that are under way still use the store.
                    Err(shared) => store = shared,
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        match tokio::time::timeout(limit, last).await {
            Ok(last) => {
                drop(last);
                true
            }
            Err(_) => false,
        }
    }
}

impl From<Embedded> for Backend {
    fn from(embedded: Embedded) -> Backend {
        embedded.backend
    }
}
