//! What is collected from object storage, and what is not.

use crate::scene::{Scene, code, commit_with, large, often, output_buffer, payload, release, token};
use bytes::Bytes;
use std::sync::{Arc, Mutex};
use towline_broker::SteadyClock;
use towline_buffers::BufferState as State;
use towline_conformance::{InterceptedStore, Interceptor, ReferenceStore};
use towline_domain::{Adjust, FieldSet, ItemId, LeaseCall};
use towline_store::{BoxFuture, Operation, Store, StoreError, StoredItem};

impl Scene {
    /// Waits until a round of collection has gone through everything that is there now.
    async fn round(&self) {
        let rounds = self.broker.collected().rounds;
        self.until("a whole round", || async { self.broker.collected().rounds >= rounds + 2 }).await;
    }
}

#[tokio::test]
async fn nothing_young_is_collected() {
    let scene = Scene::new(often(3_600_000)).await;
    let key = format!("{}.blob.{:016x}", uuid::Uuid::from_u128(1), 1);
    scene.buffers.put_blob(&key, Bytes::from("on its way")).await.unwrap();
    let item = scene.held().await;
    let id = output_buffer(&item);
    scene.write(&id, b"x").await.unwrap();
    let mark = format!("kept.{id}-deleted");
    scene.buffers.put_blob(&mark, Bytes::new()).await.unwrap();
    scene.settle(&item, release()).await.unwrap();
    scene.round().await;
    assert!(scene.state(&id).await.is_some(), "an attempt's buffer");
    assert_eq!(scene.blobs().await, [key, mark], "a field and a mark");
    assert_eq!(scene.broker.collected().outputs, 0);
}

#[tokio::test]
async fn the_age_of_an_attempt_s_buffer_is_counted_from_its_last_write() {
    let scene = Scene::new(often(2000)).await;
    let item = scene.held().await;
    let id = output_buffer(&item);
    let made_at = scene.broker.now();
    scene.until("it is old", || async { scene.broker.now().since(made_at).0 > 2000 }).await;
    let written_at = scene.broker.now();
    scene.write(&id, b"x").await.unwrap();
    scene.settle(&item, release()).await.unwrap();
    scene.until("it is collected", || async { scene.state(&id).await.is_none() }).await;
    assert!(scene.broker.now().since(written_at).0 >= 2000);
}

/// Answers with the payload of few items at a time, and of one not at all.
#[derive(Default)]
struct Narrow {
    damaged: Mutex<Option<ItemId>>,
}

impl Interceptor for Narrow {
    fn get<'a>(
        &'a self,
        store: &'a ReferenceStore,
        ids: Vec<ItemId>,
        fields: FieldSet,
    ) -> BoxFuture<'a, Result<Vec<Option<StoredItem>>, StoreError>> {
        let damaged = *self.damaged.lock().unwrap();
        let refused = match fields.has_any() {
            true if ids.len() > 2 => StoreError::BatchTooLarge { what: "bytes", given: ids.len(), max: 2 },
            true if damaged.is_some_and(|damaged| ids.contains(&damaged)) => {
                StoreError::Corrupt { file: "log".to_owned(), what: "a record".to_owned() }
            }
            _ => return store.get(ids, fields),
        };
        Box::pin(std::future::ready(Err(refused)))
    }
}

#[tokio::test]
async fn items_too_large_for_one_answer_and_damaged_items_do_not_stop_collection() {
    let clock = Arc::new(SteadyClock::new());
    let store = ReferenceStore::new(clock.clone(), 1);
    let store = Arc::new(InterceptedStore { store, guard: Narrow::default() });
    let scene = Scene::on(store.clone(), clock, often(1000)).await;
    let mut ids = Vec::new();
    for seed in 0..7 {
        ids.push(scene.submit(payload(large(seed))).await.unwrap().0);
    }
    let damaged = ids[3];
    *store.guard.damaged.lock().unwrap() = Some(damaged);
    for id in [ids[0], ids[6]] {
        scene.run(Operation::Delete { id, force: false }).await.unwrap();
    }
    scene.until("what is unused is collected", || async { scene.blobs().await.len() == 5 }).await;
    scene.round().await;
    let kept = scene.blobs().await;
    assert!(ids[1..6].iter().all(|id| kept.iter().any(|key| key.starts_with(&id.to_string()))), "{kept:?}");
    assert_eq!(scene.broker.collected().rounds_stopped, 0);
}

#[tokio::test]
async fn a_buffer_that_another_item_committed_outlives_its_attempt() {
    let scene = Scene::new(often(300)).await;
    let maker = scene.held().await;
    let id = output_buffer(&maker);
    scene.write(&id, b"shared").await.unwrap();
    let [committer, refused] = [scene.held().await, scene.held().await];
    // A commit that comes to nothing claims the buffer first.
    let call =
        Box::new(LeaseCall { token: token(&committer), verb: commit_with(&id), adjust: Adjust::default() });
    let foreign = scene.run(Operation::Lease { id: refused.head.id, call }).await;
    assert_eq!(code(foreign), "lease_lost");
    scene.settle(&refused, release()).await.unwrap();
    scene.settle(&committer, commit_with(&id)).await.unwrap();
    scene.settle(&maker, release()).await.unwrap();
    let other = scene.receive().await.unwrap().unwrap();
    let cut = output_buffer(&other);
    scene.settle(&other, release()).await.unwrap();
    scene.until("an unused one is collected", || async { scene.state(&cut).await.is_none() }).await;
    scene.round().await;
    assert!(scene.readable(&id).await);
    // It outlives both items.
    for item in [&committer, &maker] {
        scene.run(Operation::Delete { id: item.head.id, force: true }).await.unwrap();
    }
    scene.round().await;
    assert!(scene.readable(&id).await);
    assert!(matches!(scene.state(&id).await, Some(State::Complete { .. })));
}

#[tokio::test]
async fn a_claim_that_came_to_nothing_keeps_no_buffer() {
    let scene = Scene::new(often(300)).await;
    let (maker, other) = (scene.held().await, scene.held().await);
    let id = output_buffer(&maker);
    scene.write(&id, b"shared").await.unwrap();
    // As far as a commit comes before a crash.
    scene.buffers.put_blob(&format!("claim.0.{id}"), other.head.id.to_string().into()).await.unwrap();
    scene.settle(&maker, release()).await.unwrap();
    scene.round().await;
    assert!(scene.state(&id).await.is_some(), "the other item can still commit it");
    scene.settle(&other, release()).await.unwrap();
    scene.until("it is collected", || async { scene.state(&id).await.is_none() }).await;
    scene.until("its claim, too", || async { scene.blobs().await.is_empty() }).await;
}

#[tokio::test]
async fn nothing_is_deleted_while_deletions_pause() {
    let scene = Scene::new(often(1)).await;
    let pause = scene.broker.pause_deletions().await;
    let item = scene.held().await;
    let id = output_buffer(&item);
    scene.write(&id, b"x").await.unwrap();
    scene.settle(&item, release()).await.unwrap();
    let given_back_at = scene.broker.now();
    // Time for many rounds.
    scene.until("a second has passed", || async { scene.broker.now().since(given_back_at).0 > 1000 }).await;
    assert!(scene.state(&id).await.is_some(), "a backup may be about to copy it");
    drop(pause);
    scene.until("it is collected", || async { scene.state(&id).await.is_none() }).await;
}
