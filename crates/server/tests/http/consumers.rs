//! The consumers of a queue.

use crate::test_server::TestServer;
use serde_json::{Value, json};
use towline_api::{Client, ReceiveRequest};

async fn consumers(server: &TestServer) -> Vec<Value> {
    let shown = server.get("/v1/queues/jobs").await.success();
    shown["consumers"].as_array().cloned().unwrap_or_default()
}

async fn receive(client: &Client, max: i64) -> Vec<towline_api::ReceivedItem> {
    let request = ReceiveRequest { max: Some(max), ..ReceiveRequest::default() };
    client.receive("jobs", &request).await.unwrap().items
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_shows_its_consumers_and_what_is_in_flight() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({"visibility_timeout": "1m"})).await;
    server.submit("jobs", json!([{}, {}, {}, {}])).await;
    assert!(consumers(&server).await.is_empty());
    let [first, second] =
        ["worker-1", "worker-2"].map(|name| Client::new(&server.url()).unwrap().name(name).unwrap());
    let held = receive(&first, 3).await;
    assert_eq!(receive(&second, 10).await.len(), 1);
    assert_eq!(receive(&second, 10).await.len(), 0);
    let unnamed = Client::new(&server.url()).unwrap();
    receive(&unnamed, 1).await;

    let shown = consumers(&server).await;
    let of = |shown: &[Value], name: &str| {
        shown.iter().find(|consumer| consumer["client"].as_str().unwrap().starts_with(name)).cloned().unwrap()
    };
    let figures =
        |consumer: &Value| ["received", "in_flight", "waiting"].map(|name| consumer[name].as_u64().unwrap());
    assert_eq!(figures(&of(&shown, "worker-1")), [3, 3, 0]);
    assert_eq!(figures(&of(&shown, "worker-2")), [1, 1, 0]);
    assert_eq!(figures(&of(&shown, "towline-client/")), [0, 0, 0]);
    assert!(
        shown[0]["client"].as_str().unwrap().starts_with("towline-client/"),
        "the latest first: {shown:?}"
    );
    assert!(shown[0]["token"].is_null());

    // A commit by any client ends what is in flight; a heartbeat does not.
    let (id, lease) = (held[0].id.to_string(), held[0].lease.clone());
    server.act(&id, "heartbeat", json!({"lease": lease})).await.success();
    assert_eq!(figures(&of(&consumers(&server).await, "worker-1")), [3, 3, 0]);
    server.act(&id, "commit", json!({"lease": lease})).await.success();
    assert_eq!(figures(&of(&consumers(&server).await, "worker-1")), [3, 2, 0]);

    // A refused receive is not remembered.
    server.post("/v1/queues/absent/receive", json!({})).await.problem("queue_not_found");
    server.queue("absent", json!({})).await;
    assert!(server.get("/v1/queues/absent").await.success()["consumers"].is_null());

    // A receive that waits is shown while it waits.
    let waiting = tokio::spawn(async move {
        let wait = Some(std::time::Duration::from_secs(60).into());
        let request = ReceiveRequest { wait, ..ReceiveRequest::default() };
        second.receive("jobs", &request).await.unwrap().items.len()
    });
    loop {
        if figures(&of(&consumers(&server).await, "worker-2"))[2] == 1 {
            break;
        }
        tokio::task::yield_now().await;
    }
    server.submit("jobs", json!([{}])).await;
    assert_eq!(waiting.await.unwrap(), 1);
    assert_eq!(figures(&of(&consumers(&server).await, "worker-2")), [2, 2, 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_item_that_another_client_takes_away_is_no_longer_in_flight() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({"visibility_timeout": "1h"})).await;
    let made = server.submit("jobs", json!([{}, {}, {}, {}])).await;
    assert_eq!(receive(&server.client(), 4).await.len(), 4);
    let in_flight = async || consumers(&server).await[0]["in_flight"].clone();
    assert_eq!(in_flight().await, 4);
    server.act(&made[0], "cancel", json!({})).await.success();
    assert_eq!(in_flight().await, 3);
    server.delete(&format!("/v1/items/{}?force=true", made[1])).await.success();
    assert_eq!(in_flight().await, 2);
    server.delete("/v1/queues/jobs/items?state=processing&force=true").await.success();
    assert_eq!(in_flight().await, 0);
}
