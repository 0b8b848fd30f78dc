use super::scene::{START, Scene, buffers, commit, fail, queue, release, retry, token};
use crate::backoff::{Backoff, Growth, Jitter};
use crate::change::Answer;
use crate::command::{Adjust, Command, OutputSet, Receive, Verb, When};
use crate::event::EventKind;
use crate::fields::{Field, FieldEdits};
use crate::item::SettleVerb;
use crate::item::{ErrorKind, FailureKind, Outcome, State};
use crate::item_state::ItemState;
use crate::json::Json;
use crate::limits;
use crate::name::BufferId;
use crate::queue::QueueState;
use crate::refusal::{LostWhy, Refusal};
use crate::schema::Schema;
use crate::time::{Millis, Timestamp};
use bytes::Bytes;

fn beat(visibility: Option<u64>) -> Verb {
    Verb::Heartbeat { visibility: visibility.map(Millis) }
}

fn verbs() -> Vec<Verb> {
    vec![
        beat(None),
        Verb::Edit,
        commit(),
        fail("no"),
        retry("later"),
        release(),
        Verb::Defer { until: When::NOW },
    ]
}

fn failed_as(scene: &Scene) -> Option<FailureKind> {
    match scene.head().state {
        State::Failed { kind, .. } => Some(kind),
        _ => None,
    }
}

#[test]
fn a_lease_ends_at_its_deadline_even_if_no_worker_took_the_item() {
    for verb in verbs() {
        let mut scene = Scene::new().held();
        scene.later(1000);
        let refused = scene.by(1, verb.clone()).unwrap_err();
        assert!(matches!(refused, Refusal::LeaseLost { why: LostWhy::Lapsed, .. }), "{verb:?}: {refused}");
        let mut scene = Scene::new().held();
        scene.later(999);
        scene.by(1, verb).unwrap();
    }
}

#[test]
fn a_stale_or_foreign_lease_does_nothing() {
    for verb in verbs() {
        let mut scene = Scene::new().held();
        let before = scene.item.clone();
        let refused = scene.by(7, verb.clone()).unwrap_err();
        assert!(matches!(refused, Refusal::LeaseLost { why: LostWhy::Superseded, .. }), "{refused}");
        assert_eq!(scene.item, before);
        scene.later(1000);
        scene.run(Command::Elapse).unwrap();
        scene.receive(2).unwrap();
        let refused = scene.by(1, verb).unwrap_err();
        assert!(matches!(refused, Refusal::LeaseLost { why: LostWhy::Superseded, .. }), "{refused}");
    }
}

#[test]
fn a_cancel_ends_the_lease() {
    for verb in verbs() {
        let mut scene = Scene::new().held();
        let reason = String::new();
        scene.run(Command::Cancel { reason }).unwrap();
        let refused = scene.by(1, verb).unwrap_err();
        assert!(matches!(refused, Refusal::LeaseLost { why: LostWhy::Ended, .. }), "{refused}");
    }
}

#[test]
fn a_heartbeat_sets_a_full_timeout_from_now() {
    let mut scene = Scene::new().held();
    scene.later(600);
    let answer = scene.by(1, beat(None)).unwrap();
    let deadline = Timestamp(START + 1600);
    assert_eq!(answer, Answer::Leased { deadline });
    scene.by(1, beat(Some(200))).unwrap();
    assert_eq!(scene.head().lease().unwrap().deadline, Timestamp(START + 800), "a shorter timeout applies");
    scene.by(1, beat(None)).unwrap();
    assert_eq!(scene.head().lease().unwrap().deadline, Timestamp(START + 800), "the shorter timeout stays");
    for absurd in [0, 99, u64::MAX] {
        assert_eq!(scene.by(1, beat(Some(absurd))).unwrap_err().code(), "invalid");
    }
}

#[test]
fn a_renewal_rule_adds_a_share_to_the_deadline_a_number_of_times() {
    let mut scene = Scene::with(|policy| {
        policy.lease.renewal_permille = Some(500);
        policy.lease.renewals_max = Some(2);
    })
    .held();
    scene.by(1, beat(None)).unwrap();
    assert_eq!(scene.head().lease().unwrap().deadline, Timestamp(START + 1500));
    scene.by(1, beat(None)).unwrap();
    assert!(matches!(scene.by(1, beat(None)), Err(Refusal::RenewalsExhausted { max: 2, .. })));
    assert_eq!(scene.head().lease().unwrap().deadline, Timestamp(START + 2000), "the lease is kept");
}

#[test]
fn the_acknowledgement_is_not_a_renewal() {
    let mut scene = Scene::with(|policy| {
        policy.lease.ack_timeout = Some(Millis(100));
        policy.lease.renewals_max = Some(0);
    });
    scene.submit(|_| {}).unwrap();
    let assigned = Receive { token: token(1), visibility: None, assigned: true, make_buffers: false };
    scene.run(Command::Receive(assigned)).unwrap();
    scene.later(50);
    scene.by(1, beat(None)).unwrap();
    assert_eq!(scene.head().lease().unwrap().deadline, Timestamp(START + 1050));
    assert!(matches!(scene.by(1, beat(None)), Err(Refusal::RenewalsExhausted { .. })));
}

#[test]
fn a_head_knows_its_last_transition_and_the_last_heartbeat_of_its_lease() {
    let times = |scene: &Scene| {
        let after_start = |time: Timestamp| time.0 - START;
        (scene.head().last_transition().map(after_start), scene.head().heartbeat_at.map(after_start))
    };
    let mut scene = Scene::new();
    scene.submit(|_| {}).unwrap();
    scene.later(1);
    assert_eq!(times(&scene), (Some(0), None));
    scene.receive(1).unwrap();
    assert_eq!(times(&scene), (Some(1), None));
    scene.later(1);
    scene.by(1, beat(None)).unwrap();
    scene.later(1);
    scene.by(1, Verb::Edit).unwrap();
    assert_eq!(times(&scene), (Some(1), Some(2)), "an edit is neither");
    scene.by(1, release()).unwrap();
    assert_eq!(times(&scene), (Some(3), None));
    scene.later(1);
    scene.run(Command::SetPriority { priority: 3 }).unwrap();
    assert_eq!(times(&scene), (Some(3), None));
    scene.run(Command::Pause).unwrap();
    assert_eq!(times(&scene), (Some(4), None));
    scene.later(1);
    scene.run(Command::Resume).unwrap();
    assert_eq!(times(&scene), (Some(5), None));
    scene.later(1);
    scene.receive(2).unwrap();
    scene.by(2, commit()).unwrap();
    scene.later(1);
    assert_eq!((times(&scene), scene.head().changed_at), ((Some(6), None), None));
}

#[test]
fn a_settled_item_stays_until_its_lease_would_have_ended() {
    let removed = |finished: u64, visibility: u64, verb: Verb| {
        let mut scene = Scene::with(|policy| {
            (policy.completed_ttl, policy.failed_ttl) = (Some(Millis(10)), Some(Millis(10)));
            policy.visibility_timeout = Millis(visibility);
        })
        .held();
        scene.other_counts.completed = finished;
        scene.by(1, verb).unwrap();
        scene.head().timer().unwrap().0 - START
    };
    for verb in [commit(), fail("broken")] {
        assert_eq!(removed(0, 1000, verb.clone()), 1000);
        assert_eq!(removed(0, 300_000, verb.clone()), 300_000, "the default");
        assert_eq!(removed(0, 7_200_000, verb.clone()), 3_600_000, "an hour at most");
        assert_eq!(removed(limits::REPEATABLE_MAX, 1000, verb), 10, "the queue keeps enough");
    }
}

#[test]
fn no_heartbeat_extends_beyond_the_items_expiry() {
    let mut scene = Scene::with(|policy| policy.expire_after = Some(Millis(1200))).held();
    scene.later(600);
    scene.by(1, beat(None)).unwrap();
    assert_eq!(scene.head().lease().unwrap().deadline, Timestamp(START + 1200));
}

#[test]
fn a_commit_completes_the_item_and_keeps_its_result_for_its_ttl() {
    let mut scene = Scene::with(|policy| policy.completed_ttl = Some(Millis(7000))).held();
    let outcome =
        Outcome { output_params: [("r".to_owned(), Json::string("x"))].into(), ..Outcome::default() };
    assert_eq!(scene.by(1, Verb::Commit(outcome.clone())), Ok(Answer::State(ItemState::Completed)));
    let at = Timestamp(START);
    let remove_at = Some(Timestamp(START + 7000));
    assert_eq!(scene.head().state, State::Completed { at, remove_at });
    assert_eq!(scene.item.as_ref().unwrap().outcome, outcome);
    assert_eq!(scene.head().retries, 0);
}

#[test]
fn a_commit_without_a_required_output_is_refused_and_keeps_the_lease() {
    let mut scene = Scene::new();
    scene.queue.schema = Schema {
        outputs: [("image".parse().unwrap(), true)].into(),
        output_params: [("score".parse().unwrap(), true), ("note".parse().unwrap(), false)].into(),
        ..Schema::default()
    };
    let mut scene = scene.held();
    assert_eq!(scene.by(1, commit()).unwrap_err().code(), "schema_mismatch");
    let full = Outcome {
        outputs: buffers(&[("image", "b1")]),
        output_params: [("score".to_owned(), Json::string("1"))].into(),
        ..Outcome::default()
    };
    scene.by(1, Verb::Commit(full)).unwrap();
}

/// Two output slots, and lease 1 with a buffer for each.
fn with_buffers() -> Scene {
    let mut scene = Scene::new();
    scene.queue.schema = Schema {
        outputs: [("a".parse().unwrap(), true), ("b".parse().unwrap(), false)].into(),
        ..Schema::default()
    };
    scene.submit(|_| {}).unwrap();
    scene.receiving(1, true).unwrap();
    scene
}

fn lease_buffers(scene: &Scene) -> OutputSet {
    let lease = scene.item.as_ref().unwrap().head.lease().unwrap();
    lease.buffers.as_deref().cloned().unwrap_or_default()
}

#[test]
fn a_commit_uses_the_buffers_of_its_lease_unless_it_names_its_own() {
    let mut scene = with_buffers();
    let a = lease_buffers(&scene)["a"].clone();
    let outcome = Outcome { outputs: buffers(&[("b", "own-b")]), ..Outcome::default() };
    let whole = Adjust { buffers_whole: true, ..Adjust::default() };
    scene.adjusting(1, Verb::Commit(outcome), whole).unwrap();
    let kept = &scene.item.as_ref().unwrap().outcome.outputs;
    assert_eq!(*kept, buffers(&[("a", a.as_str()), ("b", "own-b")]));
}

#[test]
fn a_commit_asks_for_a_check_of_its_buffers() {
    let mut scene = with_buffers();
    let all = lease_buffers(&scene);
    assert_eq!(all.len(), 2);
    let Ok(Answer::CheckBuffers(check)) = scene.by(1, commit()) else { panic!() };
    assert_eq!((check.buffers, check.call.verb), (all, commit()));
    let own = Outcome { outputs: buffers(&[("a", "own-a"), ("b", "own-b")]), ..Outcome::default() };
    scene.by(1, Verb::Commit(own)).unwrap();
}

#[test]
fn buffers_are_named_after_the_item_and_the_lease() {
    let mut scene = with_buffers();
    let id = scene.item.as_ref().unwrap().head.id;
    let first = lease_buffers(&scene);
    assert!(first.values().all(|buffer| buffer.attempted() == Some(id)), "{first:?}");
    assert_ne!(first["a"], first["b"]);
    scene.by(1, release()).unwrap();
    scene.receiving(2, true).unwrap();
    let second = lease_buffers(&scene);
    assert!(
        first.values().all(|buffer| second.values().all(|other| other != buffer)),
        "{first:?} {second:?}"
    );
    assert_eq!("b1".parse::<BufferId>().unwrap().attempted(), None);
}

#[test]
fn a_fail_ends_the_item_even_if_retries_are_left() {
    let mut scene = Scene::with(|policy| policy.failed_ttl = None).held();
    assert_eq!(scene.by(1, fail("broken")), Ok(Answer::State(ItemState::Failed)));
    assert_eq!(failed_as(&scene), Some(FailureKind::Explicit));
    assert_eq!(scene.head().timer(), None, "kept for ever");
    let error = scene.item.as_ref().unwrap().errors.iter().next().unwrap().clone();
    assert_eq!((error.kind, error.attempt, error.message.as_str()), (ErrorKind::Failed, 1, "broken"));
}

#[test]
fn three_retries_are_four_attempts_and_every_error_is_kept() {
    let mut scene = Scene::new();
    scene.submit(|_| {}).unwrap();
    for attempt in 1..=4 {
        scene.receive(attempt.into()).unwrap();
        assert_eq!(scene.head().attempt(), attempt);
        scene.by(attempt.into(), retry("later")).unwrap();
    }
    assert_eq!(failed_as(&scene), Some(FailureKind::RetriesExhausted));
    assert_eq!((scene.head().retries, scene.head().deliveries), (3, 4));
    let attempts: Vec<u32> = scene.item.as_ref().unwrap().errors.iter().map(|error| error.attempt).collect();
    assert_eq!(attempts, [1, 2, 3, 4]);
}

#[test]
fn a_release_is_counted_without_an_error() {
    let mut scene = Scene::with(|policy| policy.max_retries = 1).held();
    let ready_at = scene.head().ready_at;
    scene.later(10);
    scene.by(1, release()).unwrap();
    assert_eq!((scene.head().retries, scene.head().ready_at), (1, ready_at), "it keeps its place");
    assert!(scene.item.as_ref().unwrap().errors.is_empty());
    scene.receive(2).unwrap();
    assert_eq!(scene.by(2, release()), Ok(Answer::State(ItemState::Failed)));
    assert_eq!(failed_as(&scene), Some(FailureKind::RetriesExhausted));
}

#[test]
fn a_defer_is_never_counted() {
    let mut scene = Scene::with(|policy| policy.max_retries = 0);
    scene.submit(|_| {}).unwrap();
    for number in 1..=20 {
        scene.receive(number).unwrap();
        let until = When::After(Millis(500));
        assert_eq!(scene.by(number, Verb::Defer { until }), Ok(Answer::State(ItemState::Pending)));
        assert_eq!((scene.head().retries, scene.head().ready_at), (0, scene.now.after(Millis(500))));
        scene.later(500);
    }
    assert_eq!(scene.head().deliveries, 20);
}

#[test]
fn a_retry_waits_for_the_backoff_unless_it_names_its_delay() {
    let backoff = Backoff { growth: Growth::Constant { delay: Millis(300) }, jitter: Jitter::None };
    let mut scene = Scene::with(|policy| policy.backoff = backoff).held();
    scene.by(1, retry("later")).unwrap();
    assert_eq!(scene.head().ready_at, Timestamp(START + 300));
    scene.later(300);
    scene.receive(2).unwrap();
    let own = Verb::Retry { error: String::new(), delay: Some(Millis(5)), seed: 1 };
    scene.by(2, own).unwrap();
    assert_eq!(scene.head().ready_at, Timestamp(START + 305));
}

#[test]
fn the_same_settle_again_gets_the_same_answer_and_changes_nothing() {
    for verb in verbs().split_off(2) {
        let mut scene = Scene::new().held();
        let first = scene.by(1, verb.clone()).unwrap();
        let after = scene.item.clone();
        assert_eq!(scene.by(1, verb.clone()), Ok(first.clone()), "{verb:?}");
        // Also after another worker received the item.
        if first == Answer::State(ItemState::Pending) {
            scene.receive(2).unwrap();
            let after = scene.item.clone();
            assert_eq!(scene.by(1, verb), Ok(first));
            assert_eq!(scene.item, after);
        } else {
            assert_eq!(scene.item, after);
        }
        assert!(scene.change().is_empty());
        assert_eq!(scene.change().event(), None);
    }
}

#[test]
fn a_settle_by_the_same_lease_with_another_content_is_refused() {
    let mut scene = Scene::new().held();
    scene.by(1, fail("this")).unwrap();
    for other in [fail("that"), commit(), release(), retry("this")] {
        assert!(matches!(scene.by(1, other), Err(Refusal::AlreadySettled { settled: SettleVerb::Fail, .. })));
    }
}

#[test]
fn a_repeated_retry_may_have_another_jitter_seed() {
    let mut scene = Scene::new().held();
    let with_seed = |seed| Verb::Retry { error: "later".to_owned(), delay: None, seed };
    scene.by(1, with_seed(1)).unwrap();
    scene.by(1, with_seed(2)).unwrap();
    assert!(scene.change().is_empty());
}

#[test]
fn fields_and_priority_change_with_any_verb() {
    for verb in verbs() {
        let mut scene = Scene::new();
        let fields = crate::fields::Fields {
            blob: Some(Bytes::from("b")),
            metadata: Some(Bytes::from("m")),
            ..Default::default()
        };
        scene.submit(|submission| submission.fields = fields).unwrap();
        scene.receive(1).unwrap();
        let edits = FieldEdits::default().set(Field::StateBlob, Bytes::from("s")).unset(Field::Metadata);
        let adjust = Adjust { edits, priority: Some(-3), ..Adjust::default() };
        scene.adjusting(1, verb.clone(), adjust).unwrap();
        let item = scene.item.as_ref().unwrap();
        assert_eq!(item.fields.state_blob, Some(Bytes::from("s")), "{verb:?}");
        assert_eq!((item.fields.metadata.as_ref(), item.fields.blob.clone()), (None, Some(Bytes::from("b"))));
        assert_eq!(item.head.priority, -3);
    }
}

#[test]
fn an_edit_leaves_the_lease_as_it_was() {
    let mut scene = Scene::new().held();
    let before = scene.head().clone();
    scene.later(10);
    scene.by(1, Verb::Edit).unwrap();
    assert_eq!(scene.head().lease(), before.lease());
    assert_eq!(scene.head().revision, before.revision + 1);
    assert_eq!(scene.head().transitions, before.transitions);
}

#[test]
fn only_retry_release_and_defer_move_an_item_to_another_queue() {
    let adjust = || Adjust { queue: Some("other".parse().unwrap()), ..Adjust::default() };
    for verb in verbs() {
        let returns = matches!(verb, Verb::Retry { .. } | Verb::Release { .. } | Verb::Defer { .. });
        let mut scene = Scene::new().held();
        scene.target = Some(queue(2, "other", |_| {}));
        let answer = scene.adjusting(1, verb.clone(), adjust());
        assert_eq!(answer.is_ok(), returns, "{verb:?}");
        assert_eq!(scene.head().queue.0, if returns { 2 } else { 1 });
    }
    let mut scene = Scene::new().held();
    assert_eq!(scene.adjusting(1, release(), adjust()).unwrap_err().code(), "queue_not_found");
    let mut closed = queue(2, "other", |_| {});
    closed.state = QueueState::Closed { since: scene.now };
    scene.target = Some(closed);
    assert_eq!(scene.adjusting(1, release(), adjust()).unwrap_err().code(), "queue_closed");
    assert!(scene.head().lease().is_some(), "the lease is kept");
}

#[test]
fn the_last_item_to_leave_a_closed_queue_completes_it() {
    let other = |scene: &mut Scene| scene.target = Some(queue(2, "other", |_| {}));
    let moved = Adjust { queue: Some("other".parse().unwrap()), ..Adjust::default() };
    for (verb, adjust) in [(commit(), Adjust::default()), (fail("no"), Adjust::default()), (release(), moved)]
    {
        let mut scene = Scene::new().held();
        other(&mut scene);
        scene.run(Command::CloseQueue).unwrap();
        assert_eq!(scene.queue.state.name(), "closed");
        scene.adjusting(1, verb, adjust).unwrap();
        assert_eq!(scene.queue.state.name(), "completed");
    }
    let mut scene = Scene::new().held();
    scene.other_counts.paused = 1;
    scene.run(Command::CloseQueue).unwrap();
    scene.by(1, commit()).unwrap();
    assert_eq!(scene.queue.state.name(), "closed", "a paused item is not finished");
}

#[test]
fn a_dead_letter_is_the_same_item_in_another_queue_with_its_origin_kept() {
    let mut scene = Scene::with(|policy| policy.dead_letter_queue = Some("dead".parse().unwrap())).held();
    scene.dead_letters = Some(queue(3, "dead", |policy| policy.failed_ttl = Some(Millis(1100))));
    scene.by(1, fail("no")).unwrap();
    let head = scene.head();
    assert_eq!(head.queue.0, 3);
    let origin = head.extras.as_ref().unwrap().origin.as_ref().unwrap();
    assert_eq!((origin.queue.as_str(), origin.queue_id.0, origin.moved_at), ("q", 1, Timestamp(START)));
    assert_eq!(head.timer(), Some(Timestamp(START + 1100)), "the dead-letter queue's TTL");
    assert_eq!(failed_as(&scene), Some(FailureKind::Explicit));
}

#[test]
fn neither_a_closed_dead_letter_queue_nor_a_cancel_moves_an_item() {
    let dead = |state| {
        let mut dead = queue(3, "dead", |_| {});
        dead.state = state;
        dead
    };
    let since = Timestamp(START);
    for (state, cancelled) in [(QueueState::Closed { since }, false), (QueueState::Open, true)] {
        let mut scene = Scene::with(|policy| policy.dead_letter_queue = Some("dead".parse().unwrap())).held();
        scene.dead_letters = Some(dead(state));
        let reason = String::new();
        let _ = match cancelled {
            true => scene.run(Command::Cancel { reason }).unwrap(),
            false => scene.by(1, fail("no")).unwrap(),
        };
        assert_eq!(scene.head().queue.0, 1);
    }
}

#[test]
fn a_long_reason_is_cut_at_a_character_and_a_far_longer_one_refused() {
    let long = "ü".repeat(limits::REASON_BYTES_MAX);
    let mut scene = Scene::new().held();
    scene.by(1, fail(&long)).unwrap();
    let kept = scene.item.as_ref().unwrap().errors.iter().next().unwrap().message.clone();
    assert!(kept.len() <= limits::REASON_BYTES_MAX && long.starts_with(&kept) && !kept.is_empty());
    let mut scene = Scene::new().held();
    let absurd = "x".repeat(16 * limits::REASON_BYTES_MAX + 1);
    assert_eq!(scene.by(1, fail(&absurd)).unwrap_err().code(), "too_large");
    assert!(scene.head().lease().is_some());
}

#[test]
fn every_verb_has_its_own_event() {
    let events = [
        EventKind::LeaseRenewed,
        EventKind::Edited,
        EventKind::Completed,
        EventKind::Failed,
        EventKind::Retried,
        EventKind::Released,
        EventKind::Deferred,
    ];
    for (verb, event) in verbs().into_iter().zip(events) {
        let mut scene = Scene::new().held();
        scene.by(1, verb).unwrap();
        assert_eq!(scene.change().event(), Some(event));
    }
}
