//! The log as the stream of events: what collection does to it tells nothing, and what it took is said to be gone.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod rig;

use futures::executor::block_on;
use rig::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use towline_domain::{EventKind, ItemId};
use towline_store::{Event, EventCursor, EventPage, Events, EventsFrom, Store, StoreError};

fn page(store: &dyn Store, from: EventsFrom) -> EventPage {
    match block_on(store.events(from, 1000)).unwrap() {
        Events::Page(page) => page,
        other => panic!("{other:?}"),
    }
}

/// All there is behind the cursor.
fn told(store: &dyn Store, cursor: &mut EventCursor) -> Vec<Event> {
    let mut all = Vec::new();
    loop {
        let EventPage { events, next, more } = page(store, EventsFrom::After(cursor.clone()));
        *cursor = next;
        if events.is_empty() && !more {
            return all;
        }
        all.extend(events);
    }
}

#[test]
fn what_is_carried_forward_tells_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let store = made(directory.path());
    let mut cursor = page(&store, EventsFrom::Now).next;
    let mut stories: BTreeMap<ItemId, Vec<EventKind>> = BTreeMap::new();
    let lasting = submit(&store, "lasting");
    // A reader that keeps up misses nothing, whatever is written over behind it.
    let mut rounds = 0;
    while status(&store).bytes_carried == 0 || rounds < 20 {
        let batch = (0..10).map(|_| submit_to("jobs", payload(vec![7; 2000]))).collect();
        let ids: Vec<ItemId> =
            block_on(store.update(batch)).unwrap().answers.into_iter().map(submitted).collect();
        block_on(store.update(ids.into_iter().map(delete).collect())).unwrap().answers;
        for event in told(&store, &mut cursor) {
            stories.entry(event.item.unwrap().id).or_default().push(event.kind);
        }
        rounds += 1;
        assert!(rounds < 1000, "nothing is ever carried");
    }
    assert_eq!(stories.remove(&lasting), Some(vec![EventKind::Submitted]));
    assert_eq!(stories.len(), rounds * 10);
    assert!(stories.values().all(|story| *story == [EventKind::Submitted, EventKind::Removed]));
}

#[test]
fn what_was_written_over_is_said_to_be_gone() {
    let directory = tempfile::tempdir().unwrap();
    let store = made(directory.path());
    let first = page(&store, EventsFrom::Oldest).next;
    let gone = || block_on(store.events(EventsFrom::After(first.clone()), 10)).unwrap() == Events::Gone;
    assert!(!gone());
    while !gone() {
        let id = submit(&store, vec![7; 2000]);
        run(&store, delete(id)).unwrap();
    }
    // What is kept is told from its beginning, and it is not what was first.
    let kept = page(&store, EventsFrom::Oldest);
    assert!(!kept.events.is_empty() && kept.events.iter().all(|event| !first.has_passed(event.id)));
}

#[test]
fn a_place_that_was_never_written_is_none() {
    let directory = tempfile::tempdir().unwrap();
    let store = made(directory.path());
    let mut ahead = page(&store, EventsFrom::Now).next;
    let mut id = page(&store, EventsFrom::Oldest).events[0].id;
    for group in [id.group + 1000, u64::MAX] {
        id.group = group;
        ahead.pass(id);
        assert_eq!(block_on(store.events(EventsFrom::After(ahead.clone()), 10)).unwrap(), Events::Gone);
    }
}

#[test]
fn damage_is_said_and_not_told() {
    let directory = tempfile::tempdir().unwrap();
    let store = made(directory.path());
    submit(&store, "some text to be damaged");
    let (file, byte) = find(directory.path(), b"some text to be damaged");
    flip(&file, byte);
    let read = block_on(store.events(EventsFrom::Oldest, 100));
    assert!(matches!(read, Err(StoreError::Corrupt { .. })), "{read:?}");
    assert!(status(&store).damage.is_some());
}

#[test]
fn a_place_far_into_a_segment_is_looked_for_once() {
    let directory = tempfile::tempdir().unwrap();
    let hand = Arc::new(faulty::Hand::default());
    let store = faulty::open_faulty(directory.path(), 16 << 20, &hand).unwrap();
    run(&store, create("jobs")).unwrap();
    let mut begun = page(&store, EventsFrom::Now).next;
    for _ in 0..80 {
        let batch = (0..10).map(|_| submit_to("jobs", payload(vec![7; 10_000]))).collect();
        block_on(store.update(batch)).unwrap().answers;
    }
    let all = told(&store, &mut begun);
    let ask = |event: &Event| {
        let before = hand.bytes_read();
        let from = EventsFrom::After(EventCursor::after(event.id));
        assert!(matches!(block_on(store.events(from, 1)), Ok(Events::Page(page)) if page.events.len() == 1));
        hand.bytes_read() - before
    };
    // Many others are somewhere else.
    for event in all.iter().take(100) {
        ask(event);
    }
    let read = ask(&all[all.len() - 20]);
    assert!(read < 3 << 20, "{read} bytes were read for one event");
}
