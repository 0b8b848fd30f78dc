//! The three ports on a Towline server, over HTTP: the queue is its items, the store its records, and pub/sub a topic.

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

/// The queue and the topic, unless others are named.
const WORK: &str = "work";

/// A backend at a Towline server, for any number of processes on any machines.
#[derive(Debug, Clone)]
pub struct Server {
    client: Client,
    backend: Backend,
}

impl Server {
    /// At an address like `http://127.0.0.1:7420`. Must be called within a Tokio runtime.
    pub fn at(url: &str) -> Result<Server, Error> {
        let client = Client::new(url).map_err(|error| Error::Configuration(error.to_string()))?;
        Ok(Server::with(client))
    }

    /// With a client that shows a token or trusts a certificate of its own. The token needs `queue:work:admin`, `kv:*` and
    /// `topic:*`; if the queue is there, `submit`, `receive` and `read` on it will do, but for redriving.
    #[must_use]
    pub fn with(client: Client) -> Server {
        let backend = Backend {
            queue: Arc::new(ServerQueue::new(client.clone(), WORK.to_owned())),
            pubsub: Arc::new(TopicPubSub::new(client.clone(), WORK)),
            store: Arc::new(RecordStore(client.clone())),
        };
        Server { client, backend }
    }

    /// All kinds of work that have no queue of their own are in this one, and not in `work`: systems that have nothing to do
    /// with each other share a server so, and a prefix of their own ([`crate::Builder::prefix`]).
    pub fn on_queue(mut self, name: &str) -> Result<Server, Error> {
        self.backend.queue = self.queue(name)?;
        Ok(self)
    }

    /// A queue of its own for a kind of work ([`crate::Work::queue`]).
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

/// What a call comes to that was not carried out.
fn failed(error: &ClientError) -> PortError {
    let lost = matches!(error, ClientError::Unreachable { .. });
    match error.code() {
        Some(code) => refused(code, &error.to_string()),
        None if lost => PortError::Unavailable(error.to_string()),
        None => PortError::Refused(error.to_string()),
    }
}

fn refused(code: Code, words: &str) -> PortError {
    match code {
        Code::LeaseLost | Code::AlreadySettled | Code::ItemNotFound | Code::WrongState => {
            PortError::LeaseLost
        }
        _ if code.status() >= 500 || matches!(code, Code::QueueFull | Code::RateLimited) => {
            PortError::Unavailable(words.to_owned())
        }
        _ => PortError::Refused(words.to_owned()),
    }
}

/// Spans beyond what a server takes are as good as for ever.
fn span(span: Duration) -> Span {
    Span::from(span.min(Duration::from_millis(towline_domain::Millis::MAX.0)))
}
