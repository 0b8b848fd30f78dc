//! Queues: create, change the policy, pause, list, delete, create again.

use super::Harness;
use super::operations::*;
use super::rig::*;
use futures::executor::block_on;
use towline_domain::change::Answer;
use towline_domain::{
    Backoff, Counts, ItemState, LeaseRule, Millis, Order, Policy, PolicyPatch, QueueState, Refusal, Schema,
    ScoreWeights, Submission,
};
use towline_store::{Operation, Reply};

fn patch(queue: &str, patch: PolicyPatch) -> Operation {
    Operation::ChangePolicy { queue: name(queue), patch: Box::new(patch) }
}

fn drop_queue(queue: &str, force: bool) -> Operation {
    Operation::DeleteQueue { queue: name(queue), force }
}

pub(super) fn a_new_queue_is_open_and_empty(harness: &dyn Harness) {
    let rig = Rig::open(harness);
    assert_eq!(rig.find_queue("jobs"), None);
    let policy = Policy {
        max_retries: 7,
        order: Order::Score(Box::default()),
        backoff: Backoff::preset("ayepi").expect("a preset"),
        ..plain()
    };
    let schema = Schema {
        inputs: [Schema::declare("raw").expect("declared")].into(),
        output_params: [Schema::declare("level?").expect("declared")].into(),
        ..Schema::default()
    };
    let reply = rig.ok(create_with("jobs", schema.clone(), policy.clone()));
    let queue = answered_queue(reply);
    assert_eq!(queue.name, name("jobs"));
    assert_eq!(
        (&queue.schema, &queue.policy, queue.state, queue.paused),
        (&schema, &policy, QueueState::Open, false)
    );
    assert_eq!((queue.created_at, queue.revision), (START, 1));
    let view = rig.view("jobs");
    assert_eq!((view.queue, view.counts), (queue, Counts::default()));
}

pub(super) fn creating_the_same_queue_again_succeeds(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    let before = rig.view("jobs");
    rig.advance(5);
    let again = answered_queue(rig.ok(create("jobs", plain())));
    assert_eq!(again, before.queue);
    assert_eq!(rig.view("jobs"), before);
    // The same within a batch, and after a pause, because the pause is not part of the create.
    rig.ok(Operation::PauseQueue { queue: name("jobs") });
    let answers = rig.update(vec![create("jobs", plain()), create("new", plain()), create("new", plain())]);
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    assert_eq!(answers[1], answers[2]);
    assert!(rig.view("jobs").queue.paused);
}

pub(super) fn creating_a_different_queue_with_the_same_name_is_refused(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    let before = rig.view("jobs");
    let other_policy = Policy { max_retries: 4, ..plain() };
    let other_schema =
        Schema { inputs: [Schema::declare("raw").expect("declared")].into(), ..Schema::default() };
    for (operation, differs) in [
        (create("jobs", other_policy.clone()), "policy.max_retries"),
        (create_with("jobs", other_schema.clone(), plain()), "schema.inputs"),
        (create_with("jobs", other_schema, other_policy), "schema.inputs, policy.max_retries"),
    ] {
        let what = differs.to_owned();
        let name = "jobs".to_owned();
        assert_eq!(rig.refused(operation), Refusal::QueueExists { name, what });
    }
    assert_eq!(rig.view("jobs"), before);
}

pub(super) fn a_policy_outside_the_limits_is_refused(harness: &dyn Harness) {
    let rig = Rig::open(harness);
    let too_long = Some(Millis(Millis::MAX.0 + 1));
    let base = plain;
    let lease = |rule| Policy { lease: rule, ..plain() };
    let bad = [
        Policy { visibility_timeout: Millis(99), ..base() },
        Policy { visibility_timeout: Millis(Millis::days(30).0 + 1), ..base() },
        Policy { max_retries: 10_001, ..base() },
        Policy { completed_ttl: too_long, ..base() },
        Policy { failed_ttl: too_long, ..base() },
        Policy { expire_after: too_long, ..base() },
        Policy { give_up_after: too_long, ..base() },
        Policy { poison_after: Some(0), ..base() },
        Policy { depth_limit: Some(0), ..base() },
        Policy { dead_letter_queue: Some(name("jobs")), ..base() },
        Policy { dead_letter: [].into(), ..base() },
        Policy { output_ttl: too_long, ..base() },
        Policy {
            order: Order::Score(Box::new(ScoreWeights { age_unit: Millis(999), ..ScoreWeights::default() })),
            ..base()
        },
        lease(LeaseRule { ack_timeout: too_long, ..LeaseRule::default() }),
        lease(LeaseRule { renewal_permille: Some(0), ..LeaseRule::default() }),
        lease(LeaseRule { renewal_permille: Some(1001), ..LeaseRule::default() }),
    ];
    for policy in bad {
        assert_eq!(code(&rig.run(create("jobs", policy.clone()))), "invalid", "{policy:?}");
    }
    let wide = Schema {
        inputs: (0..65).map(|n| Schema::declare(&format!("s{n}")).expect("declared")).collect(),
        ..Schema::default()
    };
    assert_eq!(code(&rig.run(create_with("jobs", wide, plain()))), "invalid");
    assert_eq!(rig.find_queue("jobs"), None);
    let edge = Policy {
        visibility_timeout: Millis(100),
        max_retries: 10_000,
        completed_ttl: Some(Millis::MAX),
        failed_ttl: Some(Millis::ZERO),
        poison_after: Some(1),
        depth_limit: Some(1),
        ..plain()
    };
    rig.create("jobs", edge.clone());
    assert_eq!(rig.view("jobs").queue.policy, edge);
    let refused = rig.run(patch(
        "jobs",
        PolicyPatch { max_retries: Some(10_001), completed_ttl: Some(None), ..PolicyPatch::default() },
    ));
    assert_eq!(code(&refused), "invalid");
    let own = PolicyPatch { dead_letter_queue: Some(Some(name("jobs"))), ..PolicyPatch::default() };
    assert_eq!(code(&rig.run(patch("jobs", own))), "invalid");
    assert_eq!(rig.view("jobs").queue.policy, edge, "a refused change has no effect");
}

pub(super) fn a_dead_letter_queue_must_exist(harness: &dyn Harness) {
    let rig = Rig::open(harness);
    let to_dead = || Policy { dead_letter_queue: Some(name("dead")), ..plain() };
    let refused = rig.refused(create("jobs", to_dead()));
    let words = "queue \"dead\" does not exist; create it first";
    assert!(refused.code() == "invalid" && refused.to_string().contains(words), "{refused}");
    assert_eq!(rig.find_queue("jobs"), None);
    rig.create("jobs", plain());
    let letters = |to: Option<&str>| {
        let dead_letter_queue = Some(to.map(name));
        patch("jobs", PolicyPatch { dead_letter_queue, ..PolicyPatch::default() })
    };
    assert_eq!(code(&rig.run(letters(Some("dead")))), "invalid");
    // An earlier operation of the same batch may create it.
    let answers = rig.update(vec![create("dead", plain()), letters(Some("dead"))]);
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    // After it was deleted, everything else about the queue can still be changed.
    rig.ok(drop_queue("dead", false));
    rig.ok(patch("jobs", PolicyPatch { max_retries: Some(0), ..PolicyPatch::default() }));
    rig.ok(letters(Some("dead")));
    let policy = rig.view("jobs").queue.policy;
    assert_eq!(policy.dead_letter_queue, Some(name("dead")));
    rig.ok(create("jobs", policy));
    rig.ok(letters(None));
    assert_eq!(code(&rig.run(letters(Some("dead")))), "invalid");
}

pub(super) fn a_changed_policy_applies_at_once(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    let early = rig.hold("jobs");
    rig.commit(&early);
    let held = rig.hold("jobs");
    let before = rig.view("jobs").queue;
    let changed = answered_queue(rig.ok(patch(
        "jobs",
        PolicyPatch {
            max_retries: Some(0),
            completed_ttl: Some(None),
            visibility_timeout: Some(Millis(500)),
            depth_limit: Some(Some(2)),
            ..PolicyPatch::default()
        },
    )));
    assert_eq!(changed.revision, before.revision + 1);
    assert_eq!((changed.id, changed.state, changed.created_at), (before.id, before.state, before.created_at));
    assert_eq!(rig.view("jobs").queue, changed);
    // A current lease keeps its deadline. New decisions follow the new policy.
    assert_eq!(rig.item(held.id).head.lease().map(|lease| lease.deadline), Some(held.deadline()));
    assert_eq!(rig.lease(&held, retry("no retry is left")), left(ItemState::Failed));
    let next = rig.hold("jobs");
    assert_eq!(next.deadline(), rig.now().after(Millis(500)));
    rig.commit(&next);
    rig.advance(Millis::days(8).0);
    rig.sweep();
    rig.assert_gone(early.id);
    rig.assert_gone(held.id);
    assert_eq!(rig.counts("jobs").completed, 1, "kept without a TTL");
    let again =
        answered_queue(rig.ok(patch("jobs", PolicyPatch { max_retries: Some(0), ..PolicyPatch::default() })));
    assert_eq!(again, changed, "without a change the revision stays");
    let cleared = answered_queue(
        rig.ok(patch("jobs", PolicyPatch { depth_limit: Some(None), ..PolicyPatch::default() })),
    );
    assert_eq!(cleared.policy.depth_limit, None);
    rig.submit_many("jobs", 3);
}

pub(super) fn queues_are_listed_in_byte_order_of_their_names(harness: &dyn Harness) {
    let rig = Rig::open(harness);
    let sorted = ["0", "A", "Z.a", "_x", "a", "a-b", "a.b", "ab", "b"];
    for queue in ["b", "a.b", "A", "_x", "ab", "a-b", "0", "Z.a", "a"] {
        rig.create(queue, plain());
    }
    let names = |after: Option<&str>, limit| -> Vec<String> {
        let page = block_on(rig.store.queues(after.map(name), limit)).expect("the store answers");
        page.iter().map(|view| view.queue.name.to_string()).collect()
    };
    assert_eq!(names(None, 100), sorted);
    assert_eq!(names(None, 4), &sorted[..4]);
    assert_eq!(names(Some("_x"), 3), &sorted[4..7]);
    assert_eq!(names(Some("a-c"), 100), &sorted[6..], "also after a name that does not exist");
    assert!(names(Some("b"), 100).is_empty());
}

pub(super) fn operations_on_a_missing_queue_are_refused(harness: &dyn Harness) {
    let rig = Rig::open(harness);
    let queue = || name("nowhere");
    let operations = vec![
        patch("nowhere", PolicyPatch::default()),
        Operation::CloseQueue { queue: queue() },
        Operation::PauseQueue { queue: queue() },
        Operation::ResumeQueue { queue: queue() },
        drop_queue("nowhere", true),
        submit("nowhere", payload("work")),
        Operation::Receive(Box::new(rig.receive_call("nowhere", 1))),
    ];
    for answered in rig.update(operations) {
        let name = "nowhere".to_owned();
        assert_eq!(answered, Err(Refusal::QueueNotFound { name }.into()));
    }
}

pub(super) fn a_paused_queue_accepts_submits_and_gives_no_items(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    let held = rig.hold("jobs");
    let pause = || Operation::PauseQueue { queue: name("jobs") };
    let paused = answered_queue(rig.ok(pause()));
    assert!(paused.paused);
    assert_eq!(paused.state, QueueState::Open);
    assert_eq!(answered_queue(rig.ok(pause())), paused, "a repeat changes nothing");
    let waiting = rig.submit("jobs", payload("wait"));
    let received = rig.received(rig.receive_call("jobs", 10));
    assert_eq!((received.queue, received.items.len()), (QueueState::Open, 0));
    assert_eq!(rig.counts("jobs").pending, 1, "the items are not paused");
    // A lease holder continues.
    rig.lease(&held, heartbeat()).expect("extended");
    rig.lease(&held, release()).expect("released");
    assert!(rig.receive("jobs", 10).is_empty());
    let resumed = answered_queue(rig.ok(Operation::ResumeQueue { queue: name("jobs") }));
    assert!(!resumed.paused);
    assert_eq!(resumed.revision, paused.revision + 1);
    assert_eq!(rig.receive_ids("jobs", 10), [held.id, waiting]);
}

pub(super) fn deleting_a_queue_deletes_its_items(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    rig.create("other", plain());
    let kept = rig.submit("other", payload("kept"));
    let done = rig.hold("jobs");
    rig.commit(&done);
    let held = rig.hold("jobs");
    let waiting = rig.submit("jobs", delayed(1000));
    let refusal = rig.refused(drop_queue("jobs", false));
    let name = "jobs".to_owned();
    assert_eq!(refusal, Refusal::QueueBusy { name, unfinished: 2 });
    assert_eq!(rig.counts("jobs").total(), 3);
    assert_eq!(rig.run(drop_queue("jobs", true)), Ok(Reply::Answer(Answer::QueueDeleted)));
    assert_eq!(rig.find_queue("jobs"), None);
    for id in [done.id, held.id, waiting] {
        rig.assert_gone(id);
    }
    assert_eq!(code(&rig.lease(&held, commit())), "item_not_found");
    assert_eq!(code(&rig.run(drop_queue("jobs", true))), "queue_not_found");
    assert_eq!(rig.list_ids(&Default::default()), [kept]);
    assert_eq!(rig.next_wake(), None, "no timer is left");
    rig.advance(Millis::days(30).0);
    rig.sweep();
    rig.stored(kept);
}

pub(super) fn a_queue_of_finished_items_is_deleted_without_force(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    let done = rig.hold("jobs");
    rig.commit(&done);
    rig.ok(drop_queue("jobs", false));
    rig.assert_gone(done.id);
}

pub(super) fn a_recreated_queue_is_a_new_queue(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    let old = rig.view("jobs").queue;
    let keyed_id = rig.submit("jobs", keyed("once", "work"));
    let own = Submission { id: Some(chosen(1)), ..payload("own") };
    rig.submit("jobs", own.clone());
    let held = rig.receive("jobs", 10);
    rig.close("jobs");
    let answers = rig.update(vec![
        drop_queue("jobs", true),
        create("jobs", plain()),
        submit("jobs", keyed("once", "other work")),
        submit("jobs", own.clone()),
    ]);
    let new = answered_queue(answers[1].clone().expect("created"));
    assert_ne!(new.id, old.id);
    assert_eq!((new.state, new.revision), (QueueState::Open, 1));
    let (fresh, created) = submitted(&answers[2]);
    assert!(created && fresh != keyed_id, "the key is free");
    assert_eq!(submitted(&answers[3]), (own.id.expect("chosen"), true), "the chosen id is free");
    assert_eq!(rig.find(keyed_id), None);
    for held in &held {
        assert!(rig.lease(held, commit()).is_err(), "a lease of the old queue is refused");
    }
    let counts = Counts { pending: 2, ..Counts::default() };
    assert_eq!(rig.counts("jobs"), counts);
    assert_eq!(rig.receive_ids("jobs", 10), [fresh, chosen(1)]);
}

pub(super) fn items_that_left_a_queue_survive_its_deletion(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, Policy { dead_letter_queue: Some(name("dead")), ..plain() });
    rig.create("dead", plain());
    rig.create("other", plain());
    let dead = rig.hold_this("jobs", keyed("dead", "1"));
    rig.fail(&dead);
    let moved = rig.hold_this("jobs", keyed("moved", "2"));
    rig.run(moved.call_with(release(), to_queue("other"))).expect("moved");
    rig.ok(drop_queue("jobs", false));
    assert_eq!(rig.stored(dead.id).queue, name("dead"));
    assert_eq!(rig.take("other").id, moved.id);
    rig.create("jobs", plain());
    for key in ["dead", "moved"] {
        let (_, created) = submitted(&rig.run(submit("jobs", keyed(key, "3"))));
        assert!(created, "the new queue does not know key {key}");
    }
    // The origin queue is deleted. A new queue with the same name is not the origin.
    assert_eq!(rig.run(Operation::Redrive { id: dead.id }), left(ItemState::Pending));
    assert_eq!(rig.stored(dead.id).queue, name("dead"));
    assert_eq!(rig.take("dead").id, dead.id);
}

pub(super) fn the_oldest_ready_time_of_a_queue_is_exact(harness: &dyn Harness) {
    for order in [Order::Fifo, Order::Priority] {
        let rig = Rig::with_queue(harness, Policy { order, ..lenient() });
        let oldest = || rig.view("jobs").oldest_ready.map(|since| since.since(START).0);
        assert_eq!(oldest(), None);
        rig.submit("jobs", delayed(50));
        assert_eq!(oldest(), None, "no item is ready yet");
        rig.advance(10);
        let low = rig.submit("jobs", with_priority(9));
        rig.advance(10);
        rig.update((0..200).map(|n| submit("jobs", with_priority(n % 7 - 9))).collect());
        assert_eq!(oldest(), Some(10));
        rig.ok(Operation::Pause { id: low });
        assert_eq!(oldest(), Some(20));
        rig.ok(Operation::Resume { id: low });
        assert_eq!(oldest(), Some(10), "the item is ready again since then");
        rig.delete(low);
        // An item becomes ready without any update.
        rig.advance(40);
        rig.advance(3);
        let held = rig.receive("jobs", 200);
        assert_eq!((held.len(), oldest()), (200, Some(50)));
        rig.take("jobs");
        assert_eq!(oldest(), None, "all items are leased");
        assert_eq!(rig.lease(&held[3], release()), left(ItemState::Pending));
        assert_eq!(oldest(), Some(20), "a returned item keeps its ready time");
    }
    let scored = Order::Score(Box::default());
    let rig = Rig::with_queue(harness, Policy { order: scored, ..lenient() });
    rig.submit("jobs", payload("work"));
    assert_eq!(rig.view("jobs").oldest_ready, None, "a score order does not know it");
}
