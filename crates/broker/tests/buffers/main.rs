//! What items keep in object storage: buffers in their slots, and payload fields that are large.
#![allow(clippy::unwrap_used, reason = "tests")]

mod collection;
mod lost_payloads;
mod ownership;
mod scene;

use bytes::Bytes;
use scene::{NEVER, Scene, code, commit, commit_with, input, large, made, often, payload, queue, release};
use std::time::Duration;
use towline_broker::ReceiveRequest;
use towline_buffers::{BufferError, BufferState as State, WriterId};
use towline_domain::change::Answer;
use towline_domain::command::{Verb, When};
use towline_domain::{
    Adjust, Body, Field, FieldEdits, FieldSet, Fields, Millis, Overrides, Reference, Submission,
};
use towline_store::{Operation, Reply};

#[tokio::test]
async fn an_input_must_be_there_and_not_have_failed() {
    let scene = Scene::new(NEVER).await;
    let refused = scene.submit(input("b1")).await;
    assert!(
        refused.as_ref().is_err_and(|refusal| refusal.to_string().contains("inputs.data")),
        "{refused:?}"
    );
    assert_eq!(code(refused), "buffer_not_found");
    assert_eq!(code(scene.submit(input("..")).await), "buffer_not_found");
    let id = scene.create("b1").await;
    scene.submit(input("b1")).await.unwrap();
    scene.buffers.abandon(id.as_str(), "gone", scene.broker.now().0).await.unwrap();
    assert_eq!(code(scene.submit(input("b1")).await), "buffer_not_ready");
    // One bad element fails nobody else.
    let submit = |submission| Operation::Submit { queue: queue(), submission: Box::new(submission) };
    let batch = vec![submit(Submission::default()), submit(input("none")), submit(Submission::default())];
    let answers = scene.broker.update(batch).await.unwrap();
    assert_eq!(answers.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, true]);
}

#[tokio::test]
async fn an_attempt_s_buffer_is_written_and_committed_without_being_named() {
    let scene = Scene::new(often(300)).await;
    let item = scene.held().await;
    let id = made(&item);
    assert!(scene.readable(&id).await, "a reader may come first");
    scene.write(&id, b"result").await.unwrap();
    scene.settle(&item, commit()).await.unwrap();
    scene.settle(&item, commit()).await.unwrap();
    assert_eq!(scene.stored(item.head.id).await.outcome.outputs["result"], id);
    let again = scene.broker.admit_writer(id.as_str()).await.unwrap();
    assert!(matches!(again, Err(BufferError::AlreadyWritten { .. })), "{again:?}");
    // It outlives its item.
    scene.run(Operation::Delete { id: item.head.id, force: false }).await.unwrap();
    let rounds = scene.held().await;
    let cut = made(&rounds);
    scene.write(&cut, b"x").await.unwrap();
    scene.settle(&rounds, release()).await.unwrap();
    scene.until("the other one is collected", || async { scene.state(&cut).await.is_none() }).await;
    assert!(scene.readable(&id).await);
    assert!(matches!(scene.state(&id).await, Some(State::Complete { .. })));
}

#[tokio::test]
async fn an_attempt_that_ends_otherwise_loses_its_buffer() {
    let ends: [fn() -> Verb; 4] = [
        release,
        || Verb::Fail { reason: String::new() },
        || Verb::Retry { error: String::new(), delay: None, seed: 1 },
        || Verb::Defer { until: When::NOW },
    ];
    for end in ends {
        let scene = Scene::new(often(300)).await;
        let item = scene.held().await;
        let id = made(&item);
        scene.write(&id, b"half").await.unwrap();
        scene.settle(&item, end()).await.unwrap();
        assert!(!scene.readable(&id).await, "{:?}", end());
        let stale = scene.broker.admit_writer(id.as_str()).await.unwrap();
        assert!(matches!(stale, Err(BufferError::NotFound { .. })), "{stale:?}");
        scene.until("it is collected", || async { scene.state(&id).await.is_none() }).await;
        scene.until("it is counted", || async { scene.broker.collected().outputs == 1 }).await;
    }
}

#[tokio::test]
async fn the_next_attempt_has_buffers_of_its_own() {
    let scene = Scene::new(NEVER).await;
    let first = scene.held().await;
    scene.write(&made(&first), b"first").await.unwrap();
    scene.settle(&first, release()).await.unwrap();
    let second = scene.receive().await.unwrap().unwrap();
    assert_ne!(made(&first), made(&second));
    assert_eq!(code(scene.settle(&first, commit()).await), "already_settled");
    scene.write(&made(&second), b"second").await.unwrap();
    scene.settle(&second, commit()).await.unwrap();
}

#[tokio::test]
async fn what_is_not_whole_is_not_committed() {
    let scene = Scene::new(NEVER).await;
    let item = scene.held().await;
    let id = made(&item);
    let (writer, now) = (WriterId::from_bytes([1; 16]), scene.broker.now().0);
    scene.broker.admit_writer(id.as_str()).await.unwrap().unwrap();
    scene.buffers.begin(id.as_str(), writer, now).await.unwrap();
    assert_eq!(code(scene.settle(&item, commit()).await), "buffer_not_ready");
    scene.buffers.fail(id.as_str(), writer, "broke", now).await.unwrap();
    assert_eq!(code(scene.settle(&item, commit()).await), "buffer_not_ready");
    // The lease is kept, and another buffer will do.
    let own = scene.create("own").await;
    assert_eq!(code(scene.settle(&item, commit_with(&own)).await), "buffer_not_ready");
    assert_eq!(code(scene.settle(&item, commit_with(&"none".parse().unwrap())).await), "buffer_not_found");
    scene.write(&own, b"mine").await.unwrap();
    scene.settle(&item, commit_with(&own)).await.unwrap();
}

#[tokio::test]
async fn a_commit_whose_buffer_is_gone_is_refused() {
    let scene = Scene::new(NEVER).await;
    let item = scene.held().await;
    let id = made(&item);
    scene.write(&id, b"result").await.unwrap();
    scene.buffers.delete(id.as_str()).await.unwrap();
    // A reader and a writer that come now do not make an empty one in its place.
    assert!(scene.readable(&id).await);
    assert!(matches!(scene.write(&id, b"again").await, Err(BufferError::NotFound { .. })));
    let refused = scene.settle(&item, commit()).await;
    assert!(
        refused.as_ref().is_err_and(|refusal| refusal.to_string().contains("outputs.result")),
        "{refused:?}"
    );
    assert_eq!(code(refused), "buffer_not_found");
    assert_eq!(scene.state(&id).await, None);
    // The lease is kept, and another buffer will do.
    let own = scene.create("own").await;
    scene.write(&own, b"mine").await.unwrap();
    scene.settle(&item, commit_with(&own)).await.unwrap();
}

#[tokio::test]
async fn a_buffer_never_written_is_empty_and_whole() {
    let scene = Scene::new(NEVER).await;
    let item = scene.held().await;
    scene.settle(&item, commit()).await.unwrap();
    let shown = scene.buffers.show(made(&item).as_str(), scene.broker.now().0).await.unwrap();
    assert!(matches!(shown.state, State::Complete { .. }));
    assert_eq!(shown.position.bytes, 0);
}

#[tokio::test]
async fn a_commit_that_was_lost_after_its_buffers_were_finished_leaves_nothing() {
    let scene = Scene::new(often(300)).await;
    let item = scene.held().await;
    let id = made(&item);
    scene.write(&id, b"result").await.unwrap();
    // As far as a commit comes before a crash.
    scene.buffers.put_blob(&format!("kept.{id}"), Bytes::new()).await.unwrap();
    scene.settle(&item, release()).await.unwrap();
    scene.until("it is collected", || async { scene.state(&id).await.is_none() }).await;
    scene.until("its mark, too", || async { scene.blobs().await.is_empty() }).await;
}

#[tokio::test]
async fn large_fields_are_kept_elsewhere_and_come_back() {
    let scene = Scene::new(NEVER).await;
    let content = large(1);
    let (id, _) = scene.submit(payload(content.clone())).await.unwrap();
    let stored = scene.stored(id).await.fields.blob.unwrap();
    assert!(Reference::read(&stored).is_some() && stored.len() < 200, "{}", stored.len());
    let item = scene.receive().await.unwrap().unwrap();
    assert_eq!((item.head.id, item.fields.blob.as_ref()), (id, Some(&content)));
    let mut shown = scene.store.get(vec![id], FieldSet::ALL).await.unwrap();
    let mut shown = [shown.pop().flatten().unwrap()];
    scene.broker.fetch(&mut shown).await.unwrap();
    assert_eq!(shown[0].item.fields.blob, Some(content));
}

#[tokio::test]
async fn fields_change_between_attempts_wherever_they_are() {
    let scene = Scene::new(often(300)).await;
    for field in Field::ALL {
        let mut fields = Fields::default();
        fields.set(field, Some(large(1)));
        let submission = Submission { fields, ..Submission::default() };
        let (id, _) = scene.submit(submission).await.unwrap();
        for value in [Some(Bytes::from("small")), Some(large(2)), Some(large(3)), None, Some(large(4))] {
            let item = scene.receive().await.unwrap().unwrap();
            let edits = match value.clone() {
                Some(value) => FieldEdits::default().set(field, value),
                None => FieldEdits::default().unset(field),
            };
            scene.settle_with(&item, release(), Adjust { edits, ..Adjust::default() }).await.unwrap();
            let item = scene.receive().await.unwrap().unwrap();
            assert_eq!(item.fields.get(field), value.as_ref());
            scene.settle(&item, Verb::Defer { until: When::NOW }).await.unwrap();
        }
        scene.until("what was replaced is collected", || async { scene.blobs().await.len() == 1 }).await;
        scene.run(Operation::Delete { id, force: false }).await.unwrap();
        scene.until("the last, too", || async { scene.blobs().await.is_empty() }).await;
    }
}

#[tokio::test]
async fn what_looks_like_a_reference_is_none() {
    let scene = Scene::new(NEVER).await;
    for content in
        [Reference::to(b"x", "k".to_owned()).write(), Reference::to(b"", String::new()).write().slice(..16)]
    {
        scene.submit(payload(content.clone())).await.unwrap();
        let item = scene.receive().await.unwrap().unwrap();
        assert_eq!(item.fields.blob, Some(content));
    }
}

#[tokio::test]
async fn small_fields_of_items_that_wait_long_are_kept_elsewhere() {
    let scene = Scene::new(NEVER).await;
    let content = large(1).slice(..5000);
    let soon = scene.submit(payload(content.clone())).await.unwrap().0;
    let late = Submission { ready: When::After(Millis::days(2)), ..payload(content) };
    let late = scene.submit(late).await.unwrap().0;
    assert!(Reference::read(&scene.stored(soon).await.fields.blob.unwrap()).is_none());
    assert!(Reference::read(&scene.stored(late).await.fields.blob.unwrap()).is_some());
}

#[tokio::test]
async fn the_same_key_with_the_same_content_is_the_same_item() {
    let scene = Scene::new(NEVER).await;
    let keyed = |content| {
        let body = Body { idempotency_key: Some("k".to_owned()), ..Body::default() };
        Submission { body, overrides: Overrides::default(), ..payload(content) }
    };
    let (id, created) = scene.submit(keyed(large(1))).await.unwrap();
    assert!(created);
    assert_eq!(scene.submit(keyed(large(1))).await, Ok((id, false)));
    assert_eq!(code(scene.submit(keyed(large(2))).await), "key_conflict");
    assert_eq!(scene.blobs().await.len(), 1, "what was not taken is gone at once");
}

#[tokio::test]
async fn one_answer_brings_no_more_than_it_may() {
    let scene = Scene::new(NEVER).await;
    let huge = Bytes::from(vec![1; 4 << 20]);
    for _ in 0..20 {
        scene.submit(payload(huge.clone())).await.unwrap();
    }
    let request = ReceiveRequest {
        queue: queue(),
        max: 20,
        wait: Duration::ZERO,
        visibility: None,
        fields: FieldSet::ALL,
        make_buffers: false,
    };
    let first = scene.broker.receive(request.clone()).await.unwrap().unwrap().items;
    assert_eq!(first.len(), 16);
    assert!(first.iter().all(|item| item.fields.blob.as_ref() == Some(&huge)));
    scene
        .until("the others are given out next", || async {
            let rest = scene.broker.receive(request.clone()).await.unwrap().unwrap().items;
            rest.len() == 4
        })
        .await;
    let page = scene.store.list(Default::default(), None, 20, FieldSet::ALL).await.unwrap();
    let mut items = page.items;
    assert_eq!(code(scene.broker.fetch(&mut items).await), "invalid");
    scene.broker.fetch(&mut items[..2]).await.unwrap();
    assert_eq!(items[1].item.fields.blob, Some(huge));
}

#[tokio::test]
async fn what_replaces_stays_in_the_store_and_is_no_reference() {
    let scene = Scene::new(NEVER).await;
    let under = |content| {
        let body = Body { replace_key: Some("k".to_owned()), ..Body::default() };
        let submission = Box::new(Submission { body, ..payload(content) });
        Operation::Submit { queue: queue(), submission }
    };
    let Ok(Reply::Answer(Answer::Submitted { id, .. })) = scene.run(under(large(1))).await else {
        panic!("a new item")
    };
    assert_eq!(scene.run(under(large(2))).await, Ok(Reply::Answer(Answer::Replaced { id })));
    assert_eq!(scene.stored(id).await.fields.blob, Some(large(2)), "whole");
    assert!(scene.blobs().await.is_empty());
    let forged = Reference::to(b"x", "k".to_owned()).write();
    assert_eq!(code(scene.run(under(forged)).await), "invalid");
    // What its holder sets is kept elsewhere, as it is of any item.
    let item = scene.receive().await.unwrap().unwrap();
    assert_eq!((item.head.id, item.fields.blob.as_ref()), (id, Some(&large(2))));
    let edits = FieldEdits::default().set(Field::Blob, large(3));
    scene.settle_with(&item, release(), Adjust { edits, ..Adjust::default() }).await.unwrap();
    assert_eq!(scene.blobs().await.len(), 1);
    assert_eq!(scene.receive().await.unwrap().unwrap().fields.blob, Some(large(3)));
}
