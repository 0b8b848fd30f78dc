//! A place for buffers belongs to one store.

use crate::scene::{NEVER, Scene, large, often, payload};
use towline_broker::{Ownership, OwnershipError, TakeOver, claim_buffers};
use towline_domain::Timestamp;
use towline_store::StoreIdentity;

const NOW: Timestamp = Timestamp(1);

#[tokio::test]
async fn collection_leaves_the_place_of_another_store_alone() {
    let owner = Scene::new(often(60_000)).await;
    owner.until("it owns the place", || async { owner.buffers.owner().await.unwrap().is_some() }).await;
    let (id, _) = owner.submit(payload(large(1))).await.unwrap();
    let other = Scene::beside(&owner, 2, often(1)).await;
    other.until("it has tried", || async { other.broker.collected().rounds_stopped >= 2 }).await;
    assert_eq!(other.broker.collected().fields, 0);
    let item = owner.receive().await.unwrap().unwrap();
    assert_eq!((item.head.id, item.fields.blob), (id, Some(large(1))));
}

#[tokio::test]
async fn a_store_whose_place_was_adopted_stops_to_collect() {
    let first = Scene::new(often(300)).await;
    first.until("it collects", || async { first.broker.collected().rounds > 0 }).await;
    let second = Scene::beside(&first, 2, NEVER).await;
    let identity = second.store.identity();
    let refused = claim_buffers(&second.buffers, &identity, TakeOver::Never, NOW).await;
    assert!(matches!(refused, Err(OwnershipError::Foreign { .. })), "{refused:?}");
    let adopted = claim_buffers(&second.buffers, &identity, TakeOver::FromAny, NOW).await.unwrap();
    let from = first.store.identity().parts.pop_first().unwrap();
    assert_eq!(adopted, Ownership::Adopted { from });
    assert_eq!(
        claim_buffers(&second.buffers, &identity, TakeOver::FromAny, NOW).await.unwrap(),
        Ownership::Owned
    );
    let stopped = first.broker.collected().rounds_stopped;
    first.until("it has noticed", || async { first.broker.collected().rounds_stopped > stopped + 1 }).await;
    second.submit(payload(large(2))).await.unwrap();
    let stopped = first.broker.collected().rounds_stopped;
    first.until("it has tried", || async { first.broker.collected().rounds_stopped > stopped + 1 }).await;
    assert_eq!(second.receive().await.unwrap().unwrap().fields.blob, Some(large(2)));
}

#[tokio::test]
async fn a_store_grows_by_a_database_and_keeps_its_place() {
    let scene = Scene::new(NEVER).await;
    let alone = StoreIdentity::of(11, 0);
    let both = StoreIdentity::merge([StoreIdentity::of(11, 0), StoreIdentity::of(12, 0)]);
    let with_one_down = StoreIdentity::merge([StoreIdentity::of(11, 0), StoreIdentity::unknown()]);
    let claim = |identity: StoreIdentity| {
        let buffers = scene.buffers.clone();
        async move { claim_buffers(&buffers, &identity, TakeOver::Never, NOW).await }
    };
    scene.until("its own claim is over", || async { scene.broker.collected().rounds > 0 }).await;
    scene
        .buffers
        .replace_owner(&towline_buffers::Owner { stores: alone.parts.clone(), since_ms: 1 })
        .await
        .unwrap();
    assert_eq!(claim(alone.clone()).await.unwrap(), Ownership::Owned);
    assert_eq!(claim(with_one_down.clone()).await.unwrap(), Ownership::Undecided);
    assert_eq!(claim(both.clone()).await.unwrap(), Ownership::Claimed);
    assert_eq!(claim(both).await.unwrap(), Ownership::Owned);
    assert_eq!(claim(with_one_down).await.unwrap(), Ownership::Undecided);
    // A server that names only some of the databases would take the payloads of the others for unused.
    let refused = claim(alone).await;
    assert!(matches!(refused, Err(OwnershipError::Part { .. })), "{refused:?}");
}

#[tokio::test]
async fn a_copy_of_the_store_takes_only_a_place_that_was_copied_with_it() {
    let scene = Scene::new(NEVER).await;
    scene.until("its own claim is over", || async { scene.broker.collected().rounds > 0 }).await;
    let (original, copy, other) =
        (StoreIdentity::of(11, 0), StoreIdentity::of(11, 3), StoreIdentity::of(12, 0));
    let owned_by = |identity: &StoreIdentity| {
        let owner = towline_buffers::Owner { stores: identity.parts.clone(), since_ms: 1 };
        let buffers = scene.buffers.clone();
        async move { buffers.replace_owner(&owner).await.unwrap() }
    };
    owned_by(&original).await;
    let refused = claim_buffers(&scene.buffers, &copy, TakeOver::Never, NOW).await;
    assert!(matches!(refused, Err(OwnershipError::Copy { .. })), "{refused:?}");
    let refused = claim_buffers(&scene.buffers, &other, TakeOver::FromOriginal, NOW).await;
    assert!(matches!(refused, Err(OwnershipError::Foreign { .. })), "{refused:?}");
    let taken = claim_buffers(&scene.buffers, &copy, TakeOver::FromOriginal, NOW).await.unwrap();
    let from = original.parts.first().unwrap().clone();
    assert_eq!(taken, Ownership::Adopted { from });
    let refused = claim_buffers(&scene.buffers, &original, TakeOver::Never, NOW).await;
    assert!(matches!(refused, Err(OwnershipError::Copy { .. })), "{refused:?}");
}
