//! Which calls the Rust client retries when a connection fails, and which it must not.

use crate::proxy::{Fate, Proxy};
use crate::raw::{Raw, padded};
use crate::reserved_port::ReservedPort;
use crate::test_server::TestServer;
use serde_json::json;
use std::time::Duration;
use tokio::net::TcpListener;
use towline_api::{
    Action, Client, ClientError, Code, ItemId, LeaseToken, NewItem, PutQueue, ReceiveRequest, VerbName,
};

struct Scene {
    server: TestServer,
    proxy: Proxy,
    client: Client,
}

/// A queue `jobs` behind a proxy. `fate` is what happens to the first connection of the client.
async fn scene(fate: Fate) -> Scene {
    let server = TestServer::start().await;
    server.queue("jobs", json!({})).await;
    let proxy = Proxy::start(server.address).await;
    proxy.plan([fate]);
    let client = Client::new(&proxy.url()).unwrap().retry_for(Duration::from_secs(60));
    Scene { server, proxy, client }
}

fn keyed(key: &str) -> NewItem {
    NewItem { idempotency_key: Some(key.to_owned()), ..NewItem::default() }
}

#[track_caller]
fn assert_unreachable<T: std::fmt::Debug>(answer: Result<T, ClientError>) {
    assert!(matches!(answer, Err(ClientError::Unreachable { .. })), "{answer:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_submit_without_idempotency_keys_is_never_retried() {
    for (fate, items) in [(Fate::CutBefore, 0), (Fate::CutAfter, 1)] {
        let Scene { server, proxy, client } = scene(fate).await;
        assert_unreachable(client.submit("jobs", vec![NewItem::default()]).await);
        assert_eq!(server.counts("jobs").await["pending"], items, "{fate:?}");
        assert_eq!(proxy.accepted(), 1);
    }
    // One item without a key prevents the retry.
    let Scene { server, client, proxy: _proxy } = scene(Fate::CutAfter).await;
    assert_unreachable(client.submit("jobs", vec![keyed("a"), NewItem::default()]).await);
    assert_eq!(server.counts("jobs").await["pending"], 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_submit_with_idempotency_keys_is_retried_and_creates_each_item_once() {
    for (fate, created) in [(Fate::CutBefore, true), (Fate::CutAfter, false)] {
        let Scene { server, proxy, client } = scene(fate).await;
        let answer = client.submit("jobs", vec![keyed("a"), keyed("b")]).await.unwrap();
        assert!(answer.iter().all(|item| item.created == Some(created)), "{fate:?}: {answer:?}");
        assert_eq!(server.counts("jobs").await["pending"], 2);
        assert_eq!(proxy.accepted(), 2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_client_never_retries_a_receive() {
    for (fate, held) in [(Fate::CutBefore, 0), (Fate::CutAfter, 1)] {
        let Scene { server, proxy, client } = scene(fate).await;
        server.submit("jobs", json!([{}, {}])).await;
        assert_unreachable(client.receive("jobs", &ReceiveRequest::default()).await);
        assert_eq!(server.counts("jobs").await["processing"], held, "{fate:?}");
        assert_eq!(proxy.accepted(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_client_retries_calls_of_lease_holders() {
    for fate in [Fate::CutBefore, Fate::CutAfter] {
        for verb in VerbName::ALL {
            for batch in [false, true] {
                let Scene { server, proxy, client } = scene(fate).await;
                let (id, lease) = server.hold("jobs").await;
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
                    VerbName::Fail | VerbName::Cancel => "failed",
                    VerbName::Pause => "paused",
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
async fn the_client_retries_idempotent_calls() {
    for fate in [Fate::CutBefore, Fate::CutAfter] {
        let reader = scene(fate).await;
        reader.client.counts("jobs").await.unwrap();
        let maker = scene(fate).await;
        maker.client.put_queue("new", &PutQueue::default()).await.unwrap();
        let closer = scene(fate).await;
        assert_eq!(closer.client.close_queue("jobs").await.unwrap().state, "completed");
        // A second deletion would get "not found".
        let deleter = scene(fate).await;
        assert_unreachable(deleter.client.delete_queue("jobs", false).await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_client_retries_while_the_server_starts() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({})).await;
    let port = ReservedPort::new();
    let address = port.address();
    let client = Client::new(&format!("http://{address}")).unwrap();
    let refused = client.clone().retry_for(Duration::ZERO).submit("jobs", vec![NewItem::default()]).await;
    assert!(refused.as_ref().unwrap_err().to_string().contains(&address.to_string()), "{refused:?}");
    assert_unreachable(refused);
    // Nothing was sent, so the client may retry every call.
    let patient = client.retry_for(Duration::from_secs(60));
    let (first, second) = (patient.clone(), patient.clone());
    let submit = tokio::spawn(async move { first.submit("jobs", vec![NewItem::default()]).await });
    let request = ReceiveRequest { wait: Some(Duration::from_secs(60).into()), ..ReceiveRequest::default() };
    let receive = tokio::spawn(async move { second.receive("jobs", &request).await });
    let proxy = Proxy::start_on(TcpListener::bind(address).await.unwrap(), server.address);
    assert_eq!(submit.await.unwrap().unwrap()[0].created, Some(true));
    assert_eq!(receive.await.unwrap().unwrap().items.len(), 1);
    assert!(proxy.accepted() >= 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_client_retries_busy_but_no_refusal() {
    let server = TestServer::start_with(|settings| settings.bodies_bytes_max = 1 << 20).await;
    server.queue("jobs", json!({})).await;
    let large = || vec![NewItem { payload: Some(vec![0; 500_000].into()), ..NewItem::default() }];
    let hasty = server.client().retry_for(Duration::ZERO);
    let mut accepted = 0;
    let mut other = loop {
        let other = Raw::hold_memory(&server, &padded(r#"{"items":[]}"#, 900_000)).await;
        match hasty.submit("jobs", large()).await {
            Err(busy) => {
                assert_eq!(busy.code(), Some(Code::Busy));
                break other;
            }
            // The machine is so slow that the server has cut the other body.
            Ok(_) => accepted += 1,
        }
    };
    let patient = server.client().retry_for(Duration::from_secs(60));
    let submit = tokio::spawn(async move { patient.submit("jobs", large()).await });
    other.send_some(" ").await;
    submit.await.unwrap().unwrap();
    assert_eq!(server.counts("jobs").await["pending"], accepted + 1);
}
