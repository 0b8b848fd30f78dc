//! The connection is lost during a commit: the store finds out whether the commit took place, and each caller gets the right
//! answer.

use crate::calls::*;
use crate::harness::{new_schema, open};
use crate::server::{RUNTIME, SHARED};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio_postgres::Config;
use towline_domain::ItemState;
use towline_domain::Policy;
use towline_postgres::{Postgres, Time};
use towline_store::Reply;

/// A commit on the wire: a simple query with one word.
const COMMIT: &[u8] = b"Q\0\0\0\x0bCOMMIT\0";

#[derive(Debug, Clone, Copy, PartialEq)]
enum Cut {
    /// The commit does not reach PostgreSQL.
    Before,
    /// PostgreSQL commits, but its answer does not reach the store.
    After,
}

/// A proxy between the store and PostgreSQL. When armed, it cuts the next connection that commits.
struct Proxy {
    directory: TempDir,
    armed: Arc<AtomicBool>,
    cuts: Arc<AtomicUsize>,
}

impl Proxy {
    fn start(cut: Cut) -> Proxy {
        let directory = tempfile::tempdir().unwrap();
        let (armed, cuts) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let _inside = RUNTIME.enter();
        let listener = UnixListener::bind(directory.path().join(".s.PGSQL.5432")).unwrap();
        let server = SHARED.socket();
        let (arm, count) = (armed.clone(), cuts.clone());
        RUNTIME.spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = UnixStream::connect(&server).await.unwrap();
                tokio::spawn(relay(client, server, cut, arm.clone(), count.clone()));
            }
        });
        Proxy { directory, armed, cuts }
    }

    fn config(&self) -> Config {
        let mut config = Config::new();
        config.host_path(self.directory.path()).user("towline").dbname("postgres");
        config
    }

    /// Runs `act` while the next commit is cut, and checks that one was.
    fn cut<T>(&self, act: impl FnOnce() -> T) -> T {
        let before = self.cuts.load(Ordering::SeqCst);
        self.armed.store(true, Ordering::SeqCst);
        let result = act();
        assert_eq!(self.cuts.load(Ordering::SeqCst), before + 1, "a commit was cut");
        result
    }
}

async fn relay(
    mut client: UnixStream,
    mut server: UnixStream,
    cut: Cut,
    armed: Arc<AtomicBool>,
    cuts: Arc<AtomicUsize>,
) {
    let (mut asked, mut said) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    loop {
        tokio::select! {
            read = client.read(&mut asked) => {
                let Ok(length @ 1..) = read else { return };
                let asked = &asked[..length];
                let commit = asked.windows(COMMIT.len()).position(|window| window == COMMIT);
                match commit.filter(|_| armed.swap(false, Ordering::SeqCst)) {
                    None => server.write_all(asked).await.unwrap(),
                    Some(at) => {
                        cuts.fetch_add(1, Ordering::SeqCst);
                        match cut {
                            Cut::Before => server.write_all(&asked[..at]).await.unwrap(),
                            Cut::After => {
                                server.write_all(asked).await.unwrap();
                                discard_until_committed(&mut server).await;
                            }
                        }
                        return;
                    }
                }
            }
            read = server.read(&mut said) => {
                let Ok(length @ 1..) = read else { return };
                if client.write_all(&said[..length]).await.is_err() {
                    return;
                }
            }
        }
    }
}

async fn discard_until_committed(server: &mut UnixStream) {
    let mut received = Vec::new();
    while !received.windows(8).any(|window| window == b"\x0bCOMMIT\0") {
        assert_ne!(server.read_buf(&mut received).await.unwrap(), 0, "the server answers the commit");
    }
}

fn opened(cut: Cut) -> (Proxy, Postgres) {
    let proxy = Proxy::start(cut);
    let store = open(&proxy.config(), &new_schema(), Time::Database).unwrap();
    run(&store, create("jobs", Policy::default())).unwrap();
    (proxy, store)
}

fn each_step_happens_once(cut: Cut) {
    let (proxy, store) = opened(cut);
    let answer = proxy.cut(|| run(&store, submit("jobs", "work")));
    let (id, created) = submitted(&answer);
    assert!(created);
    assert_eq!(counts(&store, "jobs").total(), 1, "submitted once");

    let answer = proxy.cut(|| run(&store, receive_call("jobs", 10, seed(0, 0))));
    let Ok(Reply::Received(received)) = &answer else { panic!("received: {answer:?}") };
    let [item] = &received.items[..] else { panic!("one item: {received:?}") };
    assert_eq!((item.head.id, item.head.deliveries), (id, 1));
    assert_eq!(item.fields.blob.as_deref(), Some(&b"work"[..]), "with its payload");

    let token = item.head.lease().unwrap().token;
    assert_eq!(proxy.cut(|| run(&store, lease(id, token, commit()))), left(ItemState::Completed));
    assert_eq!(counts(&store, "jobs").completed, 1);
    assert_eq!(proxy.cuts.load(Ordering::SeqCst), 3);
}

#[test]
fn a_commit_whose_answer_is_lost_is_answered_and_not_repeated() {
    each_step_happens_once(Cut::After);
}

#[test]
fn a_commit_that_did_not_arrive_is_tried_again() {
    each_step_happens_once(Cut::Before);
}
