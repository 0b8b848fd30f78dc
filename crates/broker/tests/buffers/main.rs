//! What items keep in object storage: buffers in their slots, and offloaded payload fields.
#![allow(clippy::unwrap_used, reason = "tests")]

mod collection;
mod lost_payloads;
mod output_ttl;
mod ownership;
mod scene;

use bytes::Bytes;
use scene::{
    NEVER, Scene, code, commit, commit_with, input, large, often, output_buffer, payload, queue, release,
};
use std::time::Duration;
use towline_broker::{AccessError, ReceiveRequest};
use towline_buffers::{BufferError, BufferState as State, WriterId};
use towline_domain::change::Answer;
use towline_domain::command::{Verb, When};
use towline_domain::{
    Adjust, Body, Field, FieldEdits, FieldSet, Fields, Millis, Overrides, Reference, Submission,
};
use towline_store::{Operation, Reply};

#[tokio::test]
async fn an_input_must_exist_and_not_have_failed() {
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
    // One refused operation does not fail the others.
    let submit = |submission| Operation::Submit { queue: queue(), submission: Box::new(submission) };
    let batch = vec![submit(Submission::default()), submit(input("none")), submit(Submission::default())];
    let answers = scene.broker.update(batch).await.unwrap();
    assert_eq!(answers.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, true]);
}

#[tokio::test]
async fn a_commit_includes_the_attempts_buffer_without_naming_it() {
    let scene = Scene::new(often(300)).await;
    let item = scene.held().await;
    let id = output_buffer(&item);
    assert!(scene.readable(&id).await, "a reader may start before the writer");
    scene.write(&id, b"result").await.unwrap();
    scene.settle(&item, commit()).await.unwrap();
    scene.settle(&item, commit()).await.unwrap();
    assert_eq!(scene.stored(item.head.id).await.outcome.outputs["result"], id);
    let again = scene.broker.admit_writer(id.as_str()).await;
    assert!(matches!(again, Err(AccessError::Buffer(BufferError::AlreadyWritten { .. }))), "{again:?}");
    // The buffer outlives its item.
    scene.run(Operation::Delete { id: item.head.id, force: false }).await.unwrap();
    let released = scene.held().await;
    let unused = output_buffer(&released);
    scene.write(&unused, b"x").await.unwrap();
    scene.settle(&released, release()).await.unwrap();
    scene
        .until("the buffer of the released attempt is collected", || async {
            scene.state(&unused).await.is_none()
        })
        .await;
    assert!(scene.readable(&id).await);
    assert!(matches!(scene.state(&id).await, Some(State::Complete { .. })));
}

#[tokio::test]
async fn an_attempt_that_ends_without_a_commit_loses_its_buffer() {
    let ends: [fn() -> Verb; 4] = [
        release,
        || Verb::Fail { reason: String::new() },
        || Verb::Retry { error: String::new(), delay: None, seed: 1 },
        || Verb::Defer { until: When::NOW },
    ];
    for end in ends {
        let scene = Scene::new(often(300)).await;
        let item = scene.held().await;
        let id = output_buffer(&item);
        scene.write(&id, b"half").await.unwrap();
        scene.settle(&item, end()).await.unwrap();
        assert!(!scene.readable(&id).await, "{:?}", end());
        let stale = scene.broker.admit_writer(id.as_str()).await;
        assert!(matches!(stale, Err(AccessError::Buffer(BufferError::NotFound { .. }))), "{stale:?}");
        scene.until("the buffer is collected", || async { scene.state(&id).await.is_none() }).await;
        scene
            .until("the collected buffer is counted", || async { scene.broker.collected().outputs == 1 })
            .await;
    }
}

#[tokio::test]
async fn the_next_attempt_has_buffers_of_its_own() {
    let scene = Scene::new(NEVER).await;
    let first = scene.held().await;
    scene.write(&output_buffer(&first), b"first").await.unwrap();
    scene.settle(&first, release()).await.unwrap();
    let second = scene.receive().await.unwrap().unwrap();
    assert_ne!(output_buffer(&first), output_buffer(&second));
    assert_eq!(code(scene.settle(&first, commit()).await), "already_settled");
    scene.write(&output_buffer(&second), b"second").await.unwrap();
    scene.settle(&second, commit()).await.unwrap();
}

#[tokio::test]
async fn an_incomplete_buffer_is_not_committed() {
    let scene = Scene::new(NEVER).await;
    let item = scene.held().await;
    let id = output_buffer(&item);
    let (writer, now) = (WriterId::from_bytes([1; 16]), scene.broker.now().0);
    scene.broker.admit_writer(id.as_str()).await.unwrap();
    scene.buffers.begin(id.as_str(), writer, now).await.unwrap();
    assert_eq!(code(scene.settle(&item, commit()).await), "buffer_not_ready");
    scene.buffers.fail(id.as_str(), writer, "broke", now).await.unwrap();
    assert_eq!(code(scene.settle(&item, commit()).await), "buffer_not_ready");
    // The lease is kept, and the commit can name another buffer.
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
    let id = output_buffer(&item);
    scene.write(&id, b"result").await.unwrap();
    scene.buffers.delete(id.as_str()).await.unwrap();
    // A reader and a writer that come now do not make an empty one in its place.
    assert!(scene.readable(&id).await);
    assert!(matches!(
        scene.write(&id, b"again").await,
        Err(AccessError::Buffer(BufferError::NotFound { .. }))
    ));
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
    let shown = scene.buffers.show(output_buffer(&item).as_str(), scene.broker.now().0).await.unwrap();
    assert!(matches!(shown.state, State::Complete { .. }));
    assert_eq!(shown.position.bytes, 0);
}

#[tokio::test]
async fn a_commit_cut_short_by_a_crash_leaves_no_buffer() {
    let scene = Scene::new(often(300)).await;
    let item = scene.held().await;
    let id = output_buffer(&item);
    scene.write(&id, b"result").await.unwrap();
    // The state after a crash in the middle of a commit.
    scene.buffers.put_blob(&format!("kept.{id}"), Bytes::new()).await.unwrap();
    scene.settle(&item, release()).await.unwrap();
    scene.until("the buffer is collected", || async { scene.state(&id).await.is_none() }).await;
    scene.until("its mark is collected", || async { scene.blobs().await.is_empty() }).await;
}

#[tokio::test]
async fn large_fields_are_offloaded_and_fetched() {
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
async fn edited_fields_are_offloaded_by_size_and_old_ones_collected() {
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
        scene.until("the replaced fields are collected", || async { scene.blobs().await.len() == 1 }).await;
        scene.run(Operation::Delete { id, force: false }).await.unwrap();
        scene.until("the last field is collected", || async { scene.blobs().await.is_empty() }).await;
    }
}

#[tokio::test]
async fn a_payload_that_looks_like_a_reference_is_kept_as_it_is() {
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
async fn smaller_fields_of_delayed_items_are_offloaded() {
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
    assert_eq!(scene.blobs().await.len(), 1, "fields of refused submits are deleted at once");
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
    let first = scene.broker.receive(request.clone()).await.unwrap().items;
    assert_eq!(first.len(), 16);
    assert!(first.iter().all(|item| item.fields.blob.as_ref() == Some(&huge)));
    scene
        .until("the other items are delivered next", || async {
            let rest = scene.broker.receive(request.clone()).await.unwrap().items;
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
    let with_key = |content| {
        let body = Body { replace_key: Some("k".to_owned()), ..Body::default() };
        let submission = Box::new(Submission { body, ..payload(content) });
        Operation::Submit { queue: queue(), submission }
    };
    let Ok(Reply::Answer(Answer::Submitted { id, .. })) = scene.run(with_key(large(1))).await else {
        panic!("expected a new item")
    };
    assert_eq!(scene.run(with_key(large(2))).await, Ok(Reply::Answer(Answer::Replaced { id })));
    assert_eq!(scene.stored(id).await.fields.blob, Some(large(2)), "not offloaded");
    assert!(scene.blobs().await.is_empty());
    let forged = Reference::to(b"x", "k".to_owned()).write();
    assert_eq!(code(scene.run(with_key(forged)).await), "invalid");
    // A field that the worker edits is offloaded, as for any item.
    let item = scene.receive().await.unwrap().unwrap();
    assert_eq!((item.head.id, item.fields.blob.as_ref()), (id, Some(&large(2))));
    let edits = FieldEdits::default().set(Field::Blob, large(3));
    scene.settle_with(&item, release(), Adjust { edits, ..Adjust::default() }).await.unwrap();
    assert_eq!(scene.blobs().await.len(), 1);
    assert_eq!(scene.receive().await.unwrap().unwrap().fields.blob, Some(large(3)));
}
