use super::scene::{START, Scene, token};
use crate::change::Answer;
use crate::command::{Command, Receive, When};
use crate::item::State;
use crate::refusal::Refusal;
use crate::time::{Millis, Timestamp};

fn receive(visibility: Option<Millis>, assigned: bool) -> Command {
    Command::Receive(Receive { token: token(1), visibility, assigned, make_buffers: false })
}

#[test]
fn a_received_item_is_leased_for_the_visibility_timeout() {
    let scene = Scene::new().held();
    let lease = scene.head().lease().unwrap();
    assert_eq!((lease.token, lease.deadline), (token(1), Timestamp(START + 1000)));
    assert_eq!((scene.head().deliveries, scene.head().attempt()), (1, 1));
    let deadline = lease.deadline;
    assert_eq!(*scene.change().answer(), Answer::Leased { deadline });
}

#[test]
fn a_receiver_may_ask_for_another_timeout_within_limits() {
    let mut scene = Scene::new();
    scene.submit(|_| {}).unwrap();
    for absurd in [0, 99, u64::MAX] {
        assert_eq!(scene.run(receive(Some(Millis(absurd)), false)).unwrap_err().code(), "invalid");
    }
    scene.run(receive(Some(Millis(100)), false)).unwrap();
    assert_eq!(scene.head().lease().unwrap().deadline, Timestamp(START + 100));
}

#[test]
fn no_item_is_delivered_before_it_is_ready() {
    let mut scene = Scene::new();
    scene.submit(|submission| submission.ready = When::After(Millis(10))).unwrap();
    scene.later(9);
    assert!(matches!(scene.receive(1), Err(Refusal::NotDue { .. })));
    scene.later(1);
    scene.receive(1).unwrap();
}

#[test]
fn no_item_is_delivered_at_or_after_its_expiry() {
    let mut scene = Scene::with(|policy| policy.expire_after = Some(Millis(10)));
    scene.submit(|_| {}).unwrap();
    scene.later(10);
    assert!(matches!(scene.receive(1), Err(Refusal::NotDue { .. })));
}

#[test]
fn only_a_pending_item_of_a_queue_that_is_not_paused_is_delivered() {
    let mut scene = Scene::new().held();
    assert_eq!(scene.receive(2).unwrap_err().code(), "wrong_state");
    let mut scene = Scene::new();
    scene.submit(|_| {}).unwrap();
    scene.queue.paused = true;
    assert_eq!(scene.receive(1).unwrap_err().code(), "wrong_state");
    scene.queue.paused = false;
    scene.run(Command::Pause).unwrap();
    assert_eq!(scene.receive(1).unwrap_err().code(), "wrong_state");
}

#[test]
fn a_closed_queue_still_delivers_its_items() {
    let mut scene = Scene::new();
    scene.submit(|_| {}).unwrap();
    scene.run(Command::CloseQueue).unwrap();
    scene.receive(1).unwrap();
}

#[test]
fn a_lease_never_outlives_its_item() {
    let mut scene = Scene::with(|policy| policy.expire_after = Some(Millis(300)));
    scene.submit(|_| {}).unwrap();
    scene.later(100);
    scene.receive(1).unwrap();
    assert_eq!(scene.head().lease().unwrap().deadline, Timestamp(START + 300));
}

#[test]
fn give_up_after_counts_from_the_first_delivery() {
    let mut scene = Scene::with(|policy| policy.give_up_after = Some(Millis(1500)));
    scene.submit(|_| {}).unwrap();
    assert_eq!(scene.head().expires_at, None);
    scene.later(500);
    scene.receive(1).unwrap();
    assert_eq!(scene.head().expires_at, Some(Timestamp(START + 2000)));
    scene.later(1000);
    scene.run(Command::Elapse).unwrap();
    scene.receive(2).unwrap();
    assert_eq!(scene.head().expires_at, Some(Timestamp(START + 2000)), "not from the second");
    assert_eq!(scene.head().lease().unwrap().deadline, Timestamp(START + 2000));
}

#[test]
fn an_assigned_lease_must_be_acknowledged_within_its_own_timeout() {
    let mut scene = Scene::with(|policy| policy.lease.ack_timeout = Some(Millis(200)));
    scene.submit(|_| {}).unwrap();
    scene.run(receive(None, true)).unwrap();
    let State::Processing(lease) = &scene.head().state else { panic!("not leased") };
    assert!(lease.unacknowledged);
    assert_eq!(lease.deadline, Timestamp(START + 200));
    // A lease that the receiver asked for needs no acknowledgement.
    let mut scene = Scene::with(|policy| policy.lease.ack_timeout = Some(Millis(200)));
    scene.submit(|_| {}).unwrap();
    scene.run(receive(None, false)).unwrap();
    assert_eq!(scene.head().lease().unwrap().deadline, Timestamp(START + 1000));
}
