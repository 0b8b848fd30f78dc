//! The owner record of a location.

use futures::future::join_all;
use towline_buffers::Owner;

use crate::storage::{NOW, TestStorage, on_every_storage};

on_every_storage!(one_of_many_claims_succeeds, an_owner_is_replaced);

fn owner(n: usize) -> Owner {
    Owner { stores: [format!("store-{n}")].into(), since_ms: NOW }
}

async fn one_of_many_claims_succeeds(storage: TestStorage) {
    assert_eq!(storage.open().owner().await.unwrap(), None);
    let claims = (0..8).map(|n| {
        let buffers = storage.open();
        tokio::spawn(async move { buffers.claim(owner(n)).await.unwrap() })
    });
    let told: Vec<Owner> = join_all(claims).await.into_iter().map(Result::unwrap).collect();
    let first = storage.open().owner().await.unwrap().unwrap();
    assert!((0..8).any(|n| first == owner(n)), "{first}");
    assert!(told.iter().all(|told| *told == first), "{told:?}");
}

async fn an_owner_is_replaced(storage: TestStorage) {
    let buffers = storage.open();
    buffers.claim(owner(1)).await.unwrap();
    buffers.replace_owner(&owner(2)).await.unwrap();
    assert_eq!(buffers.claim(owner(3)).await.unwrap(), owner(2));
    assert_eq!(storage.open().owner().await.unwrap(), Some(owner(2)));
    // It is no buffer and no blob.
    assert!(buffers.list(None, 10, &Default::default()).await.unwrap().buffers.is_empty());
    assert!(buffers.list_blobs(None, 10).await.unwrap().blobs.is_empty());
}
