//! What items keep in object storage: buffers in their slots, and offloaded payload fields.
#![allow(clippy::unwrap_used, reason = "tests")]

use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use towline_broker::{
    AccessError, Broker, CollectionRule, OffloadRule, ReceiveRequest, Sharing, SteadyClock, Storage,
};
use towline_buffers::{
    BufferError, BufferState as State, Buffers, Location, NewBuffer, NewChunk, Options, Position, WriterId,
};
use towline_conformance::ReferenceStore;
use towline_domain::change::Answer;
use towline_domain::command::{Verb, When};
use towline_domain::{
    Adjust, Body, BufferId, Field, FieldEdits, FieldSet, Fields, Item, ItemId, LeaseCall, LeaseToken, Millis,
    Outcome, OutputSet, Overrides, Policy, QueueName, Reference, Schema, Submission,
};
use towline_store::{Answered, Operation, OperationResult, Reply, Store};

fn queue() -> QueueName {
    "jobs".parse().unwrap()
}

struct Scene {
    broker: Broker,
    store: Arc<ReferenceStore>,
    buffers: Buffers,
    directory: TempDir,
}

/// Collection every 20 ms.
fn often(grace: u64) -> CollectionRule {
    CollectionRule { every: Duration::from_millis(20), grace: Millis(grace) }
}

const NEVER: CollectionRule =
    CollectionRule { every: Duration::from_secs(1 << 30), grace: Millis::days(1000) };

impl Scene {
    async fn new(collection: CollectionRule) -> Scene {
        let directory = tempfile::tempdir().unwrap();
        let place: Location = directory.path().to_str().unwrap().parse().unwrap();
        let buffers = Buffers::open(&place, Options::default()).unwrap();
        let clock = Arc::new(SteadyClock::new());
        let store = Arc::new(ReferenceStore::new(clock.clone(), 1));
        let storage = Storage { buffers: buffers.clone(), offload: OffloadRule::default(), collection };
        let broker = Broker::start(store.clone(), clock, Some(storage), Sharing::Alone);
        let scene = Scene { broker, store, buffers, directory };
        let schema = Schema {
            inputs: [("data".parse().unwrap(), false)].into(),
            outputs: [("result".parse().unwrap(), true)].into(),
            ..Schema::default()
        };
        let policy = Policy { max_retries: 100, ..Policy::default() };
        let create =
            Operation::CreateQueue { queue: queue(), schema: Box::new(schema), policy: Box::new(policy) };
        scene.run(create).await.unwrap();
        scene
    }

    async fn run(&self, operation: Operation) -> Answered {
        self.broker.update(vec![operation]).await.unwrap().pop().unwrap()
    }

    async fn submit(&self, submission: Submission) -> OperationResult<(ItemId, bool)> {
        let submit = Operation::Submit { queue: queue(), submission: Box::new(submission) };
        self.run(submit).await.map(|reply| match reply {
            Reply::Answer(Answer::Submitted { id, created }) => (id, created),
            other => panic!("{other:?}"),
        })
    }

    async fn receive(&self) -> OperationResult<Option<Item>> {
        let request = ReceiveRequest {
            queue: queue(),
            max: 1,
            wait: Duration::ZERO,
            visibility: None,
            fields: FieldSet::ALL,
            make_buffers: true,
        };
        self.broker.receive(request).await.map(|mut received| received.items.pop())
    }

    /// Submits an item and receives it.
    async fn held(&self) -> Item {
        self.submit(Submission::default()).await.unwrap();
        self.receive().await.unwrap().unwrap()
    }

    async fn settle(&self, item: &Item, verb: Verb) -> Answered {
        self.settle_with(item, verb, Adjust::default()).await
    }

    async fn settle_with(&self, item: &Item, verb: Verb, adjust: Adjust) -> Answered {
        let call = Box::new(LeaseCall { token: token(item), verb, adjust });
        self.run(Operation::Lease { id: item.head.id, call }).await
    }

    /// The item in the store, with references in place of offloaded fields.
    async fn stored(&self, id: ItemId) -> Item {
        self.store.get(vec![id], FieldSet::ALL).await.unwrap().pop().flatten().unwrap().item
    }

    /// Writes a whole buffer as a client would.
    async fn write(&self, id: &BufferId, content: &'static [u8]) -> Result<(), AccessError> {
        self.broker.admit_writer(id.as_str()).await?;
        let (writer, now) = (WriterId::from_bytes([7; 16]), self.broker.now().0);
        self.buffers.begin(id.as_str(), writer, now).await?;
        let hash = blake3::hash(content);
        let chain = towline_buffers::link(&towline_buffers::CHAIN_START, 0, content.len() as u64, &hash);
        let data = vec![Bytes::from_static(content)];
        self.buffers.put_chunk(id.as_str(), writer, NewChunk { n: 0, hash, chain, data }, now).await?;
        let totals = Position { chunks: 1, bytes: content.len() as u64, chain };
        Ok(self.buffers.finish(id.as_str(), writer, totals, now).await?)
    }

    async fn create(&self, id: &str) -> BufferId {
        self.buffers.create(id, NewBuffer::default(), self.broker.now().0).await.unwrap();
        id.parse().unwrap()
    }

    async fn readable(&self, id: &BufferId) -> bool {
        self.broker.admit_reader(id.as_str()).await.is_ok()
    }

    async fn state(&self, id: &BufferId) -> Option<State> {
        self.buffers.show(id.as_str(), self.broker.now().0).await.ok().map(|shown| shown.state)
    }

    async fn blobs(&self) -> Vec<String> {
        let page = self.buffers.list_blobs(None, 1000).await.unwrap();
        page.blobs.into_iter().map(|blob| blob.key).collect()
    }

    async fn until<F: Future<Output = bool>>(&self, what: &str, condition: impl Fn() -> F) {
        for _ in 0..1000 {
            if condition().await {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("timed out: {what}");
    }
}

fn token(item: &Item) -> LeaseToken {
    item.head.lease().unwrap().token
}

fn output_buffer(item: &Item) -> BufferId {
    item.head.lease().unwrap().buffers.as_ref().unwrap()["result"].clone()
}

fn commit() -> Verb {
    Verb::Commit(Outcome::default())
}

fn commit_with(buffer: &BufferId) -> Verb {
    let outputs: OutputSet = [("result".parse().unwrap(), buffer.clone())].into();
    Verb::Commit(Outcome { outputs, ..Outcome::default() })
}

fn release() -> Verb {
    Verb::Release { delay: Millis::ZERO }
}

fn code<T: std::fmt::Debug>(answered: OperationResult<T>) -> &'static str {
    answered.unwrap_err().code()
}

fn input(buffer: &str) -> Submission {
    let inputs = [("data".parse().unwrap(), buffer.parse().unwrap())].into();
    Submission { body: Body { inputs, ..Body::default() }, ..Submission::default() }
}

fn payload(content: Bytes) -> Submission {
    Submission { fields: Fields { blob: Some(content), ..Fields::default() }, ..Submission::default() }
}

fn large(seed: u8) -> Bytes {
    (0..200_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8 ^ seed).collect::<Vec<u8>>().into()
}

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
async fn a_buffer_never_written_is_empty_and_complete() {
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
async fn an_item_whose_payload_cannot_be_fetched_goes_back_unchanged() {
    let scene = Scene::new(NEVER).await;
    let (id, _) = scene.submit(payload(large(1))).await.unwrap();
    let files = scene.directory.path().join("fields");
    let away = scene.directory.path().join("away");
    std::fs::rename(&files, &away).unwrap();
    assert_eq!(code(scene.receive().await), "damaged");
    scene.until("the item is back", || async { scene.stored(id).await.head.lease().is_none() }).await;
    let head = scene.stored(id).await.head;
    assert_eq!((head.retries, head.is_terminal()), (0, false));
    let _ = std::fs::remove_dir_all(&files);
    std::fs::rename(&away, &files).unwrap();
    scene.until("the item is delivered again", || async { scene.receive().await.unwrap().is_some() }).await;
}

#[tokio::test]
async fn the_payload_of_one_answer_is_limited() {
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
async fn young_objects_are_not_collected() {
    let scene = Scene::new(often(3_600_000)).await;
    let key = format!("{}.blob.{:016x}", uuid::Uuid::from_u128(1), 1);
    scene.buffers.put_blob(&key, Bytes::from("young")).await.unwrap();
    let other = scene.held().await;
    scene.write(&output_buffer(&other), b"x").await.unwrap();
    scene.settle(&other, release()).await.unwrap();
    scene.until("a round is over", || async { scene.broker.collected().outputs == 1 }).await;
    scene
        .until("another round is over", || async { scene.state(&output_buffer(&other)).await.is_none() })
        .await;
    assert_eq!(scene.blobs().await, [key]);
    let tags = BTreeMap::new();
    assert!(scene.buffers.list(None, 10, &tags).await.unwrap().buffers.is_empty());
}

#[tokio::test]
async fn fields_of_submits_with_a_replace_key_are_not_offloaded() {
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
