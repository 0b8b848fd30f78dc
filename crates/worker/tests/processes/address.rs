//! The address of a backend, by which several processes find it.

use crate::backends::{TestServer, postgres_address};
use std::sync::Arc;
use towline::{Backend, Embedded, Postgres, Server};
use towline_broker::SteadyClock;
use towline_postgres::{Options, Time};

/// Dropping it ends the backend.
pub struct BackendAddress {
    /// The kind of the backend, and where it is. Passed to the worker processes.
    pub text: String,
    _server: Option<TestServer>,
    _directory: Option<tempfile::TempDir>,
}

impl BackendAddress {
    pub async fn server() -> BackendAddress {
        let server = TestServer::start(Arc::new(SteadyClock::new()));
        BackendAddress { text: format!("server {}", server.url), _server: Some(server), _directory: None }
    }

    pub async fn postgres() -> BackendAddress {
        let address = tokio::task::spawn_blocking(postgres_address).await.unwrap();
        let schema = crate::postgres::new_schema();
        BackendAddress { text: format!("postgres {address} {schema}"), _server: None, _directory: None }
    }

    pub fn embedded() -> BackendAddress {
        let directory = tempfile::tempdir().unwrap();
        let text = format!("embedded {}", directory.path().display());
        BackendAddress { text, _server: None, _directory: Some(directory) }
    }

    pub async fn backend(&self) -> Backend {
        open(&self.text).await
    }
}

pub async fn open(address: &str) -> Backend {
    match address.split(' ').collect::<Vec<_>>()[..] {
        ["server", url] => Server::at(url).unwrap().into(),
        ["postgres", address, schema] => {
            let options = Options { schema: schema.to_owned(), workers: 1, readers: 2, ..Options::default() };
            let clock = Arc::new(SteadyClock::new());
            Postgres::connect_with(address, options, Time::Database, clock).await.unwrap().into()
        }
        ["embedded", directory] => Embedded::open(directory).unwrap().into(),
        _ => panic!("not the address of a backend: {address:?}"),
    }
}
