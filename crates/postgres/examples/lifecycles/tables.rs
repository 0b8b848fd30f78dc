//! Queues that are a table and a few statements. Each is used in the way that is fastest for it.

use crate::towline::take;
use crate::{Arguments, Measurement, connect, drop_schema, hold_snapshot, noise, now, wal_position};
use bytes::{BufMut, Bytes, BytesMut};
use futures::SinkExt;
use std::sync::atomic::{AtomicI64, Ordering};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Statement};
use uuid::Uuid;

/// A table, and how it is used.
#[derive(Debug, Clone, Copy)]
pub struct Table {
    schema: &'static str,
    define: &'static str,
    submit: Submit,
    submitters: usize,
    submit_batch: usize,
    receive: &'static str,
    settle: &'static str,
    /// Settles with one transaction of three statements for each item, not with one statement for all.
    one_by_one: bool,
    workers: usize,
    receive_batch: usize,
    /// Only one in this many items is measured.
    share: usize,
}

#[derive(Debug, Clone, Copy)]
enum Submit {
    /// `COPY` of (queue, payload).
    Copy,
    /// One array of texts.
    Texts(&'static str),
    /// Ids and payloads.
    Jobs(&'static str),
}

/// The minimum of a queue: submits by `COPY`, a partial index in the order of receiving, `FOR UPDATE SKIP LOCKED`, and
/// `DELETE` of a whole batch. No results, no retention, no fence on the settle.
pub const SKIP_LOCKED: Table = Table {
    schema: "bench_skip_locked",
    define: "CREATE TABLE job (
                 id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
                 queue text NOT NULL,
                 priority smallint NOT NULL DEFAULT 0,
                 run_at timestamptz NOT NULL DEFAULT now(),
                 state smallint NOT NULL DEFAULT 0,
                 attempt smallint NOT NULL DEFAULT 0,
                 leased_until timestamptz,
                 payload bytea NOT NULL
             );
             CREATE INDEX ready ON job (queue, priority, run_at, id) WHERE state = 0",
    submit: Submit::Copy,
    submitters: 2,
    submit_batch: 5000,
    receive: "WITH next AS (
                  SELECT id FROM job WHERE state = 0 AND queue = 'q' AND run_at <= now()
                  ORDER BY priority, run_at, id LIMIT $1 FOR UPDATE SKIP LOCKED
              )
              UPDATE job SET state = 1, attempt = attempt + 1, leased_until = now() + interval '1 minute'
              FROM next WHERE job.id = next.id RETURNING job.id, job.payload",
    settle: "DELETE FROM job WHERE id = ANY ($1::bigint[])",
    one_by_one: false,
    workers: 4,
    receive_batch: 500,
    share: 1,
};

/// What pgmq does: messages are `jsonb`, hidden by a time until they are deleted, received in order of number.
pub const PGMQ_LIKE: Table = Table {
    schema: "bench_pgmq_like",
    define: "CREATE TABLE message (
                 msg_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
                 read_ct integer NOT NULL DEFAULT 0,
                 enqueued_at timestamptz NOT NULL DEFAULT now(),
                 vt timestamptz NOT NULL,
                 message jsonb
             );
             CREATE INDEX visible ON message (vt)",
    submit: Submit::Texts(
        "INSERT INTO message (vt, message) SELECT clock_timestamp(), unnest($1::text[])::jsonb",
    ),
    submitters: 4,
    submit_batch: 500,
    receive: "WITH next AS (
                  SELECT msg_id FROM message WHERE vt <= clock_timestamp()
                  ORDER BY msg_id LIMIT $1 FOR UPDATE SKIP LOCKED
              )
              UPDATE message SET vt = clock_timestamp() + interval '60 seconds', read_ct = read_ct + 1
              FROM next WHERE message.msg_id = next.msg_id RETURNING message.msg_id, message.message::text",
    settle: "DELETE FROM message WHERE msg_id = ANY ($1::bigint[])",
    one_by_one: false,
    workers: 4,
    receive_batch: 500,
    share: 1,
};

/// The shape of Cyclotron: 17 columns, a random key, five indexes, and a transaction an item to settle it (state,
/// heartbeat, unlock). Finished rows stay until a janitor deletes them, which is not measured.
pub const CYCLOTRON_LIKE: Table = Table {
    schema: "bench_cyclotron_like",
    define: "CREATE TYPE job_state AS ENUM ('available', 'completed', 'failed', 'running', 'paused');
             CREATE TABLE job (
                 id uuid PRIMARY KEY, team_id integer NOT NULL, function_id uuid, created timestamptz NOT NULL,
                 lock_id uuid, last_heartbeat timestamptz, janitor_touch_count smallint NOT NULL,
                 transition_count smallint NOT NULL, last_transition timestamptz NOT NULL, queue_name text NOT NULL,
                 state job_state NOT NULL, scheduled timestamptz NOT NULL, priority smallint NOT NULL,
                 vm_state bytea, metadata bytea, parameters bytea, blob bytea
             );
             CREATE INDEX dequeue ON job (queue_name, state, scheduled, priority) WHERE state = 'available';
             CREATE INDEX team ON job (team_id);
             CREATE INDEX function ON job (function_id);
             CREATE INDEX queue ON job (queue_name)",
    submit: Submit::Jobs(
        "INSERT INTO job (
             id, team_id, function_id, created, janitor_touch_count, transition_count, last_transition, queue_name,
             state, scheduled, priority, vm_state
         )
         SELECT id, 1, $3::uuid, now(), 0, 0, now(), 'hog', 'available', now(), 0, payload
         FROM unnest($1::uuid[], $2::bytea[]) AS new (id, payload)",
    ),
    submitters: 2,
    submit_batch: 500,
    receive: "WITH next AS (
                  SELECT id FROM job WHERE state = 'available' AND queue_name = 'hog' AND scheduled <= now()
                  ORDER BY priority, scheduled LIMIT $1 FOR UPDATE SKIP LOCKED
              )
              UPDATE job SET state = 'running', lock_id = gen_random_uuid(), last_heartbeat = now(),
                  last_transition = now(), transition_count = transition_count + 1
              FROM next WHERE job.id = next.id RETURNING job.id, job.vm_state, job.lock_id",
    settle: "UPDATE job SET state = 'completed', last_transition = now(), transition_count = transition_count + 1
             WHERE id = $1 AND lock_id = $2",
    one_by_one: true,
    workers: 8,
    receive_batch: 100,
    share: 10,
};
const HEARTBEAT: &str = "UPDATE job SET last_heartbeat = now() WHERE id = $1 AND lock_id = $2";
const UNLOCK: &str =
    "UPDATE job SET lock_id = NULL, last_heartbeat = NULL WHERE id = $1 AND $2::uuid IS NOT NULL";

pub async fn measure(arguments: &Arguments, table: Table, bytes: usize, depth: usize) -> Measurement {
    let (schema, url) = (table.schema, &arguments.url);
    drop_schema(url, schema).await;
    let client = connect(url, "public").await;
    client.batch_execute(&format!("CREATE SCHEMA {schema}")).await.unwrap();
    connect(url, schema).await.batch_execute(table.define).await.unwrap();
    let items = arguments.items / table.share;
    let payload = noise(bytes, 1);
    submit_all(arguments, table, depth, &payload).await;
    client.batch_execute("CHECKPOINT").await.unwrap();
    let (holder, until) = hold_snapshot(arguments).await;
    while now() < until {
        submit_all(arguments, table, items, &payload).await;
        drain(arguments, table, items).await;
    }
    let wal = wal_position(&client).await;
    let begin = now();
    submit_all(arguments, table, items, &payload).await;
    let filled = now() - begin;
    drain(arguments, table, items).await;
    let drained = now() - begin - filled;
    let wal_bytes = wal_position(&client).await - wal;
    drop(holder);
    drop_schema(url, schema).await;
    Measurement { filled, drained, wal_bytes, items }
}

async fn submit_all(arguments: &Arguments, table: Table, items: usize, payload: &[u8]) {
    let left = AtomicI64::new(i64::try_from(items).unwrap());
    let submitters = (0..table.submitters).map(|_| async {
        let client = connect(&arguments.url, table.schema).await;
        while let Some(count) = take(&left, table.submit_batch) {
            submit(&client, table.submit, count, payload).await;
        }
    });
    futures::future::join_all(submitters).await;
}

async fn submit(client: &Client, how: Submit, count: usize, payload: &[u8]) {
    match how {
        Submit::Copy => {
            let sink = client.copy_in("COPY job (queue, payload) FROM STDIN BINARY").await.unwrap();
            futures::pin_mut!(sink);
            sink.send(copied(count, payload)).await.unwrap();
            sink.finish().await.unwrap();
        }
        Submit::Texts(statement) => {
            let text = format!("{{\"p\": {:?}}}", std::str::from_utf8(payload).unwrap());
            client.execute(statement, &[&vec![text; count]]).await.unwrap();
        }
        Submit::Jobs(statement) => {
            let ids: Vec<Uuid> = (0..count).map(|_| random_id()).collect();
            client.execute(statement, &[&ids, &vec![payload; count], &Uuid::from_u128(7)]).await.unwrap();
        }
    }
}

/// A key that sorts far away from the one before it.
fn random_id() -> Uuid {
    static NEXT: AtomicI64 = AtomicI64::new(1);
    let mix = |n: i64| n.wrapping_mul(-7_046_029_254_386_353_131).cast_unsigned();
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    Uuid::from_u64_pair(mix(number).rotate_left(31), number.cast_unsigned())
}

/// Rows of (text, bytea) in the binary format of `COPY`.
fn copied(count: usize, payload: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(count * (payload.len() + 16) + 32);
    out.put_slice(b"PGCOPY\n\xff\r\n\0");
    out.put_i32(0);
    out.put_i32(0);
    for _ in 0..count {
        out.put_i16(2);
        out.put_i32(1);
        out.put_slice(b"q");
        out.put_i32(i32::try_from(payload.len()).unwrap());
        out.put_slice(payload);
    }
    out.put_i16(-1);
    out.freeze()
}

async fn drain(arguments: &Arguments, table: Table, items: usize) {
    let left = AtomicI64::new(i64::try_from(items).unwrap());
    let workers = (0..table.workers).map(|_| async {
        let client = connect(&arguments.url, table.schema).await;
        let prepare = async |text: &'static str| client.prepare(text).await.unwrap();
        let (receive, settle) = (prepare(table.receive).await, prepare(table.settle).await);
        let more =
            if table.one_by_one { vec![prepare(HEARTBEAT).await, prepare(UNLOCK).await] } else { vec![] };
        while let Some(count) = take(&left, table.receive_batch) {
            let rows = client.query(&receive, &[&i64::try_from(count).unwrap()]).await.unwrap();
            assert!(!rows.is_empty());
            if table.one_by_one {
                for row in &rows {
                    let (id, lock): (Uuid, Uuid) = (row.get(0), row.get(2));
                    settle_one(&client, &settle, &more, &[&id, &lock]).await;
                }
            } else {
                let ids: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
                client.execute(&settle, &[&ids]).await.unwrap();
            }
        }
    });
    futures::future::join_all(workers).await;
}

async fn settle_one(client: &Client, settle: &Statement, more: &[Statement], of: &[&(dyn ToSql + Sync)]) {
    client.batch_execute("BEGIN").await.unwrap();
    for statement in [settle].into_iter().chain(more) {
        assert_eq!(client.execute(statement, of).await.unwrap(), 1);
    }
    client.batch_execute("COMMIT").await.unwrap();
}
