//! What is told while others are at it, by any server, and for how long it is kept.

use crate::harness::{new_schema, open};
use crate::server::{RUNTIME, SHARED, connect};
use crate::words::*;
use std::sync::Arc;
use tokio_postgres::Client;
use towline_domain::{EventKind, ItemId, Millis, Policy, Timestamp};
use towline_postgres::{EventRetention, Options, Postgres, Time};
use towline_store::{Event, EventCursor, EventPage, Events, EventsFrom, ManualClock, Store, StoreError};

fn page(store: &Postgres, from: EventsFrom) -> EventPage {
    match block_on(store.events(from, 1000)).unwrap() {
        Events::Page(page) => page,
        other => panic!("not {other:?}"),
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

/// A transaction of somebody else that has done this and is under way.
fn begin(schema: &str, sql: &str) -> Client {
    RUNTIME.block_on(async {
        let config = SHARED.config().options(format!("-c search_path={schema}")).clone();
        let client = connect(&config).await.unwrap();
        client.batch_execute(&format!("BEGIN; {sql}")).await.unwrap();
        client
    })
}

#[test]
fn a_transaction_that_tells_nothing_holds_nothing_back() {
    let schema = new_schema();
    let store = open(&SHARED.config(), &schema, Time::Database).unwrap();
    run(&store, create("jobs", Policy::default())).unwrap();
    let before = put(&store);
    let _foreign = begin(&schema, "SELECT pg_current_xact_id()");
    // One that has come since knows nothing of what was told before.
    for store in [open(&SHARED.config(), &schema, Time::Database).unwrap(), store] {
        let all = page(&store, EventsFrom::Oldest);
        assert!(items(&all.events).contains(&before) && !all.more, "{all:?}");
        let now = now(&store);
        assert!(
            all.events.iter().all(|event| now.has_passed(event.id)),
            "from now on is not from the oldest"
        );
        let id = put(&store);
        let told = page(&store, EventsFrom::After(now));
        assert_eq!((items(&told.events), told.more), (vec![id], false));
    }
}

#[test]
fn what_may_be_told_before_is_waited_for() {
    let schema = new_schema();
    let store = open(&SHARED.config(), &schema, Time::Database).unwrap();
    run(&store, create("jobs", Policy::default())).unwrap();
    let begun = now(&store);
    let tells = "INSERT INTO events (partition, number, at, packed)
                 SELECT event_partition, nextval('event_sequence'), 0, '\\x01' FROM catalog";
    let teller = begin(&schema, tells);
    let id = put(&store);
    let told = page(&store, EventsFrom::After(begun.clone()));
    assert_eq!((told.events, told.more), (Vec::new(), true), "one with a smaller number may appear");
    // Nobody can say where now is; that it was before is no answer.
    let unknown = block_on(store.events(EventsFrom::Now, 1));
    assert!(matches!(unknown, Err(StoreError::Unavailable { .. })), "{unknown:?}");
    RUNTIME.block_on(teller.batch_execute("COMMIT")).unwrap();
    let told = page(&store, EventsFrom::After(begun));
    assert_eq!((items(&told.events), told.more), (vec![id], false));
    assert!(now(&store).has_passed(told.events[0].id));
}

#[test]
fn what_one_server_does_another_tells() {
    let schema = new_schema();
    let [one, other] = [0, 1].map(|_| open(&SHARED.config(), &schema, Time::Database).unwrap());
    run(&one, create("jobs", Policy::default())).unwrap();
    let mut at = now(&other);
    for _ in 0..3 {
        let id = put(&one);
        let told = page(&other, EventsFrom::After(at));
        assert_eq!(items(&told.events), [id]);
        assert_eq!(page(&one, EventsFrom::After(told.next.clone())).events, [], "its place is one for both");
        at = told.next;
    }
}

/// One that rotated where another one had just done so truncated what was told last.
#[test]
fn rotations_at_once_take_nothing_from_who_keeps_up() {
    let schema = new_schema();
    let store = open(&SHARED.config(), &schema, Time::Database).unwrap();
    run(&store, create("jobs", Policy::default())).unwrap();
    let mut at = now(&store);
    let rotate = |_| {
        let other = begin(&schema, "COMMIT");
        RUNTIME.spawn(async move {
            for time in 0.. {
                let sql = format!("SELECT rotate_events(1, 0, 0, {time})");
                // It waits for nobody longer than a moment.
                let _ = other.batch_execute(&sql).await;
            }
        })
    };
    let others: Vec<_> = (0..4).map(rotate).collect();
    for nth in 0..200 {
        let made = put(&store);
        let EventPage { events, next, .. } = page(&store, EventsFrom::After(at));
        assert_eq!(items(&events), [made], "number {nth}");
        at = next;
    }
    others.iter().for_each(tokio::task::JoinHandle::abort);
}

#[test]
fn the_oldest_go_and_who_comes_for_them_is_told_so() {
    let clock = Arc::new(ManualClock::new(Timestamp(1_800_000_000_000)));
    let options = Options {
        schema: new_schema(),
        // A partition is left as soon as anything is in it.
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
        assert!(made.len() < 1000, "nothing is ever truncated");
        made.push(put(&store));
        // Upkeep looks after a batch, now and then.
        clock.advance(2500);
        // Who keeps up misses nothing.
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
