//! Lists as streams: every match, one item a line, nothing else.

use crate::rig::Rig;
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
async fn every_match_on_its_line() {
    let rig = Rig::start().await;
    rig.queue("jobs", json!({})).await;
    // Three pages of a stream and some; a line break in a value must not break a line.
    let text = format!(
        r#"{{"items":[{}]}}"#,
        vec![
            r#"{"params":{"a":[1,
 2]},"payload":"aGk="}"#;
            1_777
        ]
        .join(",")
    );
    let answer = rig.post_text("/v1/queues/jobs/items", text).await.good();
    let made: Vec<&Value> = answer["items"].as_array().unwrap().iter().map(|item| &item["id"]).collect();
    let path = "/v1/queues/jobs/items";
    let stream = rig.send_bytes(Method::GET, path, NDJSON, "").await;
    assert_eq!(stream.headers["content-type"], "application/x-ndjson");
    let items = lines(&stream.body);
    assert_eq!(items.iter().map(|item| &item["id"]).collect::<Vec<_>>(), made);
    assert!(items.iter().all(|item| item["params"] == json!({"a": [1, 2]}) && item.get("payload").is_none()));

    // Each as a page would show it.
    let page = rig.get(&format!("{path}?limit=3&fields=payload")).await.good();
    let stream = rig.send_bytes(Method::GET, &format!("{path}?limit=3&fields=payload"), NDJSON, "").await;
    assert_eq!(json!(lines(&stream.body)), page["items"]);
    let next = page["next"].as_str().unwrap();
    let rest = rig.send_bytes(Method::GET, &format!("{path}?cursor={next}"), NDJSON, "").await;
    assert_eq!(lines(&rest.body).len(), 1_774);
    for (query, count) in
        [("limit=700", 700), ("limit=50000", 1_777), ("state=failed", 0), ("state=pending", 1_777)]
    {
        let stream = rig.send_bytes(Method::GET, &format!("{path}?{query}"), NDJSON, "").await;
        assert_eq!(lines(&stream.body).len(), count, "{query}");
    }
    let either = &[("accept", "text/html, application/x-ndjson;q=0.9")];
    assert_eq!(lines(&rig.send_bytes(Method::GET, path, either, "").await.body).len(), 1_777);
}

#[tokio::test(flavor = "multi_thread")]
async fn items_deleted_meanwhile_are_left_out_and_the_rest_is_whole() {
    let rig = Rig::start().await;
    rig.queue("jobs", json!({})).await;
    let payload = "A".repeat(4096);
    let item = json!({"payload": payload});
    let mut made = Vec::new();
    for _ in 0..5 {
        made.extend(rig.submit("jobs", json!(vec![&item; 1_000])).await);
    }
    let http: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let request = Request::get(format!("{}/v1/queues/jobs/items?fields=payload", rig.url()))
        .header("accept", "application/x-ndjson")
        .body(Full::default())
        .unwrap();
    let mut body = http.request(request).await.unwrap().into_body();
    // Part of it has come, and most cannot have been read yet: it would not fit on the way.
    let mut read = body.frame().await.unwrap().unwrap().into_data().unwrap().to_vec();
    let purged = rig.delete("/v1/queues/jobs/items?state=all").await.good();
    assert_eq!(purged, json!({"removed": 5_000, "next": null}));
    while let Some(frame) = body.frame().await {
        read.extend_from_slice(&frame.unwrap().into_data().unwrap());
    }
    let items = lines(&read);
    assert!(!items.is_empty() && items.len() < 5_000, "{}", items.len());
    // In order, each once and whole; which of them it were is the race's business.
    let place = |item: &Value| made.iter().position(|id| item["id"] == id.as_str()).unwrap();
    assert!(items.windows(2).all(|pair| place(&pair[0]) < place(&pair[1])));
    assert!(items.iter().all(|item| item["payload"] == payload));
}
