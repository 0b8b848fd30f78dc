//! In a directory of this machine.

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
/// What is queued, and what is known of results and groups, survives the process; what it was at when it died is given out
/// again, one attempt on. It is the store that `towline serve` has: a server started on the directory goes on with it.
#[derive(Debug, Clone)]
pub struct Embedded {
    store: Arc<towline_embedded::Embedded>,
    broker: Broker,
    backend: Backend,
}

/// What is known of results and groups is in memory, and there is nobody else's in it.
const RECORDS_BYTES_MAX: usize = 1 << 30;

impl Embedded {
    /// Opens the store in this directory, or makes one. Must be called within a Tokio runtime.
    pub fn open(directory: impl AsRef<Path>) -> Result<Embedded, Error> {
        Embedded::open_with(
            directory.as_ref(),
            towline_embedded::Options { kv_bytes_max: RECORDS_BYTES_MAX, ..Default::default() },
            Arc::new(SteadyClock::new()),
        )
    }

    /// With other limits and durability, and another clock.
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

    /// All kinds of work that have no queue of their own are in this one, and not in `work`: systems that have nothing to do
    /// with each other share a backend so, and a prefix of their own ([`crate::Builder::prefix`]).
    pub fn on_queue(mut self, name: &str) -> Result<Embedded, Error> {
        self.backend.queue = self.queue(name)?;
        Ok(self)
    }

    /// A queue of its own for a kind of work ([`crate::Work::queue`]).
    pub fn queue(&self, name: &str) -> Result<Arc<dyn Queue>, Error> {
        queue(&self.broker, name)
    }

    /// Closes the store, so that another process may open it: `false` if somebody still works on it after `limit`. Systems on
    /// it must be stopped and dropped before.
    pub async fn close(self, limit: Duration) -> bool {
        let Embedded { store, broker, backend } = self;
        broker.stop();
        drop((broker, backend));
        let last = async {
            let mut store = store;
            loop {
                match Arc::try_unwrap(store) {
                    Ok(last) => return last,
                    // What was under way ends by itself.
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
