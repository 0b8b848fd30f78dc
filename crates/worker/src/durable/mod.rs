//! The three ports on a Towline store in this process, through the broker: what an embedded store and PostgreSQL share.
//!
//! A push is a submit, a pop a receive, and each way to end a lease one settle: whatever dies, it happened or it did not.
//! Items carry what the ports promise with them (as many retries as there can be, and how long a key is remembered), so
//! that the queue they are in may have any policy.

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
use towline_broker::store::StoreError;
use towline_domain::{Millis, QueueName, Refusal};

/// The queue, unless another is named.
const QUEUE: &str = "work";

/// What an answer that is no answer comes to.
fn unavailable(error: StoreError) -> PortError {
    PortError::Unavailable(error.to_string())
}

fn refused(refusal: &Refusal) -> PortError {
    match refusal {
        Refusal::LeaseLost { .. }
        | Refusal::AlreadySettled { .. }
        | Refusal::ItemNotFound { .. }
        | Refusal::WrongState { .. } => PortError::LeaseLost,
        Refusal::StoreUnavailable { .. }
        | Refusal::QueueFull { .. }
        | Refusal::StoreFull { .. }
        | Refusal::DiskFull { .. } => PortError::Unavailable(refusal.to_string()),
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
