//! Events: each change emits one event, in order, and a reader can continue from a cursor.

use super::Harness;
use super::operations::*;
use super::restore::{Elsewhere, restores};
use super::rig::*;
use crate::ReferenceStore;
use futures::executor::block_on;
use std::collections::BTreeMap;
use std::time::Duration;
use towline_domain::{
    EventKind, FailureKind, ItemEventState, ItemId, ItemState, Millis, Overrides, Policy, StateKind,
    Submission,
};
use towline_store::{Event, EventCursor, EventPage, Events, EventsFrom, Operation, Store};

impl Rig {
    #[track_caller]
    pub(super) fn page(&self, from: EventsFrom, limit: usize) -> EventPage {
        match block_on(self.store.events(from, limit)).expect("the store answers") {
            Events::Page(page) => {
                assert!(page.events.len() <= limit, "a page is at most as long as requested");
                page
            }
            other => panic!("not {other:?}"),
        }
    }

    /// All events from a position, read in pages of `limit`, and the cursor after them.
    #[track_caller]
    pub(super) fn read_events(&self, from: EventsFrom, limit: usize) -> (Vec<Event>, EventCursor) {
        let mut all: Vec<Event> = Vec::new();
        let mut from = from;
        loop {
            let EventPage { events, next, more } = self.page(from, limit);
            match (events.is_empty(), more) {
                (true, false) => return (all, next),
                // Other threads write meanwhile, so a page may be followed by more.
                (true, true) => std::thread::sleep(Duration::from_millis(1)),
                _ => {}
            }
            all.extend(events);
            from = EventsFrom::After(next);
        }
    }

    #[track_caller]
    fn all_events(&self) -> Vec<Event> {
        self.read_events(EventsFrom::Oldest, 1000).0
    }

    /// The cursor of the current end of the event stream. It is after every earlier event.
    #[track_caller]
    pub(super) fn current_end(&self) -> EventCursor {
        let EventPage { events, next, .. } = self.page(EventsFrom::Now, 1000);
        assert_eq!(events, [], "reading from now returns no past event");
        for event in self.all_events() {
            assert!(next.has_passed(event.id), "{next} is before {event:?}");
        }
        next
    }

    /// The kinds of an item's events, in order.
    #[track_caller]
    fn kinds_of(&self, id: ItemId) -> Vec<&'static str> {
        of_item(&self.all_events(), id).iter().map(|event| event.kind.name()).collect()
    }

    #[track_caller]
    fn last_of(&self, id: ItemId) -> (EventKind, String, ItemEventState) {
        let all = self.all_events();
        let event = of_item(&all, id).last().copied().cloned().expect("the item has an event");
        let queue = event.queue.expect("the event names its queue").to_string();
        let after = event.item.and_then(|item| item.after).expect("the item still exists");
        (event.kind, queue, after)
    }
}

fn of_item(events: &[Event], id: ItemId) -> Vec<&Event> {
    events.iter().filter(|event| event.item.as_ref().is_some_and(|item| item.id == id)).collect()
}

/// The events of queues, without duplicates: each shard emits its own.
fn of_queues(events: &[Event]) -> Vec<(&'static str, String)> {
    let mut seen = Vec::new();
    for event in events.iter().filter(|event| event.item.is_none()) {
        let queue = event.queue.as_ref().expect("the event names the queue");
        let this = (event.kind.name(), queue.to_string());
        if !seen.contains(&this) {
            seen.push(this);
        }
    }
    seen
}

pub(super) fn each_transition_emits_one_event(harness: &dyn Harness) {
    let policy = Policy { max_retries: 10, ..lenient() };
    let rig = Rig::with_queue(harness, policy);
    let id = rig.submit("jobs", payload("work"));
    let (kind, queue, after) = rig.last_of(id);
    assert_eq!(
        (kind, &*queue, after.state, after.attempt),
        (EventKind::Submitted, "jobs", StateKind::Pending, 1)
    );
    assert_eq!(after.deadline, None);
    let held = rig.take("jobs");
    let (kind, _, after) = rig.last_of(id);
    assert_eq!((kind, after.state, after.deliveries), (EventKind::Received, StateKind::Processing, 1));
    assert_eq!(after.deadline, Some(held.deadline()));
    rig.lease(&held, heartbeat()).expect("held");
    rig.lease(&held, retry("no luck")).expect("held");
    let (kind, _, after) = rig.last_of(id);
    assert_eq!((kind, after.state, after.attempt), (EventKind::Retried, StateKind::Pending, 2));
    assert_eq!((after.failure, after.reason.as_deref()), (None, Some("no luck")));
    rig.lease(&rig.take("jobs"), release()).expect("held");
    rig.lease(&rig.take("jobs"), defer(0)).expect("held");
    let held = rig.take("jobs");
    rig.at(held.deadline());
    rig.ok(Operation::Pause { id });
    rig.ok(Operation::Resume { id });
    rig.ok(Operation::SetPriority { id, priority: 3 });
    rig.fail(&rig.take("jobs"));
    let (kind, _, after) = rig.last_of(id);
    assert_eq!((kind, after.state), (EventKind::Failed, StateKind::Failed));
    assert_eq!((after.failure, after.reason.as_deref()), (Some(FailureKind::Explicit), Some("broken")));
    rig.ok(Operation::Redrive { id });
    rig.commit(&rig.take("jobs"));
    rig.delete(id);
    let expected = [
        "item.submitted",
        "item.received",
        "lease.renewed",
        "item.retried",
        "item.received",
        "item.released",
        "item.received",
        "item.deferred",
        "item.received",
        "lease.lapsed",
        "item.paused",
        "item.resumed",
        "item.prioritized",
        "item.received",
        "item.failed",
        "item.redriven",
        "item.received",
        "item.completed",
        "item.removed",
    ];
    assert_eq!(rig.kinds_of(id), expected);
    let all = rig.all_events();
    let last = of_item(&all, id)[expected.len() - 1];
    assert_eq!(last.item.as_ref().and_then(|item| item.after.as_ref()), None, "the item is removed");
    assert_eq!(last.queue.as_ref().map(|queue| queue.as_str()), Some("jobs"));
    assert_eq!(last.at, rig.now());
}

pub(super) fn transitions_by_time_emit_events(harness: &dyn Harness) {
    let visibility_timeout = Millis(100);
    let rig =
        Rig::with_queue(harness, Policy { completed_ttl: Some(Millis(50)), visibility_timeout, ..lenient() });
    let overrides = Overrides { expire_after: Some(Millis(10)), ..Overrides::default() };
    rig.create("late", lenient());
    let expired = rig.submit("late", Submission { overrides, ..payload("late") });
    let done: Vec<_> = (0..20).map(|_| rig.hold("jobs")).collect();
    done.iter().for_each(|held| rig.commit(held));
    rig.at(rig.now().after(Millis(10)));
    let (kind, _, after) = rig.last_of(expired);
    assert_eq!((kind, after.failure), (EventKind::Expired, Some(FailureKind::Expired)));
    rig.at(rig.now().after(Millis(100)));
    for held in &done {
        rig.assert_gone(held.id);
        assert_eq!(rig.kinds_of(held.id), ["item.submitted", "item.received", "item.completed"]);
    }
}

pub(super) fn queue_changes_emit_events(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    let queue = || name("jobs");
    rig.ok(Operation::PauseQueue { queue: queue() });
    rig.ok(Operation::ResumeQueue { queue: queue() });
    // A repeat changes nothing.
    rig.ok(Operation::ResumeQueue { queue: queue() });
    let held = rig.hold("jobs");
    rig.close("jobs");
    rig.commit(&held);
    rig.ok(Operation::DeleteQueue { queue: queue(), force: true });
    rig.create("jobs", plain());
    let all = rig.all_events();
    let events = of_queues(&all);
    let kinds = [
        "queue.created",
        "queue.paused",
        "queue.resumed",
        "queue.closed",
        "queue.completed",
        "queue.deleted",
    ];
    assert_eq!(events, kinds.map(|kind| (kind, "jobs".to_owned())));
    // Events of a deleted queue and its items still carry the name of the queue.
    let names = of_item(&all, held.id).iter().map(|event| event.queue.clone()).collect::<Vec<_>>();
    assert_eq!(names, vec![Some(queue()); 3]);
}

pub(super) fn refused_and_repeated_operations_emit_no_event(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, Policy { depth_limit: Some(2), ..plain() });
    let id = rig.submit("jobs", keyed("key", "work"));
    let held = rig.take("jobs");
    rig.commit(&held);
    let (before, cursor) = rig.read_events(EventsFrom::Oldest, 1000);
    assert_eq!(rig.lease(&held, commit()), left(ItemState::Completed), "a repeat of the same call");
    assert_eq!(submitted(&rig.run(submit("jobs", keyed("key", "work")))), (id, false));
    rig.refused(submit("nowhere", payload("work")));
    rig.refused(held.call(fail("too late")));
    rig.refused(Operation::Pause { id });
    rig.create("jobs", Policy { depth_limit: Some(2), ..plain() });
    rig.receive("jobs", 10);
    rig.sweep();
    // A refused operation does not affect the events of its batch.
    let batch =
        vec![submit("jobs", payload("1")), submit("nowhere", payload("x")), submit("jobs", payload("2"))];
    let answers = rig.update(batch);
    let ids: Vec<ItemId> = [&answers[0], &answers[2]].map(|answer| submitted(answer).0).into();
    let (after, _) = rig.read_events(EventsFrom::After(cursor), 1000);
    let events: Vec<_> =
        after.iter().map(|event| event.item.as_ref().expect("an event of an item").id).collect();
    assert_eq!(events.len(), ids.len(), "{after:?}");
    assert!(ids.iter().all(|id| events.contains(id)));
    assert_eq!(rig.all_events().len(), before.len() + after.len());
}

pub(super) fn a_reader_continues_after_its_cursor(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    let batch: Vec<_> = (0..20).map(|n| submit("jobs", payload(n.to_string()))).collect();
    let ids: Vec<ItemId> = rig.update(batch).iter().map(|answer| submitted(answer).0).collect();
    for _ in 0..5 {
        rig.commit(&rig.take("jobs"));
    }
    let whole = rig.all_events();
    assert_eq!(whole.iter().filter(|event| event.item.is_some()).count(), 20 + 5 + 5);
    for limit in [1, 3, 7] {
        let (mut paged, _) = rig.read_events(EventsFrom::Oldest, limit);
        assert_eq!(paged.len(), whole.len(), "in pages of {limit}");
        for id in &ids {
            assert_eq!(of_item(&paged, *id), of_item(&whole, *id), "in pages of {limit}");
        }
        // Each event id appears once, in order within each store.
        paged.sort_by_key(|event| event.id);
        assert!(paged.windows(2).all(|pair| pair[0].id < pair[1].id));
    }
    // A reader can continue after any event.
    let mut cursor = EventCursor::default();
    for (seen, event) in (1..).zip(&whole) {
        cursor.pass(event.id);
        let text = cursor.to_string();
        let Ok(Events::Page(page)) =
            block_on(rig.store.events(EventsFrom::After(text.parse().expect("a valid cursor")), 1000))
        else {
            panic!("the store refused its own cursor {text}")
        };
        let mut left: BTreeMap<_, u32> = whole[seen..].iter().map(|event| (event.id, 1)).collect();
        // A shard that the cursor does not name returns all its events.
        left.extend(whole[..seen].iter().filter(|past| !cursor.has_passed(past.id)).map(|past| (past.id, 1)));
        assert_eq!(page.events.iter().map(|event| event.id).collect::<Vec<_>>().len(), left.len(), "{text}");
        assert!(page.events.iter().all(|event| left.contains_key(&event.id)));
    }
}

pub(super) fn reading_from_now_returns_only_later_events(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    rig.submit("jobs", payload("before"));
    let now = rig.current_end();
    assert_eq!(rig.read_events(EventsFrom::After(now.clone()), 10).0, []);
    let id = rig.submit("jobs", payload("after"));
    let (events, _) = rig.read_events(EventsFrom::After(now), 10);
    assert_eq!(
        events.iter().map(|event| event.item.as_ref().map(|item| item.id)).collect::<Vec<_>>(),
        [Some(id)]
    );
}

pub(super) fn an_empty_store_has_no_events(harness: &dyn Harness) {
    let rig = Rig::open(harness);
    let (events, oldest) = rig.read_events(EventsFrom::Oldest, 10);
    assert_eq!(events, []);
    let now = rig.current_end();
    rig.create("jobs", plain());
    for cursor in [oldest, now] {
        let (events, _) = rig.read_events(EventsFrom::After(cursor), 10);
        assert_eq!(of_queues(&events), [("queue.created", "jobs".to_owned())]);
    }
}

pub(super) fn an_event_carries_a_chosen_id(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    let id = rig.submit("jobs", with_id(17));
    assert_eq!(id, chosen(17));
    let held = rig.take("jobs");
    rig.commit(&held);
    rig.delete(id);
    let all = ["item.submitted", "item.received", "item.completed", "item.removed"];
    assert_eq!(rig.kinds_of(id), all);
    let Some(rig) = rig.reopen(harness) else { return };
    assert_eq!(rig.kinds_of(id), all);
}

pub(super) fn the_event_of_a_dead_letter_names_the_queue_where_it_failed(harness: &dyn Harness) {
    let rig = Rig::open(harness);
    rig.create("dead", plain());
    rig.create("jobs", Policy { dead_letter_queue: Some(name("dead")), ..plain() });
    let held = rig.hold("jobs");
    rig.fail(&held);
    let (kind, queue, after) = rig.last_of(held.id);
    assert_eq!((kind, &*queue), (EventKind::Failed, "dead"));
    assert_eq!(after.origin, Some(name("jobs")));
}

pub(super) fn a_restored_item_emits_one_event(harness: &dyn Harness) {
    let from = Rig::with_queue(&Elsewhere, lenient());
    let held = from.hold("jobs");
    let id = held.id;
    from.lease(&held, retry("one")).expect("held");
    from.lease(&from.take("jobs"), retry("two")).expect("held");
    from.commit(&from.take("jobs"));
    let rig = Rig::with_queue(harness, lenient());
    restores(&from).into_iter().for_each(|operation| drop(rig.ok(operation)));
    assert_eq!(rig.kinds_of(id), ["item.restored"]);
    assert_eq!(rig.last_of(id).2.state, StateKind::Completed);
}

pub(super) fn events_survive_a_reopen(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    let ids = rig.submit_many("jobs", 10);
    rig.commit(&rig.take("jobs"));
    let (before, end) = rig.read_events(EventsFrom::Oldest, 1000);
    let middle = {
        let mut cursor = end.clone();
        cursor.pass(before[before.len() / 2].id);
        cursor
    };
    let (rest, _) = rig.read_events(EventsFrom::After(middle.clone()), 1000);
    let Some(rig) = rig.reopen(harness) else { return };
    let events = rig.all_events();
    assert_eq!(events.len(), before.len());
    for id in ids {
        assert_eq!(of_item(&events, id), of_item(&before, id));
    }
    assert_eq!(rig.read_events(EventsFrom::After(middle), 1000).0, rest);
    assert_eq!(rig.read_events(EventsFrom::After(end.clone()), 1000).0, []);
    let id = rig.submit("jobs", payload("new"));
    let (events, _) = rig.read_events(EventsFrom::After(end.clone()), 1000);
    assert_eq!(
        events.iter().map(|event| event.item.as_ref().map(|item| item.id)).collect::<Vec<_>>(),
        [Some(id)]
    );
    assert!(events.iter().all(|event| !end.has_passed(event.id)), "a later event has a larger id");
}

pub(super) fn a_cursor_of_another_store_is_refused(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    let other = ReferenceStore::new(rig.clock.clone(), 0x0dd5_a17f_00d5_a17f);
    let Ok(Events::Page(EventPage { next: cursor, .. })) = block_on(other.events(EventsFrom::Now, 1)) else {
        panic!("no page of events")
    };
    let events = block_on(rig.store.events(EventsFrom::After(cursor), 10)).expect("the store answers");
    assert_eq!(events, Events::Elsewhere);
    // A cursor after the last event is refused too.
    let mut ahead = rig.current_end();
    let events = rig.all_events();
    let id = events.last().expect("the event of the queue").id;
    ahead.pass(towline_store::EventId { group: u64::MAX / 4, ..id });
    assert_eq!(block_on(rig.store.events(EventsFrom::After(ahead), 10)).expect("it answers"), Events::Gone);
}
