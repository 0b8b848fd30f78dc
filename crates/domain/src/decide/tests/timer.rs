use super::scene::{START, Scene, commit, fail, retry};
use crate::backoff::{Backoff, Growth, Jitter};
use crate::change::Answer;
use crate::command::{Command, Receive, Verb};
use crate::event::EventKind;
use crate::item::{ErrorKind, FailureKind, State};
use crate::item_state::ItemState;
use crate::refusal::Refusal;
use crate::time::{Millis, Timestamp};

fn elapse(scene: &mut Scene) -> Result<Answer, Refusal> {
    scene.run(Command::Elapse)
}

fn failed_as(scene: &Scene) -> Option<FailureKind> {
    match scene.head().state {
        State::Failed { kind, .. } => Some(kind),
        _ => None,
    }
}

#[test]
fn elapse_is_refused_before_it_is_due() {
    let mut scene = Scene::new().held();
    scene.later(999);
    assert!(matches!(elapse(&mut scene), Err(Refusal::NotDue { .. })));
    let mut scene = Scene::new();
    scene.submit(|_| {}).unwrap();
    scene.later(u64::MAX);
    assert!(
        matches!(elapse(&mut scene), Err(Refusal::NotDue { .. })),
        "a pending item without an expiry has no timer"
    );
}

#[test]
fn a_lapse_counts_as_a_retry_with_its_error() {
    let mut scene = Scene::new().held();
    scene.later(1000);
    assert_eq!(elapse(&mut scene), Ok(Answer::State(ItemState::Pending)));
    assert_eq!(scene.change().event(), Some(EventKind::Lapsed));
    assert_eq!((scene.head().retries, scene.head().deliveries), (1, 1));
    assert_eq!(scene.head().ready_at, Timestamp(START), "without a backoff it keeps its place");
    assert_eq!(scene.item.as_ref().unwrap().errors.iter().next().unwrap().kind, ErrorKind::Lapsed);
    for number in 2..=4 {
        scene.receive(number).unwrap();
        scene.later(1000);
        elapse(&mut scene).unwrap();
    }
    assert_eq!(failed_as(&scene), Some(FailureKind::RetriesExhausted));
    assert_eq!((scene.head().retries, scene.head().deliveries), (3, 4));
}

#[test]
fn a_lapse_waits_for_the_backoff_like_a_retry() {
    let backoff = Backoff { growth: Growth::Constant { delay: Millis(300) }, jitter: Jitter::None };
    let mut scene = Scene::with(|policy| policy.backoff = backoff).held();
    scene.later(1000);
    elapse(&mut scene).unwrap();
    assert_eq!(scene.head().ready_at, Timestamp(START + 1300));
}

#[test]
fn an_unacknowledged_lease_has_its_own_error_kind() {
    let mut scene = Scene::with(|policy| policy.lease.ack_timeout = Some(Millis(100)));
    scene.submit(|_| {}).unwrap();
    let assigned =
        Receive { token: super::scene::token(1), visibility: None, assigned: true, make_buffers: false };
    scene.run(Command::Receive(assigned)).unwrap();
    scene.later(100);
    elapse(&mut scene).unwrap();
    assert_eq!(scene.item.as_ref().unwrap().errors.iter().next().unwrap().kind, ErrorKind::Unacknowledged);
}

#[test]
fn lapses_in_a_row_make_an_item_poison_and_a_settle_resets_their_count() {
    let mut scene = Scene::with(|policy| {
        policy.poison_after = Some(2);
        policy.max_retries = 10;
    })
    .held();
    scene.later(1000);
    elapse(&mut scene).unwrap();
    scene.receive(2).unwrap();
    scene.by(2, retry("later")).unwrap();
    for number in 3..=4 {
        scene.receive(number).unwrap();
        scene.later(1000);
        elapse(&mut scene).unwrap();
    }
    assert_eq!(failed_as(&scene), Some(FailureKind::Poison));
    assert_eq!(scene.head().deliveries, 4);
}

#[test]
fn an_item_expires_in_any_unfinished_state_with_a_recorded_error() {
    let pending = |scene: &mut Scene| drop(scene.submit(|_| {}).unwrap());
    let paused = |scene: &mut Scene| {
        scene.submit(|_| {}).unwrap();
        scene.run(Command::Pause).unwrap();
    };
    let held = |scene: &mut Scene| {
        scene.submit(|_| {}).unwrap();
        scene.receive(1).unwrap();
    };
    for prepare in [&pending as &dyn Fn(&mut Scene), &paused, &held] {
        let mut scene = Scene::with(|policy| policy.expire_after = Some(Millis(500)));
        prepare(&mut scene);
        assert_eq!(scene.head().timer(), Some(Timestamp(START + 500)));
        scene.later(500);
        assert_eq!(elapse(&mut scene), Ok(Answer::State(ItemState::Failed)));
        assert_eq!(failed_as(&scene), Some(FailureKind::Expired));
        assert_eq!(scene.change().event(), Some(EventKind::Expired));
        assert_eq!(scene.item.as_ref().unwrap().errors.iter().next().unwrap().kind, ErrorKind::Expired);
        assert_eq!(scene.head().retries, 0, "expiry is not an attempt");
    }
}

#[test]
fn a_finished_item_is_removed_at_its_ttl_and_not_before() {
    let settles: [(Verb, u64); 2] = [(commit(), 7000), (fail("no"), 9000)];
    for (verb, ttl) in settles {
        let mut scene = Scene::with(|policy| {
            policy.completed_ttl = Some(Millis(7000));
            policy.failed_ttl = Some(Millis(9000));
        })
        .held();
        scene.by(1, verb).unwrap();
        scene.later(ttl - 1);
        assert!(matches!(elapse(&mut scene), Err(Refusal::NotDue { .. })));
        scene.later(1);
        assert_eq!(elapse(&mut scene), Ok(Answer::Removed));
        assert_eq!(scene.item, None);
    }
}

#[test]
fn an_expiry_may_complete_a_closed_queue() {
    let mut scene = Scene::with(|policy| policy.expire_after = Some(Millis(500)));
    scene.submit(|_| {}).unwrap();
    scene.run(Command::CloseQueue).unwrap();
    scene.later(500);
    elapse(&mut scene).unwrap();
    assert_eq!(scene.queue.state.name(), "completed");
}

#[test]
fn the_delay_after_a_lapse_differs_from_item_to_item() {
    let backoff = || Backoff {
        growth: Growth::Constant { delay: Millis(100_000) },
        jitter: Jitter::Random { permille: 500 },
    };
    let delays: Vec<u64> = (0..3)
        .map(|number| {
            let mut scene = Scene::with(|policy| policy.backoff = backoff());
            let id = crate::id::ItemId(uuid::Uuid::from_u128(number));
            scene.submit(|submission| submission.id = Some(id)).unwrap();
            scene.receive(1).unwrap();
            scene.later(1000);
            elapse(&mut scene).unwrap();
            scene.head().ready_at.0
        })
        .collect();
    assert!(delays[0] != delays[1] && delays[1] != delays[2], "{delays:?}");
}
