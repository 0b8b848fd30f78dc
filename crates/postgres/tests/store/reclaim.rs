//! Retention: terminal items are removed at their time, and the store frees their disk space without a vacuum.

use crate::calls::*;
use crate::harness::{new_schema, open};
use crate::server::{RUNTIME, SHARED, connect};
use bytes::Bytes;
use std::sync::Arc;
use towline_domain::{Fields, ItemState, Millis, Policy, Submission, Timestamp};
use towline_postgres::Time;
use towline_store::{ManualClock, Operation};

const FIELD: usize = 1 << 20;

/// How many bytes the tables with terminal items and payloads have on disk.
fn bytes_on_disk(schema: &str) -> i64 {
    RUNTIME.block_on(async {
        let client = connect(&SHARED.config()).await.unwrap();
        let sizes = "SELECT sum(pg_table_size(oid))::bigint FROM pg_class
                     WHERE relnamespace = $1::text::regnamespace AND relkind = 'r'
                       AND (relname LIKE 'terminal_pages%' OR relname LIKE 'payloads%')";
        client.query_one(sizes, &[&schema]).await.unwrap().get(0)
    })
}

fn heavy(queue: &str) -> Operation {
    let blob = Bytes::from((0..FIELD).map(|n| (n * n % 251) as u8).collect::<Vec<_>>());
    let fields = Fields { blob: Some(blob), ..Fields::default() };
    let submission = Submission { fields, ..Submission::default() };
    Operation::Submit { queue: queue.parse().unwrap(), submission: Box::new(submission) }
}

#[test]
fn removed_items_free_their_disk_space() {
    let schema = new_schema();
    let clock = Arc::new(ManualClock::new(Timestamp(1_800_000_000_000)));
    let store = open(&SHARED.config(), &schema, Time::Injected(clock.clone())).unwrap();
    let ttl = Millis::hours(1);
    run(&store, create("jobs", Policy { completed_ttl: Some(ttl), ..Policy::default() })).unwrap();
    run(&store, create("slow", Policy::default())).unwrap();
    let (waits, _) = submitted(&run(&store, submit("slow", "still there")));
    // More than fits into one partition of `payloads`.
    for round in 0..9 {
        assert!(update(&store, (0..8).map(|_| heavy("jobs")).collect()).iter().all(Result::is_ok));
        let given = receive(&store, "jobs", 8, seed(0, round));
        let commits = given.iter().map(|&(id, token)| lease(id, token, commit())).collect();
        assert!(update(&store, commits).iter().all(|answer| *answer == left(ItemState::Completed)));
        clock.advance(2500);
    }
    assert_eq!(counts(&store, "jobs").completed, 72);
    let full = bytes_on_disk(&schema);
    assert!(full > 72 * FIELD as i64, "{full} bytes");
    let begun = submitted(&run(&store, heavy("slow"))).0;
    for _ in 0..4 {
        clock.advance(ttl.0);
        run(&store, Operation::Sweep).unwrap();
    }
    assert_eq!(counts(&store, "jobs").total(), 0);
    // Everything but the payloads of pending items and the partition that is written to. A worker reclaims space after it
    // answered a call. It does not wait for a lock that a vacuum holds, but tries again the next time.
    until("three quarters of the disk space are free again", || {
        clock.advance(2500);
        run(&store, Operation::Sweep).unwrap();
        bytes_on_disk(&schema) < full / 4
    });
    for id in [waits, begun] {
        let read =
            block_on(towline_store::Store::get(&store, vec![id], towline_domain::FieldSet::ALL)).unwrap();
        assert!(read[0].is_some(), "a pending item keeps its payload");
    }
}
