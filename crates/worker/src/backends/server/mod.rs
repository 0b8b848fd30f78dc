//! The backend on a Towline server, over HTTP. Its queue is a queue of the server, its store the key-value records, and its
//! pub/sub a topic.

mod pubsub;
mod queue;
mod store;

use crate::error::Error;
use crate::ports::{Backend, PortError, Queue};
use pubsub::TopicPubSub;
use queue::ServerQueue;
use std::sync::Arc;
use std::time::Duration;
use store::RecordStore;
use towline_api::{Client, ClientError, Code, Span};

/// The name of the topic, and the default name of the queue.
const WORK: &str = "work";

/// A backend on a Towline server, for any number of processes on any machines.
#[derive(Debug, Clone)]
pub struct Server {
    client: Client,
    backend: Backend,
}

impl Server {
    /// Uses the server at an address such as `http://127.0.0.1:7420`. Must be called within a Tokio runtime.
    pub fn at(url: &str) -> Result<Server, Error> {
        let client = Client::new(url).map_err(|error| Error::Configuration(error.to_string()))?;
        Ok(Server::with(client))
    }

    /// Uses a client with a token or a certificate. The token needs the scopes `queue:work:admin`, `kv:*:*` and `topic:*:*`. If the
    /// queue exists, `submit`, `receive` and `read` on it are enough for everything but redrives.
    #[must_use]
    pub fn with(client: Client) -> Server {
        let backend = Backend {
            queue: Arc::new(ServerQueue::new(client.clone(), WORK.to_owned())),
            pubsub: Arc::new(TopicPubSub::new(client.clone(), WORK)),
            store: Arc::new(RecordStore(client.clone())),
        };
        Server { client, backend }
    }

    /// Replaces the queue `work` as the queue of all kinds without their own. Unrelated systems that share a server need their
    /// own queue and their own prefix ([`crate::Builder::prefix`]).
    pub fn on_queue(mut self, name: &str) -> Result<Server, Error> {
        self.backend.queue = self.queue(name)?;
        Ok(self)
    }

    /// A queue of the server for one kind of work ([`crate::Work::queue`]).
    pub fn queue(&self, name: &str) -> Result<Arc<dyn Queue>, Error> {
        let name: towline_domain::QueueName = name
            .parse()
            .map_err(|error: towline_domain::name::NameError| Error::Configuration(error.to_string()))?;
        Ok(Arc::new(ServerQueue::new(self.client.clone(), name.to_string())))
    }
}

impl From<Server> for Backend {
    fn from(server: Server) -> Backend {
        server.backend
    }
}

/// The port error of a failed call.
fn port_error(error: &ClientError) -> PortError {
    let is_unreachable = matches!(error, ClientError::Unreachable { .. });
    match error.code() {
        Some(code) => port_error_of_code(code, &error.to_string()),
        None if is_unreachable => PortError::Unavailable(error.to_string()),
        None => PortError::Refused(error.to_string()),
    }
}

fn port_error_of_code(code: Code, message: &str) -> PortError {
    match code {
        Code::LeaseLost | Code::AlreadySettled | Code::ItemNotFound | Code::WrongState => {
            PortError::LeaseLost
        }
        _ if code.status() >= 500 || matches!(code, Code::QueueFull | Code::RateLimited) => {
            PortError::Unavailable(message.to_owned())
        }
        _ => PortError::Refused(message.to_owned()),
    }
}

/// Limits a span to the longest that a server accepts.
fn span(span: Duration) -> Span {
    Span::from(span.min(Duration::from_millis(towline_domain::Millis::MAX.0)))
}
