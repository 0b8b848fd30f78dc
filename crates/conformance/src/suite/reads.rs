//! Reads: by id, by filter, page by page during writes.

use super::Harness;
use super::operations::*;
use super::rig::*;
use futures::executor::block_on;
use std::collections::BTreeSet;
use towline_domain::{FieldSet, HeadFilter, Item, ItemId, Millis, StateName};
use towline_store::{ErrorText, Filter, Operation, StoredItem};

pub(super) fn get_returns_items_in_the_requested_order(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    let ids = rig.submit_many("jobs", 3);
    let gone = rig.submit("jobs", payload("gone"));
    rig.delete(gone);
    let asked = vec![ids[2], chosen(404), ids[0], ids[2], gone, ids[1]];
    let found = block_on(rig.store.get(asked.clone(), FieldSet::ALL)).expect("the store answers");
    let found: Vec<_> =
        found.iter().map(|stored| stored.as_ref().map(|stored| stored.item.head.id)).collect();
    assert_eq!(found, [Some(ids[2]), None, Some(ids[0]), Some(ids[2]), None, Some(ids[1])]);
    assert!(block_on(rig.store.get(Vec::new(), FieldSet::ALL)).expect("the store answers").is_empty());
}

pub(super) fn lists_are_in_the_order_of_submission(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    rig.create("other", plain());
    let mut ids = Vec::new();
    for n in 0..12_u16 {
        let queue = if n % 3 == 0 { "other" } else { "jobs" };
        let mut submission = with_priority(-i16::try_from(n).expect("small"));
        // Neither a chosen id nor a ready time changes the order of a list.
        submission.id = (n % 4 == 0).then(|| chosen(u128::from(100 - n)));
        submission.ready = delayed(u64::from(n % 5)).ready;
        ids.push(rig.submit(queue, submission));
        rig.advance(u64::from(n % 2));
    }
    assert_eq!(rig.list_ids(&Filter::default()), ids);
    // Later transitions do not change it either.
    rig.advance(10);
    let held = rig.receive("jobs", 5);
    rig.commit(&held[0]);
    rig.run(held[1].call_with(release(), to_queue("other"))).expect("moved");
    rig.lease(&held[2], retry("e")).expect("retried");
    rig.fail(&held[3]);
    rig.ok(Operation::Redrive { id: held[3].id });
    assert_eq!(rig.list_ids(&Filter::default()), ids);
    for limit in [1, 2, 5, 100] {
        let listed = rig.list_paged(&Filter::default(), limit, FieldSet::NONE);
        assert!(listed.iter().map(|stored| &stored.item.head.id).eq(&ids));
    }
}

pub(super) fn a_list_returns_complete_items(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    let held = rig.hold_this("jobs", keyed("k", "work"));
    rig.lease(&held, retry("first")).expect("retried");
    rig.submit("jobs", delayed(100));
    rig.take("jobs");
    for stored in rig.list(&Filter::default()) {
        assert_eq!(Some(&stored), rig.find(stored.item.head.id).as_ref());
    }
}

pub(super) fn heads_equal_those_of_complete_items(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    let held = rig.hold_this("jobs", keyed("k", "work"));
    rig.lease(&held, retry("first")).expect("retried");
    let mut tagged = payload("work");
    tagged.body.tags = [("color".to_owned(), "red".to_owned())].into();
    rig.submit("jobs", tagged);
    rig.submit("jobs", payload("work"));
    let filters = [
        (Filter::default(), 3),
        (Filter { tags: vec![("color".to_owned(), "red".to_owned())], ..Filter::default() }, 1),
        (Filter { tag_prefixes: vec![("color".to_owned(), "red".to_owned())], ..Filter::default() }, 1),
        (Filter { idempotency_key: Some("k".to_owned()), ..Filter::default() }, 1),
        (Filter { error: Some(ErrorText::new("FIRST")), ..Filter::default() }, 1),
        (Filter { error: Some(ErrorText::new("second")), ..Filter::default() }, 0),
    ];
    for (filter, expected) in filters {
        let whole = rig.list(&filter);
        let heads = rig.list_paged(&filter, 10, FieldSet::HEADS);
        let of = |stored: &StoredItem| (stored.queue.clone(), stored.item.head.clone());
        assert_eq!(whole.len(), expected, "{filter:?}");
        assert!(whole.iter().map(of).eq(heads.iter().map(of)), "{filter:?}: {heads:?}");
    }
    let got = block_on(rig.store.get(vec![held.id], FieldSet::HEADS)).expect("the store answers");
    let whole = rig.item(held.id);
    assert_eq!(got, [Some(StoredItem { queue: name("jobs"), item: Item::of_head(whole.head) })]);
}

pub(super) fn filters_select_items(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    rig.create("other", plain());
    let labelled = |tags: &[(&str, &str)], group: Option<&str>, key: Option<&str>| {
        let mut submission = payload("work");
        submission.body.tags =
            tags.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        submission.body.group = group.map(str::to_owned);
        submission.body.idempotency_key = key.map(str::to_owned);
        submission
    };
    let a = rig.submit("jobs", labelled(&[("color", "red"), ("size", "s")], Some("g1"), Some("k")));
    rig.advance(10);
    let b = rig.submit("jobs", labelled(&[("color", "red"), ("size", "m")], Some("g2"), None));
    let c = rig.submit("other", labelled(&[("color", "blue")], Some("g1"), Some("k")));
    rig.advance(10);
    let d = rig.submit("other", labelled(&[("color", "red")], None, Some("k2")));
    let e = rig.submit("jobs", labelled(&[], None, None));
    let tags = |tags: &[(&str, &str)]| Filter {
        tags: tags.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        ..Filter::default()
    };
    let key = |key: &str| Filter { idempotency_key: Some(key.to_owned()), ..Filter::default() };
    let group = |group: &str| Filter { group: Some(group.to_owned()), ..Filter::default() };
    let queue = |queue: &str, filter: Filter| Filter { queue: Some(name(queue)), ..filter };
    let of_head = |head| Filter { head, ..Filter::default() };
    let created = |from: Option<u64>, before: Option<u64>| {
        of_head(HeadFilter {
            created_from: from.map(|millis| START.after(Millis(millis))),
            created_before: before.map(|millis| START.after(Millis(millis))),
            ..HeadFilter::default()
        })
    };
    let cases: Vec<(Filter, Vec<ItemId>)> = vec![
        (Filter::default(), vec![a, b, c, d, e]),
        (queue("jobs", Filter::default()), vec![a, b, e]),
        (queue("nowhere", Filter::default()), vec![]),
        (tags(&[("color", "red")]), vec![a, b, d]),
        (tags(&[("color", "red"), ("size", "m")]), vec![b]),
        (tags(&[("color", "red"), ("color", "blue")]), vec![]),
        (tags(&[("red", "color")]), vec![]),
        (queue("other", tags(&[("color", "red")])), vec![d]),
        (key("k"), vec![a, c]),
        (queue("other", key("k")), vec![c]),
        (key("nobody's"), vec![]),
        (group("g1"), vec![a, c]),
        (queue("jobs", group("g1")), vec![a]),
        (created(Some(10), None), vec![b, c, d, e]),
        (created(None, Some(10)), vec![a]),
        (created(Some(10), Some(20)), vec![b, c]),
        (created(Some(20), Some(20)), vec![]),
        (created(Some(21), None), vec![]),
    ];
    for (filter, expected) in cases {
        assert_eq!(rig.list_ids(&filter), expected, "{filter:?}");
    }
    let combined = Filter {
        head: HeadFilter {
            state: Some(StateName::Ready),
            created_from: Some(START.after(Millis(10))),
            ..HeadFilter::default()
        },
        ..queue("jobs", tags(&[("color", "red")]))
    };
    assert_eq!(rig.list_ids(&combined), [b]);
    rig.delete(b);
    assert!(rig.list_ids(&combined).is_empty());
}

pub(super) fn filters_select_by_state(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    let completed = rig.hold("jobs");
    rig.commit(&completed);
    let failed = rig.hold("jobs");
    rig.fail(&failed);
    let processing = rig.hold("jobs");
    let paused = rig.submit("jobs", payload("work"));
    rig.ok(Operation::Pause { id: paused });
    let scheduled = rig.submit("jobs", delayed(100));
    let pending = rig.submit("jobs", payload("work"));
    let in_state = |state| {
        let head = HeadFilter { state: Some(state), ..HeadFilter::default() };
        rig.list_ids(&Filter { queue: Some(name("jobs")), head, ..Filter::default() })
    };
    assert_eq!(in_state(StateName::Pending), [scheduled, pending]);
    assert_eq!(in_state(StateName::Ready), [pending]);
    assert_eq!(in_state(StateName::Scheduled), [scheduled]);
    assert_eq!(in_state(StateName::Processing), [processing.id]);
    assert_eq!(in_state(StateName::Paused), [paused]);
    assert_eq!(in_state(StateName::Completed), [completed.id]);
    assert_eq!(in_state(StateName::Failed), [failed.id]);
    assert_eq!(in_state(StateName::Unfinished), [processing.id, paused, scheduled, pending]);
    rig.advance(100);
    assert_eq!(in_state(StateName::Ready), [scheduled, pending], "ready by time, without an update");
    assert!(in_state(StateName::Scheduled).is_empty());
}

pub(super) fn a_list_shows_each_remaining_item_once_during_changes(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    rig.create("other", plain());
    let ids = rig.submit_many("jobs", 40);
    let jobs = Filter { queue: Some(name("jobs")), ..Filter::default() };
    let mut deleted = BTreeSet::new();
    let mut added = Vec::new();
    let mut seen = Vec::new();
    let mut after = None;
    for round in 0.. {
        let page = block_on(rig.store.list(jobs.clone(), after, 4, FieldSet::NONE)).expect("it answers");
        seen.extend(page.items.iter().map(|stored| stored.item.head.id));
        let Some(next) = page.next else { break };
        after = Some(next);
        // Delete before the cursor, at the cursor and after it.
        for n in [round * 4, round * 4 + 3, round * 4 + 6] {
            if n < ids.len() && n % 5 == 1 && deleted.insert(ids[n]) {
                rig.delete(ids[n]);
            }
        }
        if round < 5 {
            added.push(rig.submit("jobs", payload("added")));
            rig.submit("other", payload("noise"));
            for held in rig.receive("jobs", 2) {
                rig.lease(&held, retry("e")).expect("retried");
            }
        }
    }
    assert!(!deleted.is_empty());
    let once: BTreeSet<_> = seen.iter().copied().collect();
    assert_eq!(once.len(), seen.len(), "no item appears twice");
    for id in ids.iter().filter(|id| !deleted.contains(id)).chain(&added) {
        assert!(once.contains(id), "{id} was never deleted and did not appear");
    }
}

pub(super) fn a_cursor_stays_valid_after_its_item_is_deleted(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    let ids = rig.submit_many("jobs", 6);
    let page =
        |after| block_on(rig.store.list(Filter::default(), after, 3, FieldSet::NONE)).expect("it answers");
    let next = page(None).next;
    assert!(next.is_some());
    for &id in &ids[..3] {
        rig.delete(id);
    }
    let rest: Vec<_> = page(next).items.iter().map(|stored| stored.item.head.id).collect();
    assert_eq!(rest, ids[3..]);
}

pub(super) fn a_page_has_a_minimum_and_a_maximum_size(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    let ids = rig.submit_many("jobs", 3);
    let mut seen = Vec::new();
    let mut after = None;
    for _ in 0..10 {
        let page = block_on(rig.store.list(Filter::default(), after, 0, FieldSet::NONE)).expect("it answers");
        assert!(page.items.len() <= 1);
        seen.extend(page.items.iter().map(|stored| stored.item.head.id));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(seen, ids, "a page with limit 0 still has one item");
    let page = block_on(rig.store.list(Filter::default(), None, usize::MAX, FieldSet::NONE));
    assert_eq!(page.expect("it answers").items.len(), 3);
    let views = block_on(rig.store.queues(None, usize::MAX)).expect("the store answers");
    assert_eq!(views.len(), 1);
}
