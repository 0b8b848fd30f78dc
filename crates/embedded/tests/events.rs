//! Events are read from the log: collection causes no events, and events of reused segments are reported as gone.
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

/// All events behind the cursor.
fn read_all(store: &dyn Store, cursor: &mut EventCursor) -> Vec<Event> {
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
fn a_record_that_is_carried_forward_is_not_an_event() {
    let directory = tempfile::tempdir().unwrap();
    let store = new_store(directory.path());
    let mut cursor = page(&store, EventsFrom::Now).next;
    let mut kinds: BTreeMap<ItemId, Vec<EventKind>> = BTreeMap::new();
    let lasting = submit(&store, "lasting");
    // A reader that keeps up gets all events, though segments behind it are reused.
    let mut rounds = 0;
    while status(&store).bytes_carried == 0 || rounds < 20 {
        let batch = (0..10).map(|_| submit_to("jobs", payload(vec![7; 2000]))).collect();
        let ids: Vec<ItemId> =
            block_on(store.update(batch)).unwrap().answers.into_iter().map(submitted).collect();
        block_on(store.update(ids.into_iter().map(delete).collect())).unwrap();
        for event in read_all(&store, &mut cursor) {
            kinds.entry(event.item.unwrap().id).or_default().push(event.kind);
        }
        rounds += 1;
        assert!(rounds < 1000, "collection carries no records");
    }
    assert_eq!(kinds.remove(&lasting), Some(vec![EventKind::Submitted]));
    assert_eq!(kinds.len(), rounds * 10);
    assert!(kinds.values().all(|kinds| *kinds == [EventKind::Submitted, EventKind::Removed]));
}

#[test]
fn events_of_a_reused_segment_are_gone() {
    let directory = tempfile::tempdir().unwrap();
    let store = new_store(directory.path());
    let first = page(&store, EventsFrom::Oldest).next;
    let gone = || block_on(store.events(EventsFrom::After(first.clone()), 10)).unwrap() == Events::Gone;
    assert!(!gone());
    while !gone() {
        let id = submit(&store, vec![7; 2000]);
        run(&store, delete(id)).unwrap();
    }
    // The oldest events are now later than the first ones.
    let kept = page(&store, EventsFrom::Oldest);
    assert!(!kept.events.is_empty() && kept.events.iter().all(|event| !first.has_passed(event.id)));
}

#[test]
fn a_cursor_behind_the_end_of_the_log_is_gone() {
    let directory = tempfile::tempdir().unwrap();
    let store = new_store(directory.path());
    let mut ahead = page(&store, EventsFrom::Now).next;
    let mut id = page(&store, EventsFrom::Oldest).events[0].id;
    for group in [id.group + 1000, u64::MAX] {
        id.group = group;
        ahead.pass(id);
        assert_eq!(block_on(store.events(EventsFrom::After(ahead.clone()), 10)).unwrap(), Events::Gone);
    }
}

#[test]
fn damage_is_an_error_and_not_an_event() {
    let directory = tempfile::tempdir().unwrap();
    let store = new_store(directory.path());
    submit(&store, "some text to be damaged");
    let (file, byte) = find(directory.path(), b"some text to be damaged");
    flip(&file, byte);
    let read = block_on(store.events(EventsFrom::Oldest, 100));
    assert!(matches!(read, Err(StoreError::Corrupt { .. })), "{read:?}");
    assert!(status(&store).damage.is_some());
}

#[test]
fn a_reader_finds_a_known_position_without_walking_the_segment_again() {
    let directory = tempfile::tempdir().unwrap();
    let faults = Arc::new(faulty::Faults::default());
    let store = faulty::open_faulty(directory.path(), 16 << 20, &faults).unwrap();
    run(&store, create("jobs")).unwrap();
    let mut begun = page(&store, EventsFrom::Now).next;
    for _ in 0..80 {
        let batch = (0..10).map(|_| submit_to("jobs", payload(vec![7; 10_000]))).collect();
        block_on(store.update(batch)).unwrap();
    }
    let all = read_all(&store, &mut begun);
    let read_next = |event: &Event| {
        let before = faults.bytes_read();
        let from = EventsFrom::After(EventCursor::after(event.id));
        assert!(matches!(block_on(store.events(from, 1)), Ok(Events::Page(page)) if page.events.len() == 1));
        faults.bytes_read() - before
    };
    // Many other readers read at other positions.
    for event in all.iter().take(100) {
        read_next(event);
    }
    let read = read_next(&all[all.len() - 20]);
    assert!(read < 3 << 20, "{read} bytes were read for one event");
}
