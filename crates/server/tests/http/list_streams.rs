//! Lists as streams: every match, one item per line.

use crate::test_server::TestServer;
use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};

const NDJSON: &[(&str, &str)] = &[("accept", "application/x-ndjson")];

fn lines(body: &[u8]) -> Vec<Value> {
    let text = std::str::from_utf8(body).unwrap();
    assert!(text.is_empty() || text.ends_with('\n'));
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_contains_every_match_on_its_own_line() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({})).await;
    // More than three internal pages. A line break in a value must not break a line.
    let text = format!(
        r#"{{"items":[{}]}}"#,
        vec![
            r#"{"params":{"a":[1,
 2]},"payload":"aGk="}"#;
            1_777
        ]
        .join(",")
    );
    let answer = server.post_text("/v1/queues/jobs/items", text).await.success();
    let made: Vec<&Value> = answer["items"].as_array().unwrap().iter().map(|item| &item["id"]).collect();
    let path = "/v1/queues/jobs/items";
    let stream = server.send_bytes(Method::GET, path, NDJSON, "").await;
    assert_eq!(stream.headers["content-type"], "application/x-ndjson");
    let items = lines(&stream.body);
    assert_eq!(items.iter().map(|item| &item["id"]).collect::<Vec<_>>(), made);
    assert!(items.iter().all(|item| item["params"] == json!({"a": [1, 2]}) && item.get("payload").is_none()));

    // Each item is like in a page.
    let page = server.get(&format!("{path}?limit=3&fields=payload")).await.success();
    let stream = server.send_bytes(Method::GET, &format!("{path}?limit=3&fields=payload"), NDJSON, "").await;
    assert_eq!(json!(lines(&stream.body)), page["items"]);
    let next = page["next"].as_str().unwrap();
    let rest = server.send_bytes(Method::GET, &format!("{path}?cursor={next}"), NDJSON, "").await;
    assert_eq!(lines(&rest.body).len(), 1_774);
    for (query, count) in
        [("limit=700", 700), ("limit=50000", 1_777), ("state=failed", 0), ("state=pending", 1_777)]
    {
        let stream = server.send_bytes(Method::GET, &format!("{path}?{query}"), NDJSON, "").await;
        assert_eq!(lines(&stream.body).len(), count, "{query}");
    }
    let either = &[("accept", "text/html, application/x-ndjson;q=0.9")];
    assert_eq!(lines(&server.send_bytes(Method::GET, path, either, "").await.body).len(), 1_777);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_skips_items_that_are_deleted_meanwhile() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({})).await;
    let payload = "A".repeat(4096);
    let item = json!({"payload": payload});
    let mut made = Vec::new();
    for _ in 0..5 {
        made.extend(server.submit("jobs", json!(vec![&item; 1_000])).await);
    }
    let http: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let request = Request::get(format!("{}/v1/queues/jobs/items?fields=payload", server.url()))
        .header("accept", "application/x-ndjson")
        .body(Full::default())
        .unwrap();
    let mut body = http.request(request).await.unwrap().into_body();
    // A part has arrived. The server cannot have read most of the rest, because it does not fit into socket buffers.
    let mut read = body.frame().await.unwrap().unwrap().into_data().unwrap().to_vec();
    let purged = server.delete("/v1/queues/jobs/items?state=all").await.success();
    assert_eq!(purged, json!({"matched": 5_000, "done": 5_000, "left": {}, "next": null}));
    while let Some(frame) = body.frame().await {
        read.extend_from_slice(&frame.unwrap().into_data().unwrap());
    }
    let items = lines(&read);
    assert!(!items.is_empty() && items.len() < 5_000, "{}", items.len());
    // In order, each once and complete. Which items are left depends on timing.
    let place = |item: &Value| made.iter().position(|id| item["id"] == id.as_str()).unwrap();
    assert!(items.windows(2).all(|pair| place(&pair[0]) < place(&pair[1])));
    assert!(items.iter().all(|item| item["payload"] == payload));
}
