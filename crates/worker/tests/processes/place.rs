//! A backend that processes find by its address.

use crate::rig::{Running, address};
use std::sync::Arc;
use towline::{Backend, Embedded, Postgres, Server};
use towline_broker::SteadyClock;
use towline_postgres::{Options, Time};

/// Gone with whoever made it.
pub struct Place {
    /// How a process is told: the kind, and where it is.
    pub words: String,
    _server: Option<Running>,
    _directory: Option<tempfile::TempDir>,
}

impl Place {
    pub async fn server() -> Place {
        let running = Running::start(Arc::new(SteadyClock::new()));
        Place { words: format!("server {}", running.url), _server: Some(running), _directory: None }
    }

    pub async fn postgres() -> Place {
        let address = tokio::task::spawn_blocking(address).await.unwrap();
        let schema = format!("processes_{}", std::process::id());
        Place { words: format!("postgres {address} {schema}"), _server: None, _directory: None }
    }

    pub fn embedded() -> Place {
        let directory = tempfile::tempdir().unwrap();
        let words = format!("embedded {}", directory.path().display());
        Place { words, _server: None, _directory: Some(directory) }
    }

    pub async fn backend(&self) -> Backend {
        open(&self.words).await
    }
}

pub async fn open(words: &str) -> Backend {
    match words.split(' ').collect::<Vec<_>>()[..] {
        ["server", url] => Server::at(url).unwrap().into(),
        ["postgres", address, schema] => {
            let options = Options { schema: schema.to_owned(), workers: 1, readers: 2, ..Options::default() };
            let clock = Arc::new(SteadyClock::new());
            Postgres::connect_with(address, options, Time::Database, clock).await.unwrap().into()
        }
        ["embedded", directory] => Embedded::open(directory).unwrap().into(),
        _ => panic!("no backend is at {words:?}"),
    }
}
