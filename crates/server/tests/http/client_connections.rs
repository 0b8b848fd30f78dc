//! The Rust client: connections, formats and errors.

use crate::proxy::{Fate, Proxy};
use crate::test_server::TestServer;
use futures::future::join_all;
use serde_json::json;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use towline_api::ItemFilter;
use towline_api::client::ItemQuery;
use towline_api::{
    Action, Client, ClientError, Code, Format, ItemId, LeaseToken, NewItem, PolicyBody, PutQueue, QueueShown,
    ReceiveRequest, VerbName,
};

#[tokio::test(flavor = "multi_thread")]
async fn the_client_reuses_connections() {
    let server = TestServer::start().await;
    let proxy = Proxy::start(server.address).await;
    let client = Client::new(&proxy.url()).unwrap();
    client.put_queue("jobs", &PutQueue::default()).await.unwrap();
    for _ in 0..20 {
        let submitted = client.submit("jobs", vec![NewItem::default()]).await.unwrap();
        let received = client.receive("jobs", &ReceiveRequest::default()).await.unwrap();
        let item = &received.items[0];
        assert_eq!(Some(&item.id), submitted[0].id.as_ref());
        let action =
            Action { id: Some(item.id.clone()), lease: Some(item.lease.clone()), ..Action::default() };
        // After a refusal and from a clone too.
        client.clone().queue("nowhere").await.unwrap_err();
        client.act(Action { verb: Some(VerbName::Commit.into()), ..action }).await.unwrap();
    }
    // A second connection is opened if the first is not back in the pool yet, but not one per call.
    assert!(proxy.accepted() <= 4, "{}", proxy.accepted());
    // Parallel calls use one connection each, and reuse these later.
    for _ in 0..5 {
        for counted in join_all((0..8).map(|_| client.counts("jobs"))).await {
            assert_eq!(counted.unwrap().completed, 20);
        }
    }
    assert!(proxy.accepted() <= 20, "{}", proxy.accepted());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_client_does_not_reuse_a_closed_connection() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({})).await;
    let proxy = Proxy::start(server.address).await;
    let count = 50;
    proxy.plan(vec![Fate::CloseWhenIdle; count]);
    let patient = Client::new(&proxy.url()).unwrap().retry_for(Duration::from_secs(60));
    let client = patient.clone().retry_for(Duration::ZERO);
    // The client must not retry these calls after sending them. Whether it has noticed the closed connection before the
    // next call is a race, and must not matter.
    for _ in 0..count {
        patient.counts("jobs").await.unwrap();
        while let Err(error) = client.submit("jobs", vec![NewItem::default()]).await {
            // The call was written while the connection was being closed. The client cannot know whether it arrived.
            assert!(matches!(error, ClientError::Unreachable { .. }), "{error}");
        }
    }
    assert_eq!(patient.counts("jobs").await.unwrap().pending, count as u64);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_client_supports_every_call_in_both_formats() {
    let server = TestServer::start().await;
    for format in [Format::Json, Format::MessagePack] {
        let client = server.client().format(format);
        client.health().await.unwrap();
        let policy = PolicyBody { max_retries: Some(10_000), ..PolicyBody::default() };
        let made = client
            .put_queue("jobs", &PutQueue { policy: policy.clone(), ..PutQueue::default() })
            .await
            .unwrap();
        // The only call that shows consumers: in the second round, the receiver of the first one.
        let shown = client.queue("jobs").await.unwrap();
        assert_eq!(QueueShown { consumers: Vec::new(), ..shown }, made);
        assert_eq!(client.change_policy("jobs", &policy).await.unwrap(), made);
        assert_eq!(client.queues(None).await.unwrap().queues, [made]);
        assert!(client.pause_queue("jobs").await.unwrap().paused);
        assert!(!client.resume_queue("jobs").await.unwrap().paused);
        let item = NewItem {
            payload: Some(vec![0, 159, 146, 150].into()),
            tags: [("a&b".to_owned(), "c=d".to_owned())].into(),
            ..NewItem::default()
        };
        let submitted = client
            .submit("jobs", vec![item.clone(), NewItem { priority: Some(1 << 20), ..item.clone() }])
            .await
            .unwrap();
        assert_eq!(submitted[1].error.as_ref().unwrap().code, "invalid");
        let id: ItemId = submitted[0].id.clone().unwrap().into_domain("id").unwrap();
        assert_eq!(client.item(id).await.unwrap().payload, item.payload);
        assert_eq!(client.wait(id, Duration::from_millis(5)).await.unwrap().state, "pending");
        let query = ItemQuery {
            filter: ItemFilter {
                tag: vec!["a&b=c=d".to_owned()],
                state: Some("ready".to_owned()),
                ..ItemFilter::default()
            },
            limit: Some(5),
            fields: Some("payload".to_owned()),
            ..ItemQuery::default()
        };
        assert_eq!(client.items(Some("jobs"), &query).await.unwrap().items[0].payload, item.payload);
        assert_eq!(client.pause_item(id).await.unwrap().state.unwrap(), "paused");
        assert_eq!(client.resume_item(id).await.unwrap().state.unwrap(), "pending");
        assert_eq!(client.cancel(id, Some("no".to_owned())).await.unwrap().state.unwrap(), "failed");
        assert_eq!(client.redrive(id).await.unwrap().state.unwrap(), "pending");
        let received = client.receive("jobs", &ReceiveRequest::default()).await.unwrap().items.remove(0);
        let lease: LeaseToken = received.lease.into_domain("lease").unwrap();
        assert!(
            client.act(Action::new(VerbName::Heartbeat, id, lease)).await.unwrap().lease_expires_at.is_some()
        );
        let settled = client
            .settle(vec![Action::new(VerbName::Commit, id, lease), Action::new(VerbName::Fail, id, lease)])
            .await
            .unwrap();
        assert_eq!(
            (settled[0].state.as_deref(), settled[1].error.as_ref().unwrap().code.as_str()),
            (Some("completed"), "already_settled")
        );
        client.delete_item(id, false).await.unwrap();
        client.submit("jobs", vec![NewItem::default(); 3]).await.unwrap();
        let filter = ItemFilter { state: Some("all".to_owned()), ..ItemFilter::default() };
        let purge = ItemQuery { filter, ..ItemQuery::default() };
        assert_eq!(client.purge("jobs", &purge).await.unwrap().done, 3);
        assert_eq!(client.close_queue("jobs").await.unwrap().state, "completed");
        client.delete_queue("jobs", true).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_client_reports_error_codes() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({})).await;
    let (id, _) = server.hold("jobs").await;
    let id: ItemId = id.parse().unwrap();
    let lease: LeaseToken = "00000000000000000000000000000000".parse().unwrap();
    for format in [Format::Json, Format::MessagePack] {
        let client = server.client().format(format);
        let lost = client.act(Action::new(VerbName::Commit, id, lease)).await.unwrap_err();
        assert_eq!(lost.code(), Some(Code::LeaseLost));
        assert!(lost.to_string().contains("stop working"), "{lost}");
        assert_eq!(client.queue("nowhere").await.unwrap_err().code(), Some(Code::QueueNotFound));
        assert_eq!(client.queue("no/where").await.unwrap_err().code(), Some(Code::Invalid));
        assert_eq!(client.delete_queue("jobs", false).await.unwrap_err().code(), Some(Code::QueueBusy));
        let policy = PolicyBody { max_retries: Some(9), ..PolicyBody::default() };
        let exists = client.put_queue("jobs", &PutQueue { policy, ..PutQueue::default() }).await.unwrap_err();
        assert_eq!(exists.code(), Some(Code::QueueExists));
        assert!(exists.to_string().contains("policy.max_retries"), "{exists}");
        let many = client.submit("jobs", vec![NewItem::default(); 10_001]).await.unwrap_err();
        assert_eq!(many.code(), Some(Code::TooLarge));
        let none = ReceiveRequest { max: Some(0), ..ReceiveRequest::default() };
        assert_eq!(client.receive("jobs", &none).await.unwrap_err().code(), Some(Code::Invalid));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_client_reports_a_server_that_is_not_towline() {
    for answer in [
        "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}",
        "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 500 Oh\r\ncontent-type: application/problem+json\r\ncontent-length: 2\r\n\r\n{}",
    ] {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 4096]).await;
            let _ = stream.write_all(answer.as_bytes()).await;
            // Keep the connection open until the client has read the response.
            let _ = stream.read(&mut [0; 1]).await;
        });
        let error = Client::new(&url).unwrap().counts("jobs").await.unwrap_err();
        assert!(matches!(error, ClientError::Protocol { .. }), "{answer}: {error}");
        assert!(error.to_string().contains(&url), "{error}");
    }
    for url in ["", "127.0.0.1:7420", "http://", "ftp://x", "http://x?y", "http://a b"] {
        assert!(matches!(Client::new(url), Err(ClientError::Configuration(_))), "{url}");
    }
    assert!(Client::new("http://localhost").unwrap().token("a\nb").is_err());
}
