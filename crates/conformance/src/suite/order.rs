//! The order in which receivers get ready items.

use super::Harness;
use super::operations::*;
use super::rig::*;
use towline_domain::command::{Verb, When};
use towline_domain::{
    Backoff, Fairness, Flow, ItemId, Millis, Order, Policy, ScoreWeights, Submission, Timestamp,
    backoff::Growth,
};
use towline_store::Operation;

fn ordered(order: Order) -> Policy {
    Policy { order, ..plain() }
}

fn scored() -> Policy {
    ordered(Order::Score(Box::new(ScoreWeights { age_unit: Millis::seconds(1), ..ScoreWeights::default() })))
}

/// Receives all ready items in batches of `max`.
#[track_caller]
fn drain(rig: &Rig, max: u32) -> Vec<ItemId> {
    let mut all = Vec::new();
    loop {
        let batch = rig.receive_ids("jobs", max);
        assert!(batch.len() <= max as usize);
        if batch.is_empty() {
            return all;
        }
        all.extend(batch);
    }
}

pub(super) fn fifo_order_is_by_ready_time_then_submission(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, ordered(Order::Fifo));
    let at = |millis| Submission { ready: When::At(START.after(Millis(millis))), ..payload("work") };
    let now_low = rig.submit("jobs", with_priority(100));
    let now_high = rig.submit("jobs", with_priority(-100));
    let late = rig.submit("jobs", at(300));
    let early = rig.submit("jobs", at(100));
    let tied = rig.submit("jobs", at(300));
    rig.advance(200);
    let plain = rig.submit("jobs", payload("work"));
    rig.advance(200);
    let last = rig.submit("jobs", with_priority(-5));
    assert_eq!(drain(&rig, 3), [now_low, now_high, early, plain, late, tied, last]);
}

pub(super) fn priority_order_is_lower_first_then_ready_time_then_submission(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    let at = |priority, millis| Submission { ready: When::After(Millis(millis)), ..with_priority(priority) };
    let batch = [
        at(0, 0),
        at(5, 0),
        at(-5, 20),
        at(0, 10),
        at(-5, 10),
        at(i16::MAX, 0),
        at(i16::MIN, 30),
        at(0, 0),
        at(-5, 10),
        at(0, 10),
    ];
    let batch = batch.into_iter().map(|submission| submit("jobs", submission)).collect();
    let ids: Vec<_> = rig.update(batch).iter().map(|answer| submitted(answer).0).collect();
    rig.advance(15);
    let more = rig.submit("jobs", at(0, 0));
    rig.advance(15);
    let order = [6, 4, 8, 2, 0, 7, 3, 9];
    let mut expected: Vec<_> = order.iter().map(|&n| ids[n]).collect();
    expected.extend([more, ids[1], ids[5]]);
    assert_eq!(drain(&rig, 4), expected);
}

pub(super) fn score_order_is_highest_first_and_grows_with_age(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, scored());
    let offer = |fee, size, tier: Option<&str>| {
        let mut submission = payload("work");
        submission.body.fee = Some(fee);
        submission.body.size_bytes = Some(size);
        submission.body.tier = tier.map(str::to_owned);
        // Priority has no effect in score order.
        submission.priority = i16::try_from(fee % 1000).expect("small");
        submission
    };
    let poor = rig.submit("jobs", offer(0, 0, None));
    let rich = rig.submit("jobs", offer(100_000, 0, None));
    let middle = rig.submit("jobs", offer(1000, 0, None));
    let large = rig.submit("jobs", offer(1000, 100 << 20, None));
    let premium = rig.submit("jobs", offer(1000, 0, Some("PREMIUM")));
    let twin = rig.submit("jobs", offer(1000, 0, None));
    rig.advance(10_000);
    let late_rich = rig.submit("jobs", offer(100_000, 0, None));
    let unknown = rig.run(submit("jobs", offer(1, 1, Some("GOLD"))));
    assert_eq!(code(&unknown), "invalid");
    // Ten seconds of age add 10 times 0.25 to the score, more than any fee here.
    let order = [rich, premium, middle, twin, large, poor, late_rich];
    assert_eq!(rig.receive_ids("jobs", 2), order[..2]);
    let held = rig.receive("jobs", 2);
    assert_eq!([held[0].id, held[1].id], order[2..4]);
    // An item keeps its score, so it keeps its position when it is returned.
    rig.advance(1000);
    rig.lease(&held[1], release()).expect("released");
    rig.lease(&held[0], retry("again")).expect("retried");
    assert_eq!(drain(&rig, 10), order[2..]);
}

pub(super) fn an_item_that_moves_to_a_scored_queue_gets_its_score(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, scored());
    rig.create("other", ordered(Order::Fifo));
    rig.create("doomed", Policy { dead_letter_queue: Some(name("jobs")), ..ordered(Order::Fifo) });
    let offer = |fee| {
        let mut submission = payload("work");
        submission.body.fee = Some(fee);
        submission
    };
    let given_back = rig.hold_this("other", offer(50));
    let rich = rig.submit("other", offer(100_000));
    let poor = rig.submit("other", offer(10));
    let failed = rig.hold_this("doomed", offer(5000));
    let middle = rig.submit("jobs", offer(1000));
    rig.advance(10_000);
    let late = rig.submit("jobs", offer(100_000));
    for id in [poor, rich] {
        rig.ok(Operation::Move { id, to: name("jobs") });
    }
    rig.run(given_back.call_with(release(), to_queue("jobs"))).expect("moved");
    // A dead letter whose home is gone is tried again where it lies.
    rig.fail(&failed);
    rig.ok(Operation::DeleteQueue { queue: name("doomed"), force: true });
    rig.ok(Operation::Redrive { id: failed.id });
    assert_eq!(drain(&rig, 2), [rich, failed.id, middle, given_back.id, poor, late]);
}

pub(super) fn a_scheduled_item_of_a_scored_queue_waits_for_its_ready_time(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, scored());
    let mut best = delayed(100);
    best.body.fee = Some(1 << 40);
    let best = rig.submit("jobs", best);
    let plain = rig.submit("jobs", payload("work"));
    let other = rig.submit("jobs", payload("work"));
    assert_eq!(rig.take("jobs").id, plain);
    rig.advance(99);
    assert_eq!(rig.take("jobs").id, other);
    rig.advance(1);
    assert_eq!(rig.take("jobs").id, best);
}

pub(super) fn items_with_equal_ready_times_are_in_order_of_submission(harness: &dyn Harness) {
    for order in [Order::Fifo, Order::Priority] {
        let rig = Rig::with_queue(harness, ordered(order));
        let first = rig.submit("jobs", delayed(100));
        rig.advance(50);
        let second = rig.submit("jobs", delayed(50));
        rig.advance(50);
        // Ready from the start, and submitted before any call noticed the two that became ready.
        let third = rig.submit("jobs", payload("work"));
        assert_eq!(drain(&rig, 2), [first, second, third]);
    }
}

pub(super) fn a_chosen_id_does_not_change_the_order(harness: &dyn Harness) {
    for policy in [ordered(Order::Fifo), ordered(Order::Priority), scored()] {
        let rig = Rig::with_queue(harness, policy);
        let mut ids = Vec::new();
        for number in [9, 5, 7] {
            ids.push(rig.submit("jobs", with_id(number)));
            ids.push(rig.submit("jobs", payload("work")));
        }
        assert_eq!(drain(&rig, 4), ids);
    }
}

pub(super) fn an_item_that_becomes_ready_between_updates_keeps_its_position(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    let scheduled = rig.submit("jobs", delayed(100));
    rig.advance(150);
    let plain = rig.submit("jobs", payload("work"));
    rig.advance(50);
    assert_eq!(drain(&rig, 1), [scheduled, plain]);
}

/// `fifo`, `priority`, and `fifo` with keys that take turns.
fn timed_orders() -> [Policy; 3] {
    let flow = Flow { fairness: Some(Fairness::default()), ..Flow::default() };
    [ordered(Order::Fifo), ordered(Order::Priority), Policy { flow, ..ordered(Order::Fifo) }]
}

pub(super) fn an_item_given_back_without_a_delay_keeps_its_place(harness: &dyn Harness) {
    for policy in timed_orders() {
        // `None` is a lapse.
        for (how, reopens) in
            [(Some(release()), false), (Some(release()), true), (Some(defer(0)), false), (None, false)]
        {
            let rig = Rig::with_queue(harness, policy.clone());
            let mut ids = Vec::new();
            for _ in 0..4 {
                ids.extend(rig.submit_many("jobs", 50));
                rig.advance(1);
            }
            let held = rig.receive("jobs", 70);
            // The last item of the queue leaves, and comes back to its end.
            let rest = rig.receive("jobs", 130);
            rig.advance(10);
            for held in held.iter().rev().chain(&rest) {
                match &how {
                    Some(verb) => drop(rig.lease(held, verb.clone()).expect("the item is given back")),
                    None => rig.at(held.deadline()),
                }
            }
            assert_eq!(rig.item(ids[0]).head.ready_at, START);
            assert_eq!(rig.view("jobs").oldest_ready, Some(START));
            ids.push(rig.submit("jobs", payload("new")));
            // Again: it is not given out twice.
            let again = rig.take("jobs");
            assert_eq!(again.id, ids[0]);
            rig.lease(&again, release()).expect("released");
            let Some(rig) = (if reopens { rig.reopen(harness) } else { Some(rig) }) else { continue };
            assert_eq!(drain(&rig, 60), ids);
        }
    }
}

pub(super) fn a_retried_item_goes_behind_items_that_were_already_ready(harness: &dyn Harness) {
    for policy in timed_orders() {
        let rig = Rig::with_queue(harness, policy);
        let a = rig.hold("jobs");
        let b = rig.submit("jobs", payload("b"));
        rig.advance(1);
        rig.lease(&a, retry("again")).expect("retried");
        rig.advance(1);
        let c = rig.submit("jobs", payload("c"));
        assert_eq!(drain(&rig, 10), [b, a.id, c]);
    }
}

pub(super) fn a_ready_time_in_the_past_is_a_place_in_the_queue(harness: &dyn Harness) {
    for (policy, reopens) in
        timed_orders().into_iter().flat_map(|policy| [(policy.clone(), false), (policy, true)])
    {
        let rig = Rig::with_queue(harness, policy);
        let at = |millis| Submission { ready: When::At(START.after(Millis(millis))), ..payload("past") };
        rig.advance(10);
        let first = rig.submit("jobs", payload("first"));
        rig.advance(10);
        let second = rig.submit("jobs", payload("second"));
        rig.advance(10);
        let between = rig.submit("jobs", at(15));
        let front = rig.submit("jobs", at(5));
        // No item is older than its queue.
        let ancient = Submission { ready: When::At(Timestamp(5)), ..payload("ancient") };
        let ancient = rig.submit("jobs", ancient);
        for (id, ready_at) in [(between, 15), (front, 5), (ancient, 0)] {
            let head = rig.item(id).head;
            assert_eq!((head.created_at, head.ready_at), (rig.now(), START.after(Millis(ready_at))));
        }
        assert_eq!((rig.counts("jobs").pending, rig.counts("jobs").scheduled), (5, 0));
        assert_eq!(rig.view("jobs").oldest_ready, Some(START));
        let Some(rig) = (if reopens { rig.reopen(harness) } else { Some(rig) }) else { continue };
        let held = rig.receive("jobs", 5);
        let ids: Vec<ItemId> = held.iter().map(|held| held.id).collect();
        assert_eq!(ids, [ancient, front, first, between, second]);
        // A defer to a time in the past is the same.
        let until = When::At(START.after(Millis(7)));
        rig.lease(&held[4], Verb::Defer { until }).expect("deferred");
        let until = When::At(Timestamp(0));
        rig.lease(&held[3], Verb::Defer { until }).expect("deferred");
        rig.lease(&held[2], release()).expect("released");
        assert_eq!(drain(&rig, 10), [between, second, first]);
    }
}

pub(super) fn an_item_returned_with_a_delay_is_ordered_by_its_new_ready_time(harness: &dyn Harness) {
    let rig = Rig::with_queue(
        harness,
        Policy {
            order: Order::Fifo,
            backoff: Backoff { growth: Growth::Constant { delay: Millis(20) }, ..Backoff::NONE },
            ..plain()
        },
    );
    rig.submit_many("jobs", 3);
    let held = rig.receive("jobs", 3);
    rig.lease(&held[0], defer(30)).expect("deferred");
    rig.lease(&held[1], retry("again")).expect("retried");
    rig.lease(&held[2], release()).expect("released");
    let (deferred, retried, released) = (held[0].id, held[1].id, held[2].id);
    let x = rig.submit("jobs", delayed(20));
    let y = rig.submit("jobs", delayed(25));
    rig.advance(5);
    let z = rig.submit("jobs", payload("z"));
    rig.advance(40);
    assert_eq!(drain(&rig, 2), [released, z, retried, x, y, deferred]);
}

pub(super) fn a_resumed_item_keeps_its_position(harness: &dyn Harness) {
    for order in [Order::Fifo, Order::Priority] {
        let rig = Rig::with_queue(harness, ordered(order));
        let ids = rig.submit_many("jobs", 3);
        let later = rig.submit("jobs", delayed(10));
        for id in [ids[0], ids[1], later] {
            rig.ok(Operation::Pause { id });
        }
        assert_eq!(rig.take("jobs").id, ids[2]);
        rig.advance(20);
        let fresh = rig.submit("jobs", payload("fresh"));
        for id in [later, ids[1], ids[0]] {
            rig.ok(Operation::Resume { id });
        }
        assert_eq!(drain(&rig, 2), [ids[0], ids[1], later, fresh]);
    }
}

pub(super) fn a_changed_priority_applies_at_once(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    let ids = rig.submit_many("jobs", 6);
    let held = rig.receive("jobs", 4);
    let verbs = [release(), retry("again"), defer(0), release()];
    let priorities = [3, -3, 0, -4];
    for ((held, verb), priority) in held.iter().zip(verbs).zip(priorities) {
        rig.run(held.call_with(verb, to_priority(priority))).expect("the item is returned");
        assert_eq!(rig.item(held.id).head.priority, priority);
    }
    let expected = [ids[3], ids[1], ids[2], ids[4], ids[5], ids[0]];
    assert_eq!(drain(&rig, 10), expected);
}

pub(super) fn an_item_moved_from_another_queue_is_ordered_by_its_ready_time(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, ordered(Order::Fifo));
    rig.create("other", plain());
    let before = rig.submit("jobs", payload("before"));
    rig.advance(1);
    let moved = rig.hold("other");
    let late = rig.hold("other");
    rig.advance(1);
    let between = rig.submit("jobs", payload("between"));
    rig.advance(1);
    rig.run(late.call_with(retry("elsewhere"), to_queue("jobs"))).expect("moved");
    rig.run(moved.call_with(release(), to_queue("jobs"))).expect("moved");
    rig.advance(1);
    let after = rig.submit("jobs", payload("after"));
    assert_eq!(drain(&rig, 10), [before, moved.id, between, late.id, after]);
    assert!(rig.receive("other", 10).is_empty());
}

pub(super) fn many_items_keep_their_order_across_batches_of_any_size(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    let mut expected: Vec<(i16, ItemId)> = Vec::new();
    for round in 0..6 {
        let priorities = (0..200).map(|n: i16| (n * 7 + round) % 5);
        let batch = priorities.clone().map(|priority| submit("jobs", with_priority(priority))).collect();
        let answers = rig.update(batch);
        expected.extend(priorities.zip(answers.iter().map(|answer| submitted(answer).0)));
        rig.advance(1);
    }
    expected.sort_by_key(|&(priority, _)| priority);
    let mut got = Vec::new();
    for size in [1, 2, 3, 64, 127, 500, 1000].into_iter().cycle() {
        let batch = rig.receive_ids("jobs", size);
        if batch.is_empty() {
            break;
        }
        let left = expected.len() - got.len();
        assert_eq!(batch.len(), left.min(size as usize), "all ready items, up to max");
        got.extend(batch);
    }
    assert!(got.iter().eq(expected.iter().map(|(_, id)| id)));
}
