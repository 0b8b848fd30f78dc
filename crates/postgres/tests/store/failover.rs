//! Failover: the primary dies and its replica takes over. A server whose address names both continues and loses nothing.

use crate::harness::open;
use crate::killed::survives;
use crate::server::{Own, RUNTIME, connect};
use std::time::Duration;
use tokio_postgres::Config;
use tokio_postgres::config::TargetSessionAttrs;
use towline_postgres::Time;

/// A condition is checked this many times, at least 50 ms apart.
const TRIES_MAX: usize = 1200;

fn until(config: &Config, question: &str) {
    let client = RUNTIME.block_on(connect(config)).unwrap();
    let yes = (0..TRIES_MAX).any(|_| {
        RUNTIME.block_on(client.query_one(question, &[])).unwrap().get::<_, bool>(0) || {
            std::thread::sleep(Duration::from_millis(50));
            false
        }
    });
    assert!(yes, "it never became true: {question}");
}

fn execute(config: &Config, statements: &[&str]) {
    let client = RUNTIME.block_on(connect(config)).unwrap();
    for statement in statements {
        RUNTIME.block_on(client.batch_execute(statement)).unwrap();
    }
}

#[test]
fn answered_operations_are_on_the_replica_that_takes_over() {
    let mut primary = Own::start();
    let replica = primary.replica("standby");
    // Set after the copy, so that the replica itself waits for no standby when it takes over.
    execute(
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
        execute(&replica.config(), &["SELECT pg_promote()"]);
        until(&replica.config(), "SELECT NOT pg_is_in_recovery()");
    });
}
