//! A worker process: this test binary, started again.

use crate::DAY;
use crate::place::{self, Place};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use towline::ports::{Count, Store};
use towline::{Context, Doer, Event, Options, Outcome, Retry, Schedule, System, Work, elsewhere, work};

const PLACE: &str = "TOWLINE_TEST_PLACE";
const NAME: &str = "TOWLINE_TEST_NAME";
const ORDER: &str = "TOWLINE_TEST_ORDER";
/// Work of a process that died is given to another after this.
const VISIBILITY: Duration = Duration::from_secs(2);

/// The kinds of work that all processes know.
pub struct Works {
    /// Tells by whom it was done.
    pub who: Work<(), String>,
    /// So many leaves, which are held until somebody says "go".
    pub tree: Work<u32, ()>,
    pub leaf: Work<u32, u32>,
    pub deadly: Work<(), ()>,
    pub tick: Work<u64, ()>,
}

impl Works {
    pub fn elsewhere() -> Works {
        Works {
            who: elsewhere("who"),
            tree: elsewhere("tree"),
            leaf: elsewhere("leaf"),
            deadly: elsewhere("deadly"),
            tick: elsewhere("tick"),
        }
    }

    fn here(name: &str, store: &Arc<dyn Store>) -> Works {
        let leaf = {
            let (store, name) = (Arc::clone(store), name.to_owned());
            work("leaf", move |n: u32, context: Context| {
                let (store, name) = (Arc::clone(&store), name.clone());
                async move {
                    count(&*store, &format!("held by {name}")).await;
                    say(&format!("holds {n}"));
                    while store.get("go").await?.is_none() {
                        tokio::time::sleep(Duration::from_millis(10)).await;
                    }
                    say(&format!("leaf at attempt {}", context.attempt()));
                    Ok(Outcome::Append(n))
                }
            })
        };
        let tree = {
            let leaf = leaf.clone();
            work("tree", move |count: u32, _| {
                let jobs: Vec<_> = (0..count).map(|n| leaf.of(n)).collect();
                async move { Ok(Outcome::<()>::queue(jobs)) }
            })
        };
        let who = {
            let (store, name) = (Arc::clone(store), name.to_owned());
            work("who", move |(): (), _| {
                let (store, name) = (Arc::clone(&store), name.clone());
                async move {
                    count(&*store, "ran").await;
                    // Work that takes a moment, so that the other one has its turn.
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
        Works {
            // Four at a time in each process: neither of two can have all of them.
            who: who.doer(Doer::balanced(4)),
            tree,
            leaf: leaf.options(many).doer(Doer::balanced(8)),
            deadly,
            tick,
        }
    }
}

async fn count(store: &dyn Store, key: &str) -> i64 {
    store.increment(key, Count { by: 1, once: None }, DAY).await.unwrap_or_default()
}

fn say(words: &str) {
    let mut out = std::io::stdout().lock();
    // Whoever listened is gone, and this process with it in a moment.
    let _ = writeln!(out, "\nsays {words}");
    let _ = out.flush();
}

/// In the process itself: works until its parent is gone.
pub fn run() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let backend = place::open(&std::env::var(PLACE).unwrap()).await;
        let name = std::env::var(NAME).unwrap();
        let works = Works::here(&name, &backend.store);
        let store = Arc::clone(&backend.store);
        let tick = works.tick.clone();
        let system = System::on(backend)
            .visibility(VISIBILITY)
            .work(&works.who)
            .work(&works.tree)
            .work(&works.leaf)
            .work(&works.deadly)
            .work(&works.tick)
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
                let options = Options::new().dedupe_key("the tree");
                system.queue(works.tree.of(leaves.parse().unwrap()).options(options)).await.unwrap();
            }
            ["let", "go"] => {
                let store = &system.backend().store;
                store.set("go", "1".to_owned(), DAY).await.unwrap();
                let handle = system.handle(&works.tree, "tree:the tree");
                let all: Vec<u32> = handle.group_all().await.unwrap();
                say(if all.len() == 5 { "group done" } else { "group is not whole" });
            }
            _ => {}
        }
        // It ends when whoever started it does, however that ends.
        tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await.unwrap().ok();
        std::process::exit(0);
    });
}

/// Killed when it is dropped.
#[derive(Debug)]
pub struct Worker {
    child: Child,
    said: Arc<Mutex<Vec<String>>>,
}

impl Worker {
    pub fn start(place: &Place, name: &str) -> Worker {
        Worker::start_with(place, name, "")
    }

    pub fn start_with(place: &Place, name: &str, order: &str) -> Worker {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "worker_process", "--nocapture"])
            .env(PLACE, &place.words)
            .env(NAME, name)
            .env(ORDER, order)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let said: Arc<Mutex<Vec<String>>> = Arc::default();
        let (out, heard) = (child.stdout.take().unwrap(), Arc::clone(&said));
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                if let Some(words) = line.strip_prefix("says ") {
                    heard.lock().unwrap().push(words.to_owned());
                }
            }
        });
        Worker { child, said }
    }

    /// How often it said something that begins so.
    pub fn said(&self, words: &str) -> usize {
        self.said.lock().unwrap().iter().filter(|said| said.starts_with(words)).count()
    }

    pub async fn died(&mut self) {
        while self.child.try_wait().unwrap().is_none() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // SIGKILL: it has no time for anything.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
