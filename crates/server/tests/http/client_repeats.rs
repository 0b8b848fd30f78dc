//! What the Rust client sends again when a connection fails, and what it must not.

use crate::proxy::{Fate, Proxy};
use crate::raw::{Raw, head_that_asks, padded};
use crate::rig::Rig;
use serde_json::json;
use std::time::Duration;
use tokio::net::TcpListener;
use towline_api::{
    Action, Client, ClientError, Code, ItemId, LeaseToken, NewItem, PutQueue, ReceiveRequest, VerbName,
};

struct Scene {
    rig: Rig,
    proxy: Proxy,
    client: Client,
}

/// A queue `jobs` behind a proxy; the client's first connection meets this fate.
async fn scene(fate: Fate) -> Scene {
    let rig = Rig::start().await;
    rig.queue("jobs", json!({})).await;
    let proxy = Proxy::start(rig.address).await;
    proxy.plan([fate]);
    let client = Client::new(&proxy.url()).unwrap().retry_for(Duration::from_secs(60));
    Scene { rig, proxy, client }
}

fn keyed(key: &str) -> NewItem {
    NewItem { idempotency_key: Some(key.to_owned()), ..NewItem::default() }
}

#[track_caller]
fn assert_unreachable<T: std::fmt::Debug>(answer: Result<T, ClientError>) {
    assert!(matches!(answer, Err(ClientError::Unreachable { .. })), "{answer:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_submit_without_keys_is_never_repeated() {
    for (fate, items) in [(Fate::CutBefore, 0), (Fate::CutAfter, 1)] {
        let Scene { rig, proxy, client } = scene(fate).await;
        assert_unreachable(client.submit("jobs", vec![NewItem::default()]).await);
        assert_eq!(rig.counts("jobs").await["pending"], items, "{fate:?}");
        assert_eq!(proxy.accepted(), 1);
    }
    // One item without a key is enough.
    let Scene { rig, client, proxy: _proxy } = scene(Fate::CutAfter).await;
    assert_unreachable(client.submit("jobs", vec![keyed("a"), NewItem::default()]).await);
    assert_eq!(rig.counts("jobs").await["pending"], 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_submit_with_keys_is_repeated_and_makes_each_item_once() {
    for (fate, created) in [(Fate::CutBefore, true), (Fate::CutAfter, false)] {
        let Scene { rig, proxy, client } = scene(fate).await;
        let answer = client.submit("jobs", vec![keyed("a"), keyed("b")]).await.unwrap();
        assert!(answer.iter().all(|item| item.created == Some(created)), "{fate:?}: {answer:?}");
        assert_eq!(rig.counts("jobs").await["pending"], 2);
        assert_eq!(proxy.accepted(), 2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receive_is_never_repeated() {
    for (fate, held) in [(Fate::CutBefore, 0), (Fate::CutAfter, 1)] {
        let Scene { rig, proxy, client } = scene(fate).await;
        rig.submit("jobs", json!([{}, {}])).await;
        assert_unreachable(client.receive("jobs", &ReceiveRequest::default()).await);
        assert_eq!(rig.counts("jobs").await["processing"], held, "{fate:?}");
        assert_eq!(proxy.accepted(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_lease_holder_says_is_repeated() {
    for fate in [Fate::CutBefore, Fate::CutAfter] {
        for verb in VerbName::ALL {
            for batch in [false, true] {
                let Scene { rig, proxy, client } = scene(fate).await;
                let (id, lease) = rig.hold("jobs").await;
                let (id, lease): (ItemId, LeaseToken) = (id.parse().unwrap(), lease.parse().unwrap());
                let action = Action::new(verb, id, lease);
                let settled = if batch {
                    client.settle(vec![action]).await.unwrap().remove(0)
                } else {
                    client.act(action).await.unwrap()
                };
                assert_eq!(settled.error, None, "{verb:?} {fate:?}");
                let state = match verb {
                    VerbName::Heartbeat | VerbName::Edit => "processing",
                    VerbName::Commit => "completed",
                    VerbName::Fail => "failed",
                    VerbName::Retry | VerbName::Release | VerbName::Defer => "pending",
                };
                assert_eq!(settled.state.as_deref(), Some(state), "{verb:?} {fate:?}");
                assert_eq!(proxy.accepted(), 2);
                let shown = client.item(id).await.unwrap();
                assert_eq!(
                    (shown.deliveries, shown.retries),
                    (1, u32::from(matches!(verb, VerbName::Retry | VerbName::Release)))
                );
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_changes_nothing_the_second_time_is_repeated() {
    for fate in [Fate::CutBefore, Fate::CutAfter] {
        let reader = scene(fate).await;
        reader.client.counts("jobs").await.unwrap();
        let maker = scene(fate).await;
        maker.client.put_queue("new", &PutQueue::default()).await.unwrap();
        let closer = scene(fate).await;
        assert_eq!(closer.client.close_queue("jobs").await.unwrap().state, "completed");
        // The second deletion would be told that there is nothing.
        let deleter = scene(fate).await;
        assert_unreachable(deleter.client.delete_queue("jobs", false).await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_not_there_yet_is_waited_for() {
    let rig = Rig::start().await;
    rig.queue("jobs", json!({})).await;
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let client = Client::new(&format!("http://{address}")).unwrap();
    let refused = client.clone().retry_for(Duration::ZERO).submit("jobs", vec![NewItem::default()]).await;
    assert!(refused.as_ref().unwrap_err().to_string().contains(&address.to_string()), "{refused:?}");
    assert_unreachable(refused);
    // Nothing was sent, so that everything may be sent again: also what is never repeated otherwise.
    let patient = client.retry_for(Duration::from_secs(60));
    let (first, second) = (patient.clone(), patient.clone());
    let submit = tokio::spawn(async move { first.submit("jobs", vec![NewItem::default()]).await });
    let request = ReceiveRequest { wait: Some(Duration::from_secs(60).into()), ..ReceiveRequest::default() };
    let receive = tokio::spawn(async move { second.receive("jobs", &request).await });
    let proxy = Proxy::start_on(TcpListener::bind(address).await.unwrap(), rig.address);
    assert_eq!(submit.await.unwrap().unwrap()[0].created, Some(true));
    assert_eq!(receive.await.unwrap().unwrap().items.len(), 1);
    assert!(proxy.accepted() >= 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_is_final_and_busy_is_not() {
    let rig = Rig::start_with(|settings| settings.bodies_bytes_max = 1 << 20).await;
    rig.queue("jobs", json!({})).await;
    let mut other = Raw::connect(rig.address).await;
    let body = padded(r#"{"items":[]}"#, 900_000);
    other.send(head_that_asks("POST", "/v1/queues/jobs/items", body.len())).await;
    assert_eq!(other.answer().await.unwrap().status.as_u16(), 100);
    let large = || vec![NewItem { payload: Some(vec![0; 500_000].into()), ..NewItem::default() }];
    let hasty = rig.client().retry_for(Duration::ZERO);
    let busy = hasty.submit("jobs", large()).await.unwrap_err();
    assert_eq!(busy.code(), Some(Code::Busy));
    let patient = rig.client().retry_for(Duration::from_secs(60));
    let submit = tokio::spawn(async move { patient.submit("jobs", large()).await });
    other.send(&body).await;
    other.answer().await.unwrap().good();
    submit.await.unwrap().unwrap();
    assert_eq!(rig.counts("jobs").await["pending"], 1);
}
