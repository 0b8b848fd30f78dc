//! Faults of the database: each one is a clear error, and the store works again when the fault is over.

use crate::calls::*;
use crate::harness::{new_schema, open};
use crate::server::{Own, PORT, RUNTIME, SHARED, connect};
use std::process::Command;
use std::time::Duration;
use towline_domain::ItemState;
use towline_domain::Policy;
use towline_domain::kv::KvCommand;
use towline_postgres::{Options, Postgres, Time};
use towline_store::{Operation, Store, StoreError};

fn cause_of<T: std::fmt::Debug>(result: towline_store::Result<T>) -> String {
    match result {
        Err(StoreError::Unavailable { cause }) => cause,
        other => panic!("expected an unavailable store, got {other:?}"),
    }
}

#[test]
fn a_statement_that_takes_too_long_fails_and_the_next_one_succeeds() {
    let (config, schema) = (SHARED.config(), new_schema());
    let options = Options { schema: schema.clone(), statement_timeout_ms: 300, ..Options::default() };
    let store = RUNTIME.block_on(Postgres::open(&config.clone().into(), options, Time::Database)).unwrap();
    run(&store, create("jobs", Policy::default())).unwrap();
    let other = RUNTIME.block_on(connect(&config)).unwrap();
    let hold = format!("BEGIN; LOCK TABLE {schema}.pages IN ACCESS EXCLUSIVE MODE");
    RUNTIME.block_on(other.batch_execute(&hold)).unwrap();
    let cause = cause_of(block_on(store.update(vec![submit("jobs", "late")])));
    assert!(cause.contains("timeout"), "{cause}");
    RUNTIME.block_on(other.batch_execute("COMMIT")).unwrap();
    assert!(submitted(&run(&store, submit("jobs", "in time"))).1);
    assert_eq!(counts(&store, "jobs").pending, 1, "the failed submit has no effect");
}

#[test]
fn a_database_without_free_connections_is_a_clear_error() {
    let settings = ["max_connections=5".to_owned(), "superuser_reserved_connections=0".to_owned()];
    let server = Own::start_tcp(&settings, &[], PORT);
    let config = server.config();
    let mut taken = Vec::new();
    // Take all connections.
    while let Ok(client) = RUNTIME.block_on(connect(&config)) {
        taken.push(client);
        assert!(taken.len() <= 5);
    }
    let cause = cause_of(open(&config, "towline", Time::Database));
    assert!(cause.contains("too many clients") && cause.contains("max_connections"), "{cause}");
    drop(taken);
    let opened = (0..600).any(|_| {
        open(&config, "towline", Time::Database).is_ok() || {
            std::thread::sleep(Duration::from_millis(50));
            false
        }
    });
    assert!(opened, "it does not open although connections are free again");
}

/// A small file system, unmounted when it is dropped.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount(megabytes: u32) -> Option<SmallDisk> {
        let directory = tempfile::tempdir().unwrap();
        let size = format!("size={megabytes}m");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "tmpfs"])
            .arg(directory.path())
            .status()
            .is_ok_and(|status| status.success());
        mounted.then_some(SmallDisk(directory))
    }

    fn resize(&self, megabytes: u32) {
        let size = format!("remount,size={megabytes}m");
        assert!(Command::new("mount").args(["-o", &size]).arg(self.0.path()).status().unwrap().success());
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_disk_is_reported_and_no_answered_submit_is_lost() {
    let Some(disk) = SmallDisk::mount(160) else {
        eprintln!("skipped: this user may not mount a tmpfs, which the test uses as a small disk");
        return;
    };
    // The WAL stays small, so that the tables fill the disk.
    let settings =
        ["max_wal_size=32MB".to_owned(), "min_wal_size=32MB".to_owned(), "wal_recycle=off".to_owned()];
    let mut server = Own::start_in(disk.0.path(), &settings, &[], PORT);
    let store = open(&server.config(), "towline", Time::Database).unwrap();
    run(&store, create("jobs", Policy::default())).unwrap();
    // Random, so that PostgreSQL cannot compress it.
    let mut noise = 0x9e37_79b9_7f4a_7c15_u64;
    let payload: String = std::iter::repeat_with(|| {
        noise ^= noise << 13;
        noise ^= noise >> 7;
        noise ^= noise << 17;
        format!("{noise:016x}")
    })
    .take(60_000)
    .collect();
    let mut answered = Vec::new();
    let mut fault = None;
    for _ in 0..400 {
        match block_on(store.update(vec![submit("jobs", &payload)])) {
            Ok(updated) => answered.push(submitted(&updated.answers[0]).0),
            Err(error) => {
                fault = Some(error);
                break;
            }
        }
    }
    // PostgreSQL stops if the WAL finds no space. The store is unavailable then.
    assert!(matches!(fault, Some(StoreError::Full { .. } | StoreError::Unavailable { .. })), "{fault:?}");
    assert!(!answered.is_empty());
    // Make space, and restart PostgreSQL in case it stopped.
    disk.resize(600);
    server.abort();
    server.start_again();
    let found = (0..600).find_map(|_| {
        let found = block_on(store.get(answered.clone(), towline_domain::FieldSet::NONE)).ok();
        if found.is_none() {
            std::thread::sleep(Duration::from_millis(50));
        }
        found
    });
    let found = found.expect("the store does not answer again");
    assert!(found.iter().all(Option::is_some), "an answered submit was lost");
    assert!(submitted(&run(&store, submit("jobs", "more"))).1);
}

#[test]
fn expired_records_are_removed_in_several_steps() {
    let (config, schema) = (SHARED.config(), new_schema());
    let store = open(&config, &schema, Time::Database).unwrap();
    let set = |n: usize, ttl| Operation::Kv {
        key: format!("key-{n}"),
        command: KvCommand::Set { value: "v".into(), ttl },
    };
    let short = Some(towline_domain::Millis(1));
    update(&store, (0..2500).map(|n| set(n, short)).collect());
    update(&store, vec![set(2500, None), set(2501, Some(towline_domain::Millis::days(1)))]);
    let client = RUNTIME.block_on(connect(&config)).unwrap();
    let left = || {
        let sql = format!("SELECT count(*) FROM {schema}.kv");
        RUNTIME.block_on(client.query_one(&sql, &[])).unwrap().get::<_, i64>(0)
    };
    let gone = (0..1200).any(|_| {
        left() == 2 || {
            std::thread::sleep(Duration::from_millis(50));
            false
        }
    });
    assert!(gone, "{} are left", left());
}

#[test]
fn an_item_without_its_payload_does_not_block_other_items() {
    let (config, schema) = (SHARED.config(), new_schema());
    let store = open(&config, &schema, Time::Database).unwrap();
    let policy = Policy { max_retries: 0, ..Policy::default() };
    run(&store, create("jobs", policy)).unwrap();
    // Three batches, so that each item has its own row of `payloads`.
    let ids: Vec<_> =
        ["one", "two", "three"].map(|text| submitted(&run(&store, submit("jobs", text))).0).into();
    let client = RUNTIME.block_on(connect(&config)).unwrap();
    let remove = format!(
        "DELETE FROM {schema}.payloads WHERE first_seq = (SELECT min(first_seq) + 1 FROM {schema}.payloads)"
    );
    assert_eq!(RUNTIME.block_on(client.execute(&remove, &[])).unwrap(), 1);
    let held = receive(&store, "jobs", 10, seed(0, 0));
    assert_eq!(held.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [ids[0], ids[2]]);
    for (id, token) in held {
        assert_eq!(run(&store, lease(id, token, commit())), left(ItemState::Completed));
    }
    assert_eq!(counts(&store, "jobs").processing, 1, "its lease is left to lapse");
    match block_on(store.get(vec![ids[1]], towline_domain::FieldSet::ALL)) {
        Err(StoreError::Corrupt { file, what }) => {
            assert!(file.contains("of pages") && what.contains("payloads"), "{file}: {what}");
        }
        other => panic!("expected damage, got {other:?}"),
    }
    assert_eq!(run(&store, Operation::Cancel { id: ids[1], reason: String::new() }), left(ItemState::Failed));
    run(&store, Operation::Delete { id: ids[1], force: false }).unwrap();
    assert_eq!(counts(&store, "jobs").total(), 2);
}

#[test]
fn a_read_that_finds_all_readers_busy_gets_a_clear_error() {
    let (config, schema) = (SHARED.config(), new_schema());
    let options =
        Options { schema: schema.clone(), readers: 1, statement_timeout_ms: 500, ..Options::default() };
    let store = RUNTIME.block_on(Postgres::open(&config.clone().into(), options, Time::Database)).unwrap();
    run(&store, create("jobs", Policy::default())).unwrap();
    let other = RUNTIME.block_on(connect(&config)).unwrap();
    let hold = format!("BEGIN; LOCK TABLE {schema}.queues IN ACCESS EXCLUSIVE MODE");
    RUNTIME.block_on(other.batch_execute(&hold)).unwrap();
    // The first read waits for the table, the others wait for its connection.
    let asked = || store.queue("jobs".parse().unwrap());
    let answers = block_on(futures::future::join_all((0..3).map(|_| asked())));
    RUNTIME.block_on(other.batch_execute("COMMIT")).unwrap();
    let causes: Vec<String> = answers.into_iter().map(cause_of).collect();
    assert!(
        causes.iter().any(|cause| cause.contains("all 1 connections for reading are busy")),
        "{causes:?}"
    );
    assert!(block_on(asked()).unwrap().is_some());
}
