//! The backends on a Towline store in this process, through the broker: the embedded store and PostgreSQL.
//!
//! Each call of a port is one operation of the store, so it happens in full or not at all. Every item overrides the policy of
//! its queue where the contract of the ports requires it: the most retries, and how long a key is remembered.

mod pubsub;
mod queue;
mod store;

#[cfg(feature = "embedded")]
pub use embedded::Embedded;
#[cfg(feature = "postgres")]
pub use postgres::Postgres;

#[cfg(feature = "embedded")]
mod embedded;
#[cfg(feature = "postgres")]
mod postgres;

use crate::error::Error;
use crate::ports::{Backend, PortError, Queue};
use pubsub::BrokerPubSub;
use queue::BrokerQueue;
use std::sync::Arc;
use std::time::Duration;
use store::BrokerStore;
use towline_broker::Broker;
use towline_broker::store::{OperationError, StoreError};
use towline_domain::{Millis, QueueName, Refusal};

/// The default name of the queue.
const QUEUE: &str = "work";

fn unavailable(error: StoreError) -> PortError {
    PortError::Unavailable(error.to_string())
}

fn port_error(error: &OperationError) -> PortError {
    let refusal = match error {
        OperationError::Refused(refusal) => refusal,
        OperationError::Failed(fault) => return PortError::Unavailable(fault.to_string()),
    };
    match refusal {
        Refusal::LeaseLost { .. }
        | Refusal::AlreadySettled { .. }
        | Refusal::ItemNotFound { .. }
        | Refusal::WrongState { .. } => PortError::LeaseLost,
        Refusal::QueueFull { .. } | Refusal::StoreFull { .. } | Refusal::DiskFull { .. } => {
            PortError::Unavailable(refusal.to_string())
        }
        _ => PortError::Refused(refusal.to_string()),
    }
}

fn millis(span: Duration) -> Millis {
    Millis(u64::try_from(span.as_millis()).unwrap_or(u64::MAX)).min(Millis::MAX)
}

fn queue_name(name: &str) -> Result<QueueName, Error> {
    name.parse().map_err(|error: towline_domain::name::NameError| Error::Configuration(error.to_string()))
}

fn backend(broker: &Broker) -> Result<Backend, Error> {
    Ok(Backend {
        queue: queue(broker, QUEUE)?,
        pubsub: Arc::new(BrokerPubSub(broker.clone())),
        store: Arc::new(BrokerStore(broker.clone())),
    })
}

fn queue(broker: &Broker, name: &str) -> Result<Arc<dyn Queue>, Error> {
    Ok(Arc::new(BrokerQueue::new(broker.clone(), queue_name(name)?)))
}
