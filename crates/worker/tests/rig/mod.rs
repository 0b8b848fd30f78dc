//! The backends that are shipped, each on a clock of the test's own, and gone with the test.

#![allow(dead_code, reason = "each test binary uses what it needs")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tokio::sync::oneshot;
use towline::ports::Queue;
use towline::{Backend, Embedded, Memory, Postgres, Server, VirtualClock, memory::MemoryQueue};
use towline_domain::Timestamp;
use towline_postgres::{Options, Time};
use towline_server::Settings;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Memory,
    Embedded,
    Server,
    Postgres,
}

/// The store's authority on time is the test's.
struct StoreClock(Arc<VirtualClock>);

impl towline_store::Clock for StoreClock {
    fn now(&self) -> Timestamp {
        Timestamp(towline::Clock::now(&*self.0).0)
    }
}

pub struct Rig {
    pub backend: Backend,
    clock: Arc<VirtualClock>,
    more: More,
}

/// What makes further queues, and ends with the rig.
#[expect(clippy::large_enum_variant, reason = "there is one at a time")]
enum More {
    Memory(Memory),
    Embedded(Embedded, #[expect(dead_code, reason = "it goes when this does")] tempfile::TempDir),
    Server(Server, Running),
    Postgres(Postgres),
}

impl Rig {
    pub async fn new(kind: Kind, clock: Arc<VirtualClock>) -> Rig {
        let time: Arc<dyn towline_store::Clock> = Arc::new(StoreClock(Arc::clone(&clock)));
        let more = match kind {
            Kind::Memory => More::Memory(Memory::with_clock(clock.clone())),
            Kind::Embedded => {
                let directory = tempfile::tempdir().unwrap();
                let options = towline_embedded::Options::default();
                More::Embedded(Embedded::open_with(directory.path(), options, time).unwrap(), directory)
            }
            Kind::Server => {
                let running = Running::start(time);
                More::Server(Server::at(&running.url).unwrap(), running)
            }
            Kind::Postgres => More::Postgres(postgres(time).await),
        };
        let backend: Backend = match &more {
            More::Memory(memory) => memory.clone().into(),
            More::Embedded(embedded, _) => embedded.clone().into(),
            More::Server(server, _) => server.clone().into(),
            More::Postgres(postgres) => postgres.clone().into(),
        };
        Rig { backend, clock, more }
    }

    /// Another queue of the same backend.
    pub fn queue(&self, name: &str) -> Arc<dyn Queue> {
        match &self.more {
            More::Memory(_) => Arc::new(MemoryQueue::new(self.clock.clone())),
            More::Embedded(embedded, _) => embedded.queue(name).unwrap(),
            More::Server(server, _) => server.queue(name).unwrap(),
            More::Postgres(postgres) => postgres.queue(name).unwrap(),
        }
    }
}

/// A schema of its own in the server that all tests share.
async fn postgres(time: Arc<dyn towline_store::Clock>) -> Postgres {
    static SCHEMAS: AtomicU32 = AtomicU32::new(0);
    let number = SCHEMAS.fetch_add(1, Ordering::SeqCst);
    let schema = format!("worker_{}_{number}", std::process::id());
    let address = tokio::task::spawn_blocking(address).await.unwrap();
    let options = Options { schema, workers: 1, readers: 1, ..Options::default() };
    Postgres::connect_with(&address, options, Time::Injected(Arc::clone(&time)), time).await.unwrap()
}

/// Of the server that all tests share.
pub fn address() -> String {
    let socket = crate::postgres::SHARED.socket();
    let directory = socket.parent().unwrap().display().to_string();
    format!("postgres://towline@{}/postgres", directory.replace('/', "%2F"))
}

/// A server in a thread of its own: it needs another kind of runtime than the tests have.
pub struct Running {
    pub url: String,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Running {
    pub fn start(time: Arc<dyn towline_store::Clock>) -> Running {
        let (tell, told) = std::sync::mpsc::channel();
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
                let opened = tokio::spawn(towline_server::Server::open_with_clock(settings, time));
                let server = opened.await.unwrap().unwrap();
                tell.send(server.url()).unwrap();
                tokio::spawn(server.run_until(async { drop(stopped.await) })).await.unwrap();
            });
        });
        Running { url: told.recv().unwrap(), stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}
