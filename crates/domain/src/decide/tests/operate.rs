use super::scene::{START, Scene, commit, fail, queue};
use crate::change::Answer;
use crate::command::{Command, When};
use crate::event::EventKind;
use crate::item::{ErrorKind, FailureKind, State};
use crate::item_state::ItemState;
use crate::precondition::{HeadFilter, Precondition};
use crate::queue::QueueState;
use crate::refusal::Refusal;
use crate::state_name::StateName;
use crate::time::{Millis, Timestamp};
use std::sync::Arc;

fn cancel() -> Command {
    Command::Cancel { reason: "enough".to_owned() }
}

fn delete(force: bool) -> Command {
    Command::Delete { force }
}

fn guarded(precondition: Precondition, then: Command) -> Command {
    Command::Guarded { precondition: Arc::new(precondition), then: Box::new(then) }
}

fn pending() -> Scene {
    let mut scene = Scene::new();
    scene.submit(|_| {}).unwrap();
    scene
}

fn failed() -> Scene {
    let mut scene = Scene::new().held();
    scene.by(1, fail("no")).unwrap();
    scene
}

fn completed() -> Scene {
    let mut scene = Scene::new().held();
    scene.by(1, commit()).unwrap();
    scene
}

#[test]
fn an_unfinished_item_can_be_cancelled_and_a_second_cancel_changes_nothing() {
    let paused = || {
        let mut scene = pending();
        scene.run(Command::Pause).unwrap();
        scene
    };
    for mut scene in [pending(), paused(), Scene::new().held()] {
        assert_eq!(scene.run(cancel()), Ok(Answer::State(ItemState::Failed)));
        assert!(matches!(scene.head().state, State::Failed { kind: FailureKind::Cancelled, .. }));
        let error = scene.item.as_ref().unwrap().errors.iter().next().unwrap().clone();
        assert_eq!((error.kind, error.message.as_str()), (ErrorKind::Cancelled, "enough"));
        assert_eq!(scene.run(cancel()), Ok(Answer::State(ItemState::Failed)));
        assert!(scene.change().is_empty());
    }
}

#[test]
fn a_finished_item_cannot_be_cancelled_paused_or_resumed() {
    for command in [cancel(), Command::Pause, Command::Resume] {
        for mut scene in [completed(), failed()] {
            let before = scene.item.clone();
            assert_eq!(scene.run(command.clone()).unwrap_err().code(), "wrong_state");
            assert_eq!(scene.item, before);
        }
    }
}

#[test]
fn a_paused_item_keeps_its_position() {
    let mut scene = pending();
    let ready_at = scene.head().ready_at;
    scene.run(Command::Pause).unwrap();
    assert_eq!(scene.head().state, State::Paused);
    scene.run(Command::Pause).unwrap();
    assert!(scene.change().is_empty(), "a second pause changes nothing");
    scene.later(500);
    scene.run(Command::Resume).unwrap();
    assert_eq!((scene.head().ready_at, &scene.head().state), (ready_at, &State::Pending));
    scene.run(Command::Resume).unwrap();
    assert!(scene.change().is_empty());
    let mut scene = Scene::new().held();
    assert_eq!(scene.run(Command::Pause).unwrap_err().code(), "wrong_state");
}

#[test]
fn only_a_failed_item_can_be_redriven() {
    for mut scene in [pending(), Scene::new().held(), completed()] {
        assert_eq!(scene.run(Command::Redrive).unwrap_err().code(), "wrong_state");
    }
}

#[test]
fn a_redriven_item_starts_afresh() {
    let mut scene = Scene::with(|policy| {
        policy.max_retries = 0;
        policy.expire_after = Some(Millis(5000));
        policy.give_up_after = Some(Millis(3000));
        policy.poison_after = Some(9);
    });
    scene.submit(|submission| submission.ready = When::After(Millis(1))).unwrap();
    scene.later(1);
    scene.receive(1).unwrap();
    scene.later(1000);
    scene.run(Command::Elapse).unwrap();
    assert!(scene.head().is_terminal());
    scene.later(10_000);
    assert_eq!(scene.run(Command::Redrive), Ok(Answer::State(ItemState::Pending)));
    assert_eq!(scene.change().event(), Some(EventKind::Redriven));
    let head = scene.head().clone();
    assert_eq!((head.retries, head.deliveries, head.ready_at), (0, 1, scene.now));
    assert_eq!(head.expires_at, Some(scene.now.after(Millis(5000))), "the expiry starts again");
    let extras = head.extras.unwrap();
    assert_eq!((extras.lapses, extras.first_received_at), (0, None));
    assert_eq!(scene.item.as_ref().unwrap().errors.len(), 1, "its errors are kept");
    scene.receive(2).unwrap();
    assert_eq!(scene.head().expires_at, Some(scene.now.after(Millis(3000))), "`give_up_after` starts again");
}

#[test]
fn a_redriven_dead_letter_returns_to_its_origin_or_stays_if_that_was_deleted() {
    let dead_letter = || {
        let mut scene = Scene::with(|policy| policy.dead_letter_queue = Some("dead".parse().unwrap())).held();
        let dead = queue(3, "dead", |_| {});
        scene.dead_letters = Some(dead.clone());
        scene.by(1, fail("no")).unwrap();
        let origin = std::mem::replace(&mut scene.queue, dead);
        (scene, origin)
    };
    let (mut scene, origin) = dead_letter();
    scene.target = Some(origin);
    scene.run(Command::Redrive).unwrap();
    assert_eq!(scene.head().queue.0, 1);
    assert_eq!(scene.head().extras.as_ref().unwrap().origin, None);
    let (mut scene, _) = dead_letter();
    scene.run(Command::Redrive).unwrap();
    assert_eq!(scene.head().queue.0, 3);
}

#[test]
fn a_redrive_into_a_closed_queue_is_allowed_and_into_a_completed_one_refused() {
    let since = Timestamp(START);
    let mut scene = failed();
    scene.queue.state = QueueState::Closed { since };
    scene.run(Command::Redrive).unwrap();
    let mut scene = failed();
    scene.queue.state = QueueState::Completed { since };
    assert!(matches!(scene.run(Command::Redrive), Err(Refusal::QueueCompleted { .. })));
}

#[test]
fn a_leased_item_is_deleted_only_with_force() {
    let mut scene = Scene::new().held();
    assert_eq!(scene.run(delete(false)).unwrap_err().code(), "wrong_state");
    assert_eq!(scene.run(delete(true)), Ok(Answer::Removed));
    assert_eq!(scene.item, None);
    for mut scene in [pending(), completed(), failed()] {
        scene.run(delete(false)).unwrap();
        assert!(scene.change().removes_item());
        assert_eq!(scene.change().event(), Some(EventKind::Removed));
    }
}

#[test]
fn a_delete_guarded_by_state_refuses_an_item_in_another_state() {
    let in_state = |state| guarded(Precondition::in_state(state), delete(true));
    let mut scene = Scene::new().held();
    assert_eq!(scene.run(in_state(StateName::Pending)).unwrap_err().code(), "wrong_state");
    scene.run(in_state(StateName::Processing)).unwrap();
    let mut scene = Scene::new();
    scene.submit(|submission| submission.ready = When::After(Millis(5))).unwrap();
    assert_eq!(scene.run(in_state(StateName::Ready)).unwrap_err().code(), "wrong_state");
    scene.run(in_state(StateName::Pending)).unwrap();
}

#[test]
fn deleting_the_last_unfinished_item_of_a_closed_queue_completes_it() {
    let mut scene = pending();
    scene.run(Command::CloseQueue).unwrap();
    scene.run(delete(false)).unwrap();
    assert_eq!(scene.queue.state.name(), "completed");
    let mut scene = failed();
    scene.other_counts.pending = 1;
    scene.run(Command::CloseQueue).unwrap();
    scene.run(delete(false)).unwrap();
    assert_eq!(scene.queue.state.name(), "closed", "one is still pending");
}

#[test]
fn a_guarded_operation_refuses_an_item_that_no_longer_matches() {
    let head = |head| Precondition { head, ..Precondition::default() };
    let elsewhere = Precondition { queue: Some("other".parse().unwrap()), ..Precondition::default() };
    let here = Precondition { queue: Some("q".parse().unwrap()), ..Precondition::default() };
    let other_kind = HeadFilter { failure: Some(FailureKind::Poison), ..HeadFilter::default() };
    let kind = HeadFilter { failure: Some(FailureKind::Explicit), ..HeadFilter::default() };
    let earlier = HeadFilter { finished_before: Some(Timestamp(START)), ..HeadFilter::default() };
    let later = HeadFilter { finished_from: Some(Timestamp(START)), ..HeadFilter::default() };
    let attempts = HeadFilter { attempt_min: Some(2), ..HeadFilter::default() };
    let urgent = HeadFilter { priority_max: Some(-1), ..HeadFilter::default() };
    for mismatch in [elsewhere, head(other_kind), head(earlier), head(attempts), head(urgent)] {
        let mut scene = failed();
        let before = scene.item.clone();
        assert_eq!(scene.run(guarded(mismatch, Command::Redrive)).unwrap_err().code(), "wrong_state");
        assert_eq!(scene.item, before);
    }
    for matching in [here, head(kind), head(later), Precondition::default()] {
        let mut scene = failed();
        assert_eq!(scene.run(guarded(matching, Command::Redrive)), Ok(Answer::State(ItemState::Pending)));
    }
}

#[test]
fn set_priority_changes_a_pending_or_paused_item_and_nothing_else_of_it() {
    let mut scene = pending();
    let before = scene.item.clone().unwrap().head;
    assert_eq!(scene.run(Command::SetPriority { priority: -7 }), Ok(Answer::State(ItemState::Pending)));
    let after = scene.item.clone().unwrap().head;
    assert_eq!((after.priority, after.revision), (-7, before.revision + 1));
    assert_eq!((after.ready_at, after.transitions), (before.ready_at, before.transitions));
    assert_eq!(scene.change().event(), Some(EventKind::Prioritized));
    scene.run(Command::SetPriority { priority: -7 }).unwrap();
    assert!(scene.change().is_empty(), "the same priority changes nothing");
    scene.run(Command::Pause).unwrap();
    assert_eq!(scene.run(Command::SetPriority { priority: 1 }), Ok(Answer::State(ItemState::Paused)));
    for mut scene in [Scene::new().held(), completed(), failed()] {
        assert_eq!(scene.run(Command::SetPriority { priority: 1 }).unwrap_err().code(), "wrong_state");
    }
}

#[test]
fn a_pending_item_is_moved_to_an_open_queue() {
    let to = |name: &str| Command::Move { queue: name.parse().unwrap() };
    let mut scene = pending();
    assert_eq!(scene.run(to("other")).unwrap_err().code(), "queue_not_found");
    let other = queue(2, "other", |_| {});
    scene.target = Some(other.clone());
    scene.run(Command::CloseQueue).unwrap();
    assert_eq!(scene.run(to("other")), Ok(Answer::State(ItemState::Pending)));
    assert_eq!(scene.item.as_ref().unwrap().head.queue, other.id);
    assert_eq!(scene.change().event(), Some(EventKind::Moved));
    assert_eq!(scene.queue.state.name(), "completed", "it was the last unfinished item");
    let mut scene = pending();
    scene.run(to("q")).unwrap();
    assert!(scene.change().is_empty(), "it is already in this queue");
    let since = Timestamp(START);
    scene.target = Some(crate::queue::Queue { state: QueueState::Closed { since }, ..other.clone() });
    assert_eq!(scene.run(to("other")).unwrap_err().code(), "queue_closed");
    for mut scene in [Scene::new().held(), completed(), failed()] {
        scene.target = Some(other.clone());
        assert_eq!(scene.run(to("other")).unwrap_err().code(), "wrong_state");
    }
}
