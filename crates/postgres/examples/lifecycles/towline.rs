//! Measures this store: several callers that send batches.

use crate::{Arguments, Measurement, connect, drop_schema, hold_snapshot, noise, now, wal_position};
use bytes::Bytes;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;
use tokio_postgres::Client;
use towline_domain::command::Verb;
use towline_domain::{
    Adjust, FieldSet, Fields, LeaseCall, Millis, Outcome, Policy, Schema, Submission, TokenSeed,
};
use towline_postgres::{Options, Postgres, Time};
use towline_store::{Operation, ReceiveCall, Reply, Store};

static CALLS: AtomicU64 = AtomicU64::new(0);

async fn open(arguments: &Arguments, schema: &str, policy: Policy) -> Postgres {
    drop_schema(&arguments.url, schema).await;
    let options = Options { schema: schema.to_owned(), workers: arguments.workers, ..Options::default() };
    let options = if arguments.without_events { Options { events: None, ..options } } else { options };
    let store = Postgres::open(&arguments.url.clone().into(), options, Time::Database).await.unwrap();
    let (queue, schema, policy) = ("bench".parse().unwrap(), Box::default(), Box::new(policy));
    let schema: Box<Schema> = schema;
    store.update(vec![Operation::CreateQueue { queue, schema, policy }]).await.unwrap();
    store
}

pub async fn measure(arguments: &Arguments, bytes: usize, batch: usize, depth: usize) -> Measurement {
    let schema = "bench_towline";
    let store = open(arguments, schema, Policy::default()).await;
    let payload = Bytes::from(noise(bytes, 1));
    let client = connect(&arguments.url, "public").await;
    submit_all(&store, arguments.callers, 2000, depth, &payload).await;
    client.batch_execute("CHECKPOINT").await.unwrap();
    let (holder, until) = hold_snapshot(arguments).await;
    while now() < until {
        submit_all(&store, arguments.callers, batch, arguments.items, &payload).await;
        drain(&store, arguments.callers, batch, arguments.items).await;
    }
    let wal = wal_position(&client).await;
    let begin = now();
    submit_all(&store, arguments.callers, batch, arguments.items, &payload).await;
    let filled = now() - begin;
    drain(&store, arguments.callers, batch, arguments.items).await;
    let drained = now() - begin - filled;
    let wal_bytes = wal_position(&client).await - wal;
    drop((holder, store));
    drop_schema(&arguments.url, schema).await;
    Measurement { filled, drained, wal_bytes, items: arguments.items }
}

/// Takes up to a batch of the items that are left.
pub fn take(left: &AtomicI64, batch: usize) -> Option<usize> {
    let batch = i64::try_from(batch).unwrap();
    usize::try_from(left.fetch_sub(batch, Ordering::Relaxed).min(batch)).ok().filter(|&count| count > 0)
}

async fn submit_all(store: &Postgres, callers: usize, batch: usize, items: usize, payload: &Bytes) {
    let left = AtomicI64::new(i64::try_from(items).unwrap());
    let callers = (0..callers).map(|_| async {
        while let Some(count) = take(&left, batch) {
            submit(store, count, payload).await;
        }
    });
    futures::future::join_all(callers).await;
}

async fn drain(store: &Postgres, callers: usize, batch: usize, items: usize) {
    let left = AtomicI64::new(i64::try_from(items).unwrap());
    let callers = (0..callers).map(|_| async {
        while let Some(mut count) = take(&left, batch) {
            while count > 0 {
                count -= receive_and_commit(store, count).await;
            }
        }
    });
    futures::future::join_all(callers).await;
}

async fn submit(store: &Postgres, count: usize, payload: &Bytes) {
    let fields = Fields { blob: Some(payload.clone()), ..Fields::default() };
    let one = || Operation::Submit {
        queue: "bench".parse().unwrap(),
        submission: Box::new(Submission { fields: fields.clone(), ..Submission::default() }),
    };
    let answers = store.update((0..count).map(|_| one()).collect()).await.unwrap().answers;
    assert!(answers.iter().all(Result::is_ok));
}

async fn receive_and_commit(store: &Postgres, max: usize) -> usize {
    let mut seed = [0; 32];
    seed[..8].copy_from_slice(&CALLS.fetch_add(1, Ordering::Relaxed).to_le_bytes());
    let receive = Operation::Receive(Box::new(ReceiveCall {
        queue: "bench".parse().unwrap(),
        max: u32::try_from(max).unwrap(),
        visibility: None,
        assigned: false,
        seed: TokenSeed(seed),
        fields: FieldSet::ALL,
        make_buffers: false,
    }));
    let answers = store.update(vec![receive]).await.unwrap().answers;
    let Ok(Reply::Received(received)) = &answers[0] else { panic!("received: {answers:?}") };
    let commits = received.items.iter().map(|item| Operation::Lease {
        id: item.head.id,
        call: Box::new(LeaseCall {
            token: item.head.lease().unwrap().token,
            verb: Verb::Commit(Outcome::default()),
            adjust: Adjust::default(),
        }),
    });
    let answers = store.update(commits.collect()).await.unwrap().answers;
    assert!(answers.iter().all(Result::is_ok));
    answers.len()
}

/// Commits this many items, and measures how long their removal takes.
pub async fn retention(arguments: &Arguments, items: usize) {
    let schema = "bench_towline";
    let batch = arguments.batch.last().copied().unwrap();
    let payload = Bytes::from(noise(arguments.bytes[0], 1));
    let policy = Policy { completed_ttl: Some(Millis::minutes(30)), ..Policy::default() };
    let store = open(arguments, schema, policy).await;
    let client = connect(&arguments.url, schema).await;
    let empty = disk(&client, schema).await;
    for _ in (0..items).step_by(100_000) {
        let some = items.min(100_000);
        submit_all(&store, arguments.callers, batch, some, &payload).await;
        drain(&store, arguments.callers, batch, some).await;
    }
    let full = disk(&client, schema).await;
    // Instead of waiting for half an hour.
    client.batch_execute("UPDATE terminal_pages SET remove_at = 1").await.unwrap();
    drop(store);
    let options = Options { schema: schema.to_owned(), ..Options::default() };
    let store = Postgres::open(&arguments.url.clone().into(), options, Time::Database).await.unwrap();
    let begin = now();
    let mut removed = 0;
    while removed < items as u64 {
        let answers = store.update(vec![Operation::Sweep]).await.unwrap().answers;
        let Ok(Reply::Swept { changed }) = answers[0] else { panic!("swept: {answers:?}") };
        removed += changed;
    }
    let took = now() - begin;
    // The store reclaims disk space every two seconds.
    let mut left = disk(&client, schema).await;
    while left > full / 2 && (now() - begin) < Duration::from_secs(60) {
        tokio::time::sleep(Duration::from_millis(500)).await;
        store.update(vec![Operation::Sweep]).await.unwrap();
        left = disk(&client, schema).await;
    }
    println!(
        "{removed} terminal items removed in {took:?}; on disk {} MiB before, {} MiB then, {} MiB {:?} later",
        empty >> 20,
        full >> 20,
        left >> 20,
        now() - begin
    );
    drop(store);
    drop_schema(&arguments.url, schema).await;
}

async fn disk(client: &Client, schema: &str) -> i64 {
    let sizes = "SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint FROM pg_class
                 WHERE relnamespace = $1::text::regnamespace AND relkind = 'r'";
    client.query_one(sizes, &[&schema]).await.unwrap().get(0)
}
