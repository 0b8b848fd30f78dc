use super::scene::{START, Scene};
use crate::change::Answer;
use crate::command::When;
use crate::counts::Counts;
use crate::digest;
use crate::event::EventKind;
use crate::fields::Fields;
use crate::id::ItemId;
use crate::item::{Body, State};
use crate::json::Json;
use crate::limits;
use crate::policy::Overrides;
use crate::queue::QueueState;
use crate::refusal::Refusal;
use crate::schema::Schema;
use crate::score::{Order, ScoreWeights};
use crate::time::{Millis, Timestamp};
use bytes::Bytes;
use uuid::Uuid;

#[test]
fn a_submitted_item_is_pending() {
    let mut scene = Scene::new();
    let answer = scene.submit(|_| {}).unwrap();
    let head = scene.head();
    assert_eq!(answer, Answer::Submitted { id: head.id, created: true });
    assert_eq!(head.state, State::Pending);
    assert_eq!((head.attempt(), head.retries, head.deliveries, head.revision), (1, 0, 0, 1));
    assert_eq!((head.created_at, head.ready_at), (Timestamp(START), Timestamp(START)));
    assert_eq!(scene.change().event(), Some(EventKind::Submitted));
    assert_eq!(scene.change().before(), None);
}

#[test]
fn a_ready_time_in_the_past_stays_down_to_the_creation_of_the_queue() {
    for (ready, expected) in [
        (When::At(Timestamp(5)), START),
        (When::At(Timestamp(START + 5)), START + 5),
        (When::At(Timestamp(START + 25)), START + 25),
        (When::After(Millis(7)), START + 17),
    ] {
        let mut scene = Scene::new();
        scene.later(10);
        scene.submit(|submission| submission.ready = ready).unwrap();
        assert_eq!(scene.head().ready_at, Timestamp(expected));
    }
}

#[test]
fn a_ready_time_beyond_the_last_time_is_refused() {
    for ready in [When::At(Timestamp(u64::MAX)), When::After(Millis(u64::MAX))] {
        let refused = Scene::new().submit(|submission| submission.ready = ready).unwrap_err();
        assert_eq!(refused.code(), "invalid");
    }
}

#[test]
fn a_submitter_may_choose_an_id_once() {
    let mut scene = Scene::new();
    let id = ItemId(Uuid::from_u128(42));
    scene.submit(|submission| submission.id = Some(id)).unwrap();
    assert_eq!(scene.head().id, id);
    let again = scene.submit(|submission| submission.id = Some(id));
    assert_eq!(again, Err(Refusal::IdTaken { id }));
}

#[test]
fn a_closed_or_completed_queue_refuses_submits() {
    let since = Timestamp(START);
    for state in [QueueState::Closed { since }, QueueState::Completed { since }] {
        let mut scene = Scene::new();
        scene.queue.state = state;
        assert_eq!(scene.submit(|_| {}).unwrap_err().code(), "queue_closed");
        assert_eq!(scene.item, None);
    }
}

#[test]
fn a_full_queue_refuses_submits_and_leased_and_finished_items_do_not_fill_it() {
    let mut scene = Scene::with(|policy| policy.depth_limit = Some(3));
    scene.other_counts =
        Counts { processing: 10, completed: 10, failed: 10, pending: 1, scheduled: 1, paused: 0 };
    scene.submit(|_| {}).unwrap();
    scene.item = None;
    scene.other_counts.paused = 1;
    let refused = scene.submit(|_| {}).unwrap_err();
    assert!(matches!(refused, Refusal::QueueFull { depth: 3, limit: 3, .. }), "{refused}");
}

#[test]
fn a_known_key_returns_its_item_and_with_another_content_is_a_conflict() {
    let owner = ItemId(Uuid::from_u128(9));
    let fields = |text: &'static str| Fields { blob: Some(Bytes::from(text)), ..Fields::default() };
    let mut scene = Scene::new();
    scene.key_owner = Some((owner, digest::content(&Body::default(), &fields("a"))));
    // Even if the queue is closed: the first answer may have been lost.
    scene.queue.state = QueueState::Closed { since: Timestamp(START) };
    let mut submit = |text| {
        scene.submit(|submission| {
            submission.body.idempotency_key = Some("k".to_owned());
            submission.fields = fields(text);
        })
    };
    assert_eq!(submit("a"), Ok(Answer::Submitted { id: owner, created: false }));
    let key = "k".to_owned();
    assert_eq!(submit("b"), Err(Refusal::KeyConflict { key, id: owner }));
    assert!(scene.change().is_empty());
}

#[test]
fn an_item_with_a_key_has_a_claim_in_its_queue() {
    let mut scene = Scene::new();
    scene.submit(|submission| submission.body.idempotency_key = Some("k".to_owned())).unwrap();
    let claim = scene.item.as_ref().unwrap().body.claim.unwrap();
    assert_eq!(claim.queue, scene.queue.id);
    let mut scene = Scene::new();
    scene.submit(|_| {}).unwrap();
    assert_eq!(scene.item.as_ref().unwrap().body.claim, None);
}

#[test]
fn a_schema_allows_exactly_its_parameters_and_without_a_schema_any_are_allowed() {
    let odd = || [("Any Key!".to_owned(), Json::string("v"))].into();
    let mut scene = Scene::new();
    scene.submit(|submission| submission.body.params = odd()).unwrap();
    let mut scene = Scene::new();
    scene.queue.schema = Schema {
        input_params: [("level".parse().unwrap(), true), ("note".parse().unwrap(), false)].into(),
        ..Schema::default()
    };
    assert_eq!(
        scene.submit(|submission| submission.body.params = odd()).unwrap_err().code(),
        "schema_mismatch"
    );
    assert_eq!(scene.submit(|_| {}).unwrap_err().code(), "schema_mismatch");
    let level = || [("level".to_owned(), Json::string("v"))].into();
    scene.submit(|submission| submission.body.params = level()).unwrap();
}

#[test]
fn a_field_or_item_that_is_too_large_is_refused() {
    let big = Bytes::from(vec![0; limits::FIELD_BYTES_MAX + 1]);
    let refused = Scene::new().submit(|submission| submission.fields.blob = Some(big)).unwrap_err();
    assert!(matches!(refused, Refusal::TooLarge { what: "blob", .. }), "{refused}");
    let most = Bytes::from(vec![0; limits::FIELD_BYTES_MAX]);
    let whole = |submission: &mut crate::command::Submission| {
        submission.fields = Fields {
            blob: Some(most.clone()),
            metadata: Some(most.clone()),
            parameters: Some(Bytes::from_static(b"1")),
            state_blob: None,
        };
    };
    let refused = Scene::new().submit(whole).unwrap_err();
    assert!(matches!(refused, Refusal::TooLarge { what: "the item", .. }), "{refused}");
}

#[test]
fn empty_and_overlong_labels_are_refused() {
    for text in [String::new(), "x".repeat(1000)] {
        let key = Scene::new().submit(|submission| submission.body.idempotency_key = Some(text.clone()));
        assert_eq!(key.unwrap_err().code(), "invalid");
        let group = Scene::new().submit(|submission| submission.body.group = Some(text.clone()));
        assert_eq!(group.unwrap_err().code(), "invalid");
        let tag =
            Scene::new().submit(|submission| drop(submission.body.tags.insert(text.clone(), String::new())));
        assert_eq!(tag.unwrap_err().code(), "invalid");
    }
}

#[test]
fn an_override_of_the_expiry_replaces_that_of_the_policy() {
    let mut scene = Scene::with(|policy| policy.expire_after = Some(Millis(50)));
    scene.submit(|_| {}).unwrap();
    assert_eq!(scene.head().expires_at, Some(Timestamp(START + 50)));
    let mut scene = Scene::with(|policy| policy.expire_after = Some(Millis(50)));
    let own = Overrides { expire_after: Some(Millis(9)), ..Overrides::default() };
    scene.submit(|submission| submission.overrides = own).unwrap();
    assert_eq!(scene.head().expires_at, Some(Timestamp(START + 9)));
}

#[test]
fn a_scored_item_carries_its_score_and_an_unknown_tier_is_refused() {
    let mut scene = Scene::with(|policy| policy.order = Order::Score(Box::default()));
    let refused = scene.submit(|submission| submission.body.tier = Some("GOLD".to_owned())).unwrap_err();
    assert!(refused.to_string().contains("PREMIUM"), "{refused}");
    scene.submit(|submission| submission.body.fee = Some(500)).unwrap();
    let expected = ScoreWeights::default().static_score(500, 0, None, Timestamp(START));
    assert_eq!(scene.head().extras.as_ref().unwrap().score, expected);
}
