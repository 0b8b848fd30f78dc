//! One filter for lists, counts and bulk actions.

use super::Harness;
use super::operations::*;
use super::rig::*;
use futures::executor::block_on;
use towline_domain::item::FailureKind;
use towline_domain::{
    FailureSet, HeadFilter, ItemId, ItemState, Millis, Policy, QueueState, State, StateName, StateSet,
    Submission,
};
use towline_store::{BulkAction, BulkResult, ErrorText, Exclusions, Filter, Operation, bulk, bulk_batch};

fn tagged(name: &str, value: &str) -> Submission {
    let mut submission = payload("work");
    submission.body.tags.insert(name.to_owned(), value.to_owned());
    submission
}

fn of_head(head: HeadFilter) -> Filter {
    Filter { head, ..Filter::default() }
}

fn in_state(state: StateName) -> Filter {
    of_head(HeadFilter { state: Some(state), ..HeadFilter::default() })
}

fn under(name: &str, top: &str) -> Filter {
    Filter { tag_prefixes: vec![(name.to_owned(), top.to_owned())], ..Filter::default() }
}

/// Repeats a bulk action until it has visited all items.
fn run_bulk_action(rig: &Rig, what: &BulkAction, filter: &Filter, chunk: usize) -> BulkResult {
    let mut sum = BulkResult::default();
    loop {
        let acted = block_on(bulk(&*rig.store, what, filter.clone(), sum.next, chunk)).expect("it answers");
        assert!(acted.done <= chunk as u64, "a chunk is at most as large as requested");
        sum.done += acted.done;
        for (code, count) in acted.left {
            *sum.left.entry(code).or_default() += count;
        }
        sum.next = acted.next;
        if sum.next.is_none() {
            rig.check();
            return sum;
        }
    }
}

pub(super) fn a_tag_prefix_matches_whole_segments(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    let paths = ["/ab", "/ab/c", "/abc", "/a", "/ab/", "ab", "/"];
    let ids: Vec<ItemId> = paths.iter().map(|path| rig.submit("jobs", tagged("path", path))).collect();
    let other = rig.submit("jobs", tagged("other", "/ab"));
    let plain = rig.submit("jobs", payload("work"));
    let found = |top: &str| rig.list_ids(&under("path", top));
    assert_eq!(found("/ab"), [ids[0], ids[1], ids[4]], "/ab does not match /abc");
    assert_eq!(found("/ab/"), [ids[0], ids[1], ids[4]]);
    assert_eq!(found("/abc"), [ids[2]]);
    assert_eq!(found("/"), [ids[0], ids[1], ids[2], ids[3], ids[4], ids[6]]);
    assert!(found("/b").is_empty());
    let both = Filter { tags: vec![("path".to_owned(), "/ab/c".to_owned())], ..under("path", "/ab") };
    assert_eq!(rig.list_ids(&both), [ids[1]]);
    let acted = run_bulk_action(&rig, &BulkAction::Delete { force: false }, &under("path", "/ab"), 2);
    assert_eq!(acted.done, 3);
    let left = [ids[2], ids[3], ids[5], ids[6], other, plain];
    assert_eq!(rig.list_ids(&Filter::default()), left, "a delete of /ab leaves /abc");
}

pub(super) fn filters_select_by_numbers_times_and_failures(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, Policy { max_retries: 1, ..plain() });
    let urgent = rig.hold_this("jobs", with_priority(-5));
    rig.advance(10);
    rig.commit(&urgent);
    let tried = rig.hold("jobs");
    rig.lease(&tried, retry("Connection RESET by peer")).expect("retried");
    let tried = rig.take("jobs");
    rig.advance(10);
    assert_eq!(rig.lease(&tried, retry("no route to host")), left(ItemState::Failed));
    let explicit = rig.hold("jobs");
    rig.fail(&explicit);
    let cancelled = rig.submit("jobs", with_priority(7));
    rig.cancel(cancelled);
    let waiting = rig.submit("jobs", with_priority(7));
    let none = HeadFilter::default();
    let at = |millis| Some(START.after(Millis(millis)));
    let cases: Vec<(HeadFilter, Vec<ItemId>)> = vec![
        (HeadFilter { priority_min: Some(1), ..none }, vec![cancelled, waiting]),
        (HeadFilter { priority_max: Some(-1), ..none }, vec![urgent.id]),
        (
            HeadFilter { priority_min: Some(-5), priority_max: Some(0), ..none },
            vec![urgent.id, tried.id, explicit.id],
        ),
        (HeadFilter { priority_min: Some(5), priority_max: Some(-5), ..none }, vec![]),
        (HeadFilter { attempt_min: Some(2), ..none }, vec![tried.id]),
        (HeadFilter { attempt_max: Some(1), ..none }, vec![urgent.id, explicit.id, cancelled, waiting]),
        (HeadFilter { failure: Some(FailureKind::Explicit), ..none }, vec![explicit.id]),
        (HeadFilter { failure: Some(FailureKind::RetriesExhausted), ..none }, vec![tried.id]),
        (HeadFilter { failure: Some(FailureKind::Cancelled), ..none }, vec![cancelled]),
        (HeadFilter { failure: Some(FailureKind::Poison), ..none }, vec![]),
        (HeadFilter { finished_before: at(20), ..none }, vec![urgent.id]),
        (HeadFilter { finished_from: at(10), finished_before: at(11), ..none }, vec![urgent.id]),
        (HeadFilter { finished_from: at(20), ..none }, vec![tried.id, explicit.id, cancelled]),
        (HeadFilter { finished_from: at(20), priority_max: Some(0), ..none }, vec![tried.id, explicit.id]),
    ];
    for (head, expected) in cases {
        assert_eq!(rig.list_ids(&of_head(head)), expected, "{head:?}");
    }
    let error = |text: &str| Filter { error: Some(ErrorText::new(text)), ..Filter::default() };
    assert_eq!(
        rig.list_ids(&error("connection reset")),
        [tried.id],
        "matches an earlier attempt, ignoring case"
    );
    assert_eq!(rig.list_ids(&error("NO ROUTE")), [tried.id]);
    assert_eq!(rig.list_ids(&error("o")), [tried.id, explicit.id, cancelled]);
    assert!(rig.list_ids(&error("timeout")).is_empty());
    let narrowed = Filter { error: Some(ErrorText::new("route")), ..in_state(StateName::Completed) };
    assert!(rig.list_ids(&narrowed).is_empty());
}

pub(super) fn filters_select_what_items_do_not_have(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    let with = |tags: &[(&str, &str)], group: Option<&str>| {
        let mut submission = payload("work");
        submission.body.tags =
            tags.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        submission.body.group = group.map(str::to_owned);
        submission
    };
    let red = rig.submit("jobs", with(&[("color", "red"), ("path", "/a/b")], Some("g")));
    let blue = rig.submit("jobs", with(&[("color", "blue"), ("path", "/ab")], Some("h")));
    let bare = rig.submit("jobs", payload("work"));
    let other = rig.submit("jobs", with(&[("size", "red")], None));
    let pair = |name: &str, value: &str| vec![(name.to_owned(), value.to_owned())];
    let none = Exclusions::default;
    let cases: Vec<(Exclusions, Vec<ItemId>)> = vec![
        (Exclusions { tags: pair("color", "red"), ..none() }, vec![blue, bare, other]),
        (Exclusions { tags: pair("color", "green"), ..none() }, vec![red, blue, bare, other]),
        (
            Exclusions { tags: [pair("color", "red"), pair("size", "red")].concat(), ..none() },
            vec![blue, bare],
        ),
        (Exclusions { tag_names: vec!["color".to_owned()], ..none() }, vec![bare, other]),
        (Exclusions { tag_names: vec![String::new()], ..none() }, vec![red, blue, bare, other]),
        (Exclusions { tag_prefixes: pair("path", "/a"), ..none() }, vec![blue, bare, other]),
        (Exclusions { groups: vec!["g".to_owned()], ..none() }, vec![blue, bare, other]),
        (
            Exclusions { groups: vec!["g".to_owned()], tags: pair("color", "blue"), ..none() },
            vec![bare, other],
        ),
    ];
    // The last round has only terminal items, which a store may keep elsewhere.
    for round in 0..2 {
        for (not, expected) in &cases {
            let filter = Filter { not: not.clone(), ..Filter::default() };
            assert_eq!(rig.list_ids(&filter), *expected, "{round}: {not:?}");
        }
        let both = Filter {
            tags: pair("color", "red"),
            not: Exclusions { groups: vec!["g".to_owned()], ..none() },
            ..Filter::default()
        };
        assert!(rig.list_ids(&both).is_empty());
        let waiting: Vec<ItemId> = rig.receive_ids("jobs", 10);
        waiting.iter().for_each(|&id| rig.cancel(id));
    }
    filters_on_the_head_exclude(&rig, &[red, blue, bare, other]);
}

/// `failed`: all items of the queue "jobs", all of which were cancelled.
fn filters_on_the_head_exclude(rig: &Rig, failed: &[ItemId]) {
    let head = |head| Filter { head, ..Filter::default() };
    let cancelled = FailureSet::default().with(FailureKind::Cancelled);
    let late = rig.submit("jobs", delayed(100));
    let not_failed = HeadFilter { not_failures: cancelled, ..HeadFilter::default() };
    assert_eq!(rig.list_ids(&head(not_failed)), [late], "an item that has not failed matches");
    for (state, expected) in [(StateName::Failed, vec![late]), (StateName::Unfinished, failed.to_vec())] {
        let not_states = StateSet::default().with(state);
        assert_eq!(rig.list_ids(&head(HeadFilter { not_states, ..HeadFilter::default() })), expected);
        let in_jobs =
            Filter { queue: Some(name("jobs")), ..head(HeadFilter { not_states, ..HeadFilter::default() }) };
        assert_eq!(rig.list_ids(&in_jobs), expected);
    }
    let ready = |from: Option<u64>, before: Option<u64>| HeadFilter {
        ready_from: from.map(|millis| START.after(Millis(millis))),
        ready_before: before.map(|millis| START.after(Millis(millis))),
        ..HeadFilter::default()
    };
    assert_eq!(rig.list_ids(&head(ready(Some(100), None))), [late]);
    assert_eq!(rig.list_ids(&head(ready(Some(0), Some(100)))), failed);
    assert!(rig.list_ids(&head(ready(Some(1), Some(100)))).is_empty());
    let delivered =
        |min, max| HeadFilter { deliveries_min: min, deliveries_max: max, ..HeadFilter::default() };
    assert_eq!(rig.list_ids(&head(delivered(Some(1), None))), failed);
    assert_eq!(rig.list_ids(&head(delivered(None, Some(0)))), [late]);
    // A bulk action checks the exclusions again when it changes an item.
    let only = Filter {
        head: HeadFilter { not_states: StateSet::default().with(StateName::Failed), ..HeadFilter::default() },
        ..Filter::default()
    };
    let done = block_on(bulk(&*rig.store, &BulkAction::Delete { force: false }, only, None, 100))
        .expect("it answers");
    assert_eq!(done.done, 1);
    rig.assert_gone(late);
}

pub(super) fn counts_equal_lists(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    rig.create("other", plain());
    for n in 0..60_u64 {
        let mut submission = tagged("parity", if n % 2 == 0 { "even" } else { "odd" });
        submission.body.tags.insert("third".to_owned(), (n % 3).to_string());
        submission.body.group = (n % 4 == 0).then(|| "g".to_owned());
        submission.ready = delayed(if n % 5 == 0 { 100 } else { 0 }).ready;
        rig.submit(if n % 6 == 0 { "other" } else { "jobs" }, submission);
    }
    for (n, held) in rig.receive("jobs", 20).iter().enumerate() {
        match n % 4 {
            0 => rig.commit(held),
            1 => rig.fail(held),
            2 => drop(rig.lease(held, retry("again")).expect("retried")),
            _ => {}
        }
    }
    for after in [0, 100] {
        rig.advance(after);
        for state in [None, Some(StateName::Pending), Some(StateName::Ready), Some(StateName::Completed)] {
            for queue in [None, Some(name("jobs")), Some(name("nowhere"))] {
                for tags in [&[][..], &[("parity", "odd")], &[("parity", "even"), ("third", "1")]] {
                    for group in [None, Some("g".to_owned())] {
                        let tags = tags.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
                        let head = HeadFilter { state, ..HeadFilter::default() };
                        let (queue, tags, group) = (queue.clone(), tags.collect(), group.clone());
                        // `list_ids` also checks the count.
                        rig.list_ids(&Filter { queue, tags, group, ..of_head(head) });
                    }
                }
            }
        }
    }
    assert_eq!(rig.count(&Filter::default()), 60);
    rig.ok(Operation::DeleteQueue { queue: name("other"), force: true });
    assert_eq!(rig.count(&Filter::default()), 50);
}

pub(super) fn a_bulk_action_affects_only_matching_items(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    rig.create("other", plain());
    let red: Vec<ItemId> = (0..7).map(|_| rig.submit("jobs", tagged("color", "red"))).collect();
    let blue: Vec<ItemId> = (0..3).map(|_| rig.submit("jobs", tagged("color", "blue"))).collect();
    let reds = Filter {
        queue: Some(name("jobs")),
        tags: vec![("color".to_owned(), "red".to_owned())],
        ..Filter::default()
    };
    assert_eq!(run_bulk_action(&rig, &BulkAction::Pause, &reds, 3).done, 7);
    assert_eq!((rig.counts("jobs").paused, rig.counts("jobs").pending), (7, 3));
    assert_eq!(run_bulk_action(&rig, &BulkAction::SetPriority { priority: -3 }, &reds, 3).done, 7);
    assert_eq!(run_bulk_action(&rig, &BulkAction::Resume, &reds, 2).done, 7);
    assert_eq!(rig.receive_ids("jobs", 1), [red[0]], "before the others, in their former order");
    let acted = run_bulk_action(&rig, &BulkAction::Move { to: name("other") }, &reds, 4);
    assert_eq!((acted.done, acted.left.get("wrong_state")), (6, Some(&1)), "a leased item is left alone");
    assert_eq!((rig.counts("jobs").total(), rig.counts("other").pending), (4, 6));
    assert_eq!(rig.receive_ids("other", 2), red[1..3]);
    let cancel = BulkAction::Cancel { reason: "stale".to_owned() };
    let everywhere = Filter { queue: None, ..reds };
    assert_eq!(run_bulk_action(&rig, &cancel, &everywhere, 3).done, 7);
    assert_eq!(rig.counts("other").failed, 6);
    let waiting = rig.counts("jobs");
    assert_eq!((waiting.pending, waiting.failed), (3, 1));
    assert_eq!(run_bulk_action(&rig, &BulkAction::Redrive, &everywhere, 3).done, 7);
    assert_eq!(rig.counts("other").pending, 6);
    assert_eq!(
        run_bulk_action(&rig, &BulkAction::Redrive, &everywhere, 3).done,
        0,
        "none of them is failed any more"
    );
    assert_eq!(run_bulk_action(&rig, &BulkAction::Delete { force: false }, &everywhere, 3).done, 7);
    assert_eq!(rig.list_ids(&Filter::default()), blue);
}

pub(super) fn a_bulk_action_skips_items_that_no_longer_match(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    rig.create("other", plain());
    let ids = rig.submit_many("jobs", 6);
    let jobs = |state| Filter { queue: Some(name("jobs")), ..in_state(state) };
    let find = |what: &BulkAction, filter: Filter| {
        block_on(bulk_batch(&*rig.store, what, filter, None, 100)).expect("the store answers").0
    };
    let codes = |batch| rig.update(batch).iter().map(code).collect::<Vec<_>>();
    // The batch was built when all were pending. Then one is received, one moved, one deleted.
    let batch = find(&BulkAction::Delete { force: true }, jobs(StateName::Pending));
    assert_eq!(batch.len(), 6);
    let held = rig.take("jobs");
    rig.ok(Operation::Move { id: ids[1], to: name("other") });
    rig.delete(ids[2]);
    assert_eq!(codes(batch), ["wrong_state", "wrong_state", "item_not_found", "ok", "ok", "ok"]);
    assert_eq!(rig.list_ids(&Filter::default()), ids[..2]);
    // The batch was built while the item was leased. Then its holder commits it.
    let batch = find(&BulkAction::Delete { force: true }, jobs(StateName::Processing));
    rig.commit(&held);
    assert_eq!(codes(batch), ["wrong_state"]);
    assert!(matches!(rig.item(held.id).head.state, State::Completed { .. }));
    // The batch was built when the item had failed in one way. Then it fails in another way.
    let failed = rig.hold("jobs");
    rig.fail(&failed);
    let kind = HeadFilter { failure: Some(FailureKind::Explicit), ..HeadFilter::default() };
    let batch = find(&BulkAction::Redrive, of_head(kind));
    rig.ok(Operation::Redrive { id: failed.id });
    rig.cancel(failed.id);
    assert_eq!(codes(batch), ["wrong_state"]);
}

pub(super) fn a_deleted_item_never_comes_back(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, lenient());
    let held = rig.hold("jobs");
    assert_eq!(run_bulk_action(&rig, &BulkAction::Delete { force: true }, &Filter::default(), 10).done, 1);
    for verb in [retry("late"), release(), defer(1), commit()] {
        assert_eq!(code(&rig.lease(&held, verb)), "item_not_found");
    }
    rig.at(START.after(Millis::days(1)));
    assert!(rig.receive("jobs", 10).is_empty());
    rig.assert_gone(held.id);
}

pub(super) fn a_changed_priority_keeps_the_ready_time(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    let ids = rig.submit_many("jobs", 4);
    rig.advance(5);
    let scheduled = rig.submit("jobs", delayed(100));
    let set = |id, priority| rig.run(Operation::SetPriority { id, priority });
    assert_eq!(set(ids[3], -1), left(ItemState::Pending));
    assert_eq!(set(ids[0], 1), left(ItemState::Pending));
    assert_eq!(set(scheduled, -2), left(ItemState::Pending));
    let before = rig.item(ids[3]);
    assert_eq!(set(ids[3], -1), left(ItemState::Pending));
    assert_eq!(rig.item(ids[3]), before, "a repeat changes nothing");
    assert_eq!(rig.receive_ids("jobs", 10), [ids[3], ids[1], ids[2], ids[0]]);
    rig.advance(100);
    assert_eq!(rig.receive_ids("jobs", 10), [scheduled]);
    assert_eq!(code(&set(scheduled, 0)), "wrong_state");
    assert_eq!(code(&set(chosen_id(), 0)), "item_not_found");
}

fn chosen_id() -> ItemId {
    chosen(404)
}

pub(super) fn a_moved_item_is_ordered_by_its_ready_time(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    rig.create("other", plain());
    let first = rig.submit("jobs", keyed("k", "work"));
    rig.advance(5);
    let second = rig.submit("other", payload("work"));
    let go = |id, to: &str| rig.run(Operation::Move { id, to: name(to) });
    assert_eq!(code(&go(first, "nowhere")), "queue_not_found");
    rig.close("jobs");
    assert_eq!(go(first, "other"), left(ItemState::Pending));
    assert!(matches!(rig.queue_state("jobs"), QueueState::Completed { .. }), "the last item left the queue");
    assert_eq!(code(&go(first, "jobs")), "queue_closed");
    assert_eq!(rig.stored(first).queue, name("other"));
    assert_eq!(go(first, "other"), left(ItemState::Pending), "the item is in that queue");
    assert_eq!(rig.receive_ids("other", 10), [first, second]);
    assert_eq!(code(&go(first, "jobs")), "wrong_state");
}
