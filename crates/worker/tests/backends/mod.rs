//! The included backends, each on the virtual clock of the test. They end with the test.

#![allow(dead_code, reason = "each test binary uses what it needs")]

use std::sync::Arc;
use tokio::sync::oneshot;
use towline::ports::Queue;
use towline::{Backend, Embedded, Memory, Postgres, Server, VirtualClock, memory::MemoryQueue};
use towline_domain::Timestamp;
use towline_postgres::{Options, Time};
use towline_server::Settings;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackendKind {
    Memory,
    Embedded,
    Server,
    Postgres,
}

/// The virtual clock as the clock of a store.
struct StoreClock(Arc<VirtualClock>);

impl towline_store::Clock for StoreClock {
    fn now(&self) -> Timestamp {
        Timestamp(towline::Clock::now(&*self.0).0)
    }
}

pub struct TestBackend {
    pub ports: Backend,
    clock: Arc<VirtualClock>,
    instance: Instance,
}

/// The backend itself: it opens further queues, and ends with the test.
#[expect(clippy::large_enum_variant, reason = "there is one at a time")]
enum Instance {
    Memory(Memory),
    Embedded(Embedded, #[expect(dead_code, reason = "dropping it removes the directory")] tempfile::TempDir),
    Server(Server, TestServer),
    Postgres(Postgres),
}

impl TestBackend {
    pub async fn new(kind: BackendKind, clock: Arc<VirtualClock>) -> TestBackend {
        let store_clock: Arc<dyn towline_store::Clock> = Arc::new(StoreClock(Arc::clone(&clock)));
        let instance = match kind {
            BackendKind::Memory => Instance::Memory(Memory::with_clock(clock.clone())),
            BackendKind::Embedded => {
                let directory = tempfile::tempdir().unwrap();
                let options = towline_embedded::Options::default();
                let embedded = Embedded::open_with(directory.path(), options, store_clock).unwrap();
                Instance::Embedded(embedded, directory)
            }
            BackendKind::Server => {
                let server = TestServer::start(store_clock);
                Instance::Server(Server::at(&server.url).unwrap(), server)
            }
            BackendKind::Postgres => Instance::Postgres(postgres(store_clock).await),
        };
        let ports: Backend = match &instance {
            Instance::Memory(memory) => memory.clone().into(),
            Instance::Embedded(embedded, _) => embedded.clone().into(),
            Instance::Server(server, _) => server.clone().into(),
            Instance::Postgres(postgres) => postgres.clone().into(),
        };
        TestBackend { ports, clock, instance }
    }

    /// Another queue of the same backend.
    pub fn queue(&self, name: &str) -> Arc<dyn Queue> {
        match &self.instance {
            Instance::Memory(_) => Arc::new(MemoryQueue::new(self.clock.clone())),
            Instance::Embedded(embedded, _) => embedded.queue(name).unwrap(),
            Instance::Server(server, _) => server.queue(name).unwrap(),
            Instance::Postgres(postgres) => postgres.queue(name).unwrap(),
        }
    }
}

/// Opens a new schema in the database that all tests share.
async fn postgres(clock: Arc<dyn towline_store::Clock>) -> Postgres {
    let address = tokio::task::spawn_blocking(postgres_address).await.unwrap();
    let schema = crate::postgres::new_schema();
    let options = Options { schema, workers: 1, readers: 1, ..Options::default() };
    Postgres::connect_with(&address, options, Time::Injected(Arc::clone(&clock)), clock).await.unwrap()
}

/// The address of the PostgreSQL server that all tests share.
pub fn postgres_address() -> String {
    let socket = crate::postgres::SHARED.socket();
    let directory = socket.parent().unwrap().display().to_string();
    format!("postgres://towline@{}/postgres", directory.replace('/', "%2F"))
}

/// A Towline server in its own thread: it needs a multi-threaded runtime, and the tests have one thread.
pub struct TestServer {
    pub url: String,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl TestServer {
    pub fn start(clock: Arc<dyn towline_store::Clock>) -> TestServer {
        let (url_sender, url) = std::sync::mpsc::channel();
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            let directory = tempfile::tempdir().unwrap();
            let settings = Settings {
                listen: "127.0.0.1:0".parse().unwrap(),
                data: directory.path().join("data"),
                ..Settings::default()
            };
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
            runtime.unwrap().block_on(async move {
                let opened = tokio::spawn(towline_server::Server::open_with_clock(settings, clock));
                let server = opened.await.unwrap().unwrap();
                url_sender.send(server.url()).unwrap();
                tokio::spawn(server.run_until(async { drop(stopped.await) })).await.unwrap();
            });
        });
        TestServer { url: url.recv().unwrap(), stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}
