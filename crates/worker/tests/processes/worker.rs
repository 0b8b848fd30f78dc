//! A worker process: the test binary starts itself.

use crate::DAY;
use crate::address::{self, BackendAddress};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use towline::ports::{Increment, Store};
use towline::{
    ConcurrencyLimiter, Context, Event, Options, Outcome, Retry, Schedule, System, Work, remote, work,
};

const ADDRESS: &str = "TOWLINE_TEST_ADDRESS";
const NAME: &str = "TOWLINE_TEST_NAME";
const ORDER: &str = "TOWLINE_TEST_ORDER";
/// Another process gets the work of a killed process after this time.
const VISIBILITY: Duration = Duration::from_secs(2);

/// The kinds of work that all processes know.
pub struct Kinds {
    /// Returns the name of the process that ran it.
    pub whoami: Work<(), String>,
    /// Submits this many leaves. They run until the record `go` is set.
    pub tree: Work<u32, ()>,
    pub leaf: Work<u32, u32>,
    pub deadly: Work<(), ()>,
    pub tick: Work<u64, ()>,
}

impl Kinds {
    pub fn remote() -> Kinds {
        Kinds {
            whoami: remote("whoami"),
            tree: remote("tree"),
            leaf: remote("leaf"),
            deadly: remote("deadly"),
            tick: remote("tick"),
        }
    }

    fn here(name: &str, store: &Arc<dyn Store>) -> Kinds {
        let leaf = {
            let (store, name) = (Arc::clone(store), name.to_owned());
            work("leaf", move |n: u32, context: Context| {
                let (store, name) = (Arc::clone(&store), name.clone());
                async move {
                    count(&*store, &format!("running in {name}")).await;
                    print_line(&format!("running {n}"));
                    while store.get("go").await?.is_none() {
                        tokio::time::sleep(Duration::from_millis(10)).await;
                    }
                    print_line(&format!("leaf at attempt {}", context.attempt()));
                    Ok(Outcome::Append(n))
                }
            })
        };
        let tree = {
            let leaf = leaf.clone();
            work("tree", move |count: u32, _| {
                let jobs: Vec<_> = (0..count).map(|n| leaf.of(n)).collect();
                async move { Ok(Outcome::<()>::submit(jobs)) }
            })
        };
        let whoami = {
            let (store, name) = (Arc::clone(store), name.to_owned());
            work("whoami", move |(): (), _| {
                let (store, name) = (Arc::clone(&store), name.clone());
                async move {
                    count(&*store, "ran").await;
                    // It takes a moment, so that the other process gets some of the work.
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    Ok(Outcome::Result(name))
                }
            })
        };
        let tick = {
            let store = Arc::clone(store);
            work("tick", move |at: u64, _| {
                let store = Arc::clone(&store);
                async move {
                    let n = count(&*store, "ticks").await;
                    store.set(&format!("tick {n}"), at.to_string(), DAY).await?;
                    Ok(Outcome::Void)
                }
            })
        };
        let deadly = work("deadly", |(): (), _| async { std::process::abort() });
        let many = Options::new().retry(Retry::attempts(20));
        Kinds {
            // Four at a time in each process, so that no process can run all of them.
            whoami: whoami.concurrency(ConcurrencyLimiter::balanced(4)),
            tree,
            leaf: leaf.options(many).concurrency(ConcurrencyLimiter::balanced(8)),
            deadly,
            tick,
        }
    }
}

async fn count(store: &dyn Store, key: &str) -> i64 {
    store.increment(key, Increment { by: 1, once: None }, DAY).await.unwrap_or_default()
}

fn print_line(text: &str) {
    let mut out = std::io::stdout().lock();
    // An error means that the test has ended. This process will end as well.
    let _ = writeln!(out, "\nworker: {text}");
    let _ = out.flush();
}

/// Runs in the worker process, until the parent process ends.
pub fn run() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let backend = address::open(&std::env::var(ADDRESS).unwrap()).await;
        let name = std::env::var(NAME).unwrap();
        let kinds = Kinds::here(&name, &backend.store);
        let store = Arc::clone(&backend.store);
        let tick = kinds.tick.clone();
        let system = System::on(backend)
            .visibility_timeout(VISIBILITY)
            .work(&kinds.whoami)
            .work(&kinds.tree)
            .work(&kinds.leaf)
            .work(&kinds.deadly)
            .work(&kinds.tick)
            .schedule(Schedule::every("tick", Duration::from_secs(1), move |at| tick.of(at.0)))
            .on_event(move |event| {
                if let Event::GroupDone { group } = event {
                    let (store, group) = (Arc::clone(&store), group.clone());
                    tokio::spawn(async move {
                        count(&*store, &format!("done {group}")).await;
                        count(&*store, "groups done").await;
                    });
                }
            })
            .start()
            .unwrap();
        match std::env::var(ORDER).unwrap_or_default().split(' ').collect::<Vec<_>>()[..] {
            ["tree", leaves] => {
                let options = Options::new().idempotency_key("the tree");
                system.submit(kinds.tree.of(leaves.parse().unwrap()).options(options)).await.unwrap();
            }
            ["let", "go"] => {
                let store = &system.backend().store;
                store.set("go", "1".to_owned(), DAY).await.unwrap();
                let handle = system.handle(&kinds.tree, "tree:the tree");
                let all: Vec<u32> = handle.group_all().await.unwrap();
                print_line(if all.len() == 5 { "group done" } else { "group is incomplete" });
            }
            _ => {}
        }
        // Standard input ends when the parent process does, even if that is killed.
        tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await.unwrap().ok();
        std::process::exit(0);
    });
}

/// A running worker process. Dropping it kills the process.
#[derive(Debug)]
pub struct Worker {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Worker {
    pub fn start(address: &BackendAddress, name: &str) -> Worker {
        Worker::start_with(address, name, "")
    }

    pub fn start_with(address: &BackendAddress, name: &str, order: &str) -> Worker {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "worker_process", "--nocapture"])
            .env(ADDRESS, &address.text)
            .env(NAME, name)
            .env(ORDER, order)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines: Arc<Mutex<Vec<String>>> = Arc::default();
        let (out, printed) = (child.stdout.take().unwrap(), Arc::clone(&lines));
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                if let Some(text) = line.strip_prefix("worker: ") {
                    printed.lock().unwrap().push(text.to_owned());
                }
            }
        });
        Worker { child, lines }
    }

    /// How many lines the process printed that begin like this.
    pub fn printed(&self, prefix: &str) -> usize {
        self.lines.lock().unwrap().iter().filter(|line| line.starts_with(prefix)).count()
    }

    pub async fn died(&mut self) {
        while self.child.try_wait().unwrap().is_none() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // SIGKILL: the process cannot clean up.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
