//! Events while other transactions run, from several servers, and their retention.

use crate::calls::*;
use crate::harness::{new_schema, open};
use crate::server::{RUNTIME, SHARED, connect};
use std::sync::Arc;
use tokio_postgres::Client;
use towline_domain::{EventKind, ItemId, Millis, Policy, Timestamp};
use towline_postgres::{EventRetention, Options, Postgres, Time};
use towline_store::{Event, EventCursor, EventPage, Events, EventsFrom, ManualClock, Store, StoreError};

fn page(store: &Postgres, from: EventsFrom) -> EventPage {
    match block_on(store.events(from, 1000)).unwrap() {
        Events::Page(page) => page,
        other => panic!("expected a page, got {other:?}"),
    }
}

fn now(store: &Postgres) -> EventCursor {
    page(store, EventsFrom::Now).next
}

fn items(events: &[Event]) -> Vec<ItemId> {
    let submitted = events.iter().filter(|event| event.kind == EventKind::Submitted);
    submitted.map(|event| event.item.as_ref().unwrap().id).collect()
}

fn put(store: &Postgres) -> ItemId {
    submitted(&run(store, submit("jobs", "work"))).0
}

/// Another client's open transaction that has executed this statement.
fn begin(schema: &str, sql: &str) -> Client {
    RUNTIME.block_on(async {
        let config = SHARED.config().options(format!("-c search_path={schema}")).clone();
        let client = connect(&config).await.unwrap();
        client.batch_execute(&format!("BEGIN; {sql}")).await.unwrap();
        client
    })
}

#[test]
fn a_transaction_that_writes_no_events_holds_no_events_back() {
    let schema = new_schema();
    let store = open(&SHARED.config(), &schema, Time::Database).unwrap();
    run(&store, create("jobs", Policy::default())).unwrap();
    let before = put(&store);
    let _foreign = begin(&schema, "SELECT pg_current_xact_id()");
    // A server that opened later has an empty watermark.
    for store in [open(&SHARED.config(), &schema, Time::Database).unwrap(), store] {
        let all = page(&store, EventsFrom::Oldest);
        assert!(items(&all.events).contains(&before) && !all.more, "{all:?}");
        let now = now(&store);
        assert!(
            all.events.iter().all(|event| now.has_passed(event.id)),
            "the present position is behind all events"
        );
        let id = put(&store);
        let read = page(&store, EventsFrom::After(now));
        assert_eq!((items(&read.events), read.more), (vec![id], false));
    }
}

#[test]
fn events_wait_for_a_transaction_with_a_smaller_number() {
    let schema = new_schema();
    let store = open(&SHARED.config(), &schema, Time::Database).unwrap();
    run(&store, create("jobs", Policy::default())).unwrap();
    let begun = now(&store);
    let insert = "INSERT INTO events (partition, number, at, packed)
                 SELECT event_partition, nextval('event_sequence'), 0, '\\x01' FROM catalog";
    let writer = begin(&schema, insert);
    let id = put(&store);
    let read = page(&store, EventsFrom::After(begun.clone()));
    assert_eq!((read.events, read.more), (Vec::new(), true), "a smaller number may still appear");
    // The present position is unknown, and an older position would be a wrong answer.
    let unknown = block_on(store.events(EventsFrom::Now, 1));
    assert!(matches!(unknown, Err(StoreError::Unavailable { .. })), "{unknown:?}");
    RUNTIME.block_on(writer.batch_execute("COMMIT")).unwrap();
    let read = page(&store, EventsFrom::After(begun));
    assert_eq!((items(&read.events), read.more), (vec![id], false));
    assert!(now(&store).has_passed(read.events[0].id));
}

#[test]
fn a_server_reads_the_events_of_another_server() {
    let schema = new_schema();
    let [one, other] = [0, 1].map(|_| open(&SHARED.config(), &schema, Time::Database).unwrap());
    run(&one, create("jobs", Policy::default())).unwrap();
    let mut at = now(&other);
    for _ in 0..3 {
        let id = put(&one);
        let read = page(&other, EventsFrom::After(at));
        assert_eq!(items(&read.events), [id]);
        assert_eq!(
            page(&one, EventsFrom::After(read.next.clone())).events,
            [],
            "both servers use the same cursors"
        );
        at = read.next;
    }
}

/// A rotation must check its conditions again under the lock, or it truncates what another rotation has just begun.
#[test]
fn concurrent_rotations_remove_no_event_of_a_reader_that_keeps_up() {
    let schema = new_schema();
    let store = open(&SHARED.config(), &schema, Time::Database).unwrap();
    run(&store, create("jobs", Policy::default())).unwrap();
    let mut at = now(&store);
    let rotate = |_| {
        let other = begin(&schema, "COMMIT");
        RUNTIME.spawn(async move {
            for time in 0.. {
                let sql = format!("SELECT rotate_events(1, 0, 0, {time})");
                // It fails if it cannot get a lock within 50 ms.
                let _ = other.batch_execute(&sql).await;
            }
        })
    };
    let rotations: Vec<_> = (0..4).map(rotate).collect();
    for nth in 0..200 {
        let made = put(&store);
        let EventPage { events, next, .. } = page(&store, EventsFrom::After(at));
        assert_eq!(items(&events), [made], "number {nth}");
        at = next;
    }
    rotations.iter().for_each(tokio::task::JoinHandle::abort);
}

#[test]
fn the_oldest_events_are_removed_and_their_readers_get_gone() {
    let clock = Arc::new(ManualClock::new(Timestamp(1_800_000_000_000)));
    let options = Options {
        schema: new_schema(),
        // So small that every event fills a partition.
        events: Some(EventRetention { bytes: 6, time: Millis::days(1) }),
        ..Options::default()
    };
    let address = SHARED.config().into();
    let store = RUNTIME.block_on(Postgres::open(&address, options, Time::Injected(clock.clone()))).unwrap();
    run(&store, create("jobs", Policy::default())).unwrap();
    let begun = now(&store);
    let (mut at, mut made, mut seen) = (begun.clone(), Vec::new(), Vec::new());
    let gone = |from: &EventCursor| {
        block_on(store.events(EventsFrom::After(from.clone()), 1000)).unwrap() == Events::Gone
    };
    while !gone(&begun) {
        assert!(made.len() < 1000, "no partition was truncated");
        made.push(put(&store));
        // A worker reclaims space after a batch, at most every two seconds.
        clock.advance(2500);
        // A reader that keeps up misses no event.
        let EventPage { events, next, .. } = page(&store, EventsFrom::After(at));
        seen.extend(items(&events));
        at = next;
    }
    assert_eq!(seen, made);
    let kept = page(&store, EventsFrom::Oldest);
    let kept = items(&kept.events);
    assert!(!kept.is_empty() && kept.len() < made.len(), "{} of {}", kept.len(), made.len());
    assert!(made.ends_with(&kept), "without a gap");
}
