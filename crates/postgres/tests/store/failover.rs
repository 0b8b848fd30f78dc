//! The primary dies, a replica takes its place: a server whose address names both goes on, and has lost nothing.

use crate::harness::open;
use crate::killed::survives;
use crate::server::{Own, RUNTIME, connect};
use std::time::Duration;
use tokio_postgres::Config;
use tokio_postgres::config::TargetSessionAttrs;
use towline_postgres::Time;

/// What has not happened after so many tries, of 50 ms at least, never does.
const TRIES_MAX: usize = 1200;

fn until(config: &Config, question: &str) {
    let client = RUNTIME.block_on(connect(config)).unwrap();
    let yes = (0..TRIES_MAX).any(|_| {
        RUNTIME.block_on(client.query_one(question, &[])).unwrap().get::<_, bool>(0) || {
            std::thread::sleep(Duration::from_millis(50));
            false
        }
    });
    assert!(yes, "never: {question}");
}

fn tell(config: &Config, statements: &[&str]) {
    let client = RUNTIME.block_on(connect(config)).unwrap();
    for statement in statements {
        RUNTIME.block_on(client.batch_execute(statement)).unwrap();
    }
}

#[test]
fn what_was_answered_is_on_the_replica_that_takes_over() {
    let mut primary = Own::start();
    let replica = primary.replica("standby");
    // After it was copied: what takes over has nobody to wait for.
    tell(
        &primary.config(),
        &["ALTER SYSTEM SET synchronous_standby_names = 'standby'", "SELECT pg_reload_conf()"],
    );
    until(
        &primary.config(),
        "SELECT count(*) = 1 FROM pg_stat_replication WHERE application_name = 'standby' AND sync_state = 'sync'",
    );
    let mut both = Config::new();
    both.host_path(primary.directory()).host_path(replica.directory()).user("towline").dbname("postgres");
    both.target_session_attrs(TargetSessionAttrs::ReadWrite);
    let store = open(&both, "towline", Time::Database).unwrap();
    survives(&store, 1, || {
        primary.kill();
        tell(&replica.config(), &["SELECT pg_promote()"]);
        until(&replica.config(), "SELECT NOT pg_is_in_recovery()");
    });
}
