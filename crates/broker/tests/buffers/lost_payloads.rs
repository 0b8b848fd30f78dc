//! Items whose payload in object storage is gone, damaged, or cannot be had for the moment.

use crate::scene::{NEVER, Scene, code, large, payload, queue};
use std::time::Duration;
use towline_broker::ReceiveRequest;
use towline_domain::{FieldSet, Item, ItemId, Overrides, Submission};

impl Scene {
    /// Deletes what an item keeps in object storage.
    async fn lose(&self, id: ItemId) {
        let of_item = |key: &String| key.starts_with(&id.to_string());
        for key in self.blobs().await.iter().filter(|key| of_item(key)) {
            self.buffers.delete_blob(key).await.unwrap();
        }
    }

    /// Submits an item with a large payload and this many retries.
    async fn submit_large(&self, seed: u8, max_retries: u32) -> ItemId {
        let overrides = Overrides { max_retries: Some(max_retries), ..Overrides::default() };
        self.submit(Submission { overrides, ..payload(large(seed)) }).await.unwrap().0
    }

    async fn receive_waiting(&self) -> Vec<Item> {
        let request = ReceiveRequest {
            queue: queue(),
            max: 1,
            wait: Duration::from_secs(60),
            visibility: None,
            fields: FieldSet::ALL,
            make_buffers: false,
        };
        self.broker.receive(request).await.unwrap().items
    }

    async fn owned(self) -> Scene {
        self.until("the place has an owner", || async { self.buffers.owner().await.unwrap().is_some() })
            .await;
        self
    }
}

#[tokio::test]
async fn an_item_whose_payload_is_gone_fails_after_its_retries() {
    let scene = Scene::new(NEVER).await.owned().await;
    let id = scene.submit_large(1, 2).await;
    scene.lose(id).await;
    assert_eq!(scene.receive().await.unwrap(), None, "its receiver gets no error");
    let item = scene.stored(id).await;
    assert!(item.head.is_terminal(), "{item:?}");
    assert_eq!((item.head.retries, item.errors.len()), (2, 3), "every attempt counts, and keeps its error");
    assert!(item.errors.iter().all(|error| error.message.contains(&id.to_string())), "{:?}", item.errors);
    assert_eq!(scene.broker.damaged(), 1);
}

#[tokio::test]
async fn a_receiver_gets_the_items_behind_one_that_is_lost() {
    let scene = Scene::new(NEVER).await.owned().await;
    let lost = scene.submit_large(1, 3).await;
    scene.lose(lost).await;
    let whole = scene.submit_large(2, 3).await;
    let received = scene.receive_waiting().await;
    assert_eq!(received.iter().map(|item| item.head.id).collect::<Vec<_>>(), [whole]);
    assert_eq!(received[0].fields.blob, Some(large(2)));
}

#[tokio::test]
async fn a_damaged_payload_is_counted_when_it_is_shown() {
    let scene = Scene::new(NEVER).await.owned().await;
    let id = scene.submit_large(1, 3).await;
    scene.lose(id).await;
    for _ in 0..2 {
        let mut shown = scene.store.get(vec![id], FieldSet::ALL).await.unwrap();
        let mut shown = [shown.pop().flatten().unwrap()];
        assert_eq!(code(scene.broker.fetch(&mut shown).await), "damaged");
        assert_eq!(scene.broker.damaged(), 1, "once for each item");
    }
}

#[tokio::test]
async fn a_place_that_is_away_costs_no_attempt() {
    let scene = Scene::new(NEVER).await.owned().await;
    let id = scene.submit_large(1, 0).await;
    // As if the place were not mounted: an empty directory is there instead.
    let away = scene.directory.path().join("away");
    std::fs::create_dir(&away).unwrap();
    for name in ["fields", "owner"] {
        std::fs::rename(scene.directory.path().join(name), away.join(name)).unwrap();
    }
    assert_eq!(code(scene.receive().await), "storage_unavailable");
    scene.until("it is back", || async { scene.stored(id).await.head.lease().is_none() }).await;
    let head = scene.stored(id).await.head;
    assert_eq!((head.retries, head.is_terminal()), (0, false));
    let _ = std::fs::remove_dir_all(scene.directory.path().join("fields"));
    for name in ["fields", "owner"] {
        std::fs::rename(away.join(name), scene.directory.path().join(name)).unwrap();
    }
    scene.until("it is given out again", || async { scene.receive().await.unwrap().is_some() }).await;
}
