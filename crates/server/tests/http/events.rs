//! Event streams: each event once, in order, only what the client may see, and a last event with the reason of the end.

use crate::test_server::{TestResponse, TestServer};
use bytes::Bytes;
use futures::{SinkExt, StreamExt};
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{Error, Message};

/// Far above every limit of the server: a test that reaches it hangs.
const NEVER: Duration = Duration::from_secs(60);
const JSON: &[(&str, &str)] = &[("accept", "application/json")];

/// A stream of server-sent events.
struct Stream {
    body: Incoming,
    text: String,
}

#[derive(Debug)]
struct Block {
    id: Option<String>,
    event: String,
    data: Value,
}

impl Stream {
    async fn open(server: &TestServer, query: &str, headers: &[(&str, &str)]) -> Stream {
        let http: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
        let mut request = Request::get(format!("{}/v1/events{query}", server.url()));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = http.request(request.body(Full::default()).unwrap()).await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Stream { body: response.into_body(), text: String::new() }
    }

    /// The next block, including keep-alives. `None` if the stream has ended.
    async fn block(&mut self) -> Option<Block> {
        loop {
            if let Some((block, rest)) = self.text.split_once("\n\n") {
                let field = |name: &str| {
                    let prefix = format!("{name}: ");
                    block.lines().find_map(|line| line.strip_prefix(&prefix)).map(str::to_owned)
                };
                let (id, event) = (field("id"), field("event").unwrap_or_default());
                let data = field("data").map_or(Value::Null, |data| serde_json::from_str(&data).unwrap());
                self.text = rest.to_owned();
                return Some(Block { id, event, data });
            }
            let frame =
                tokio::time::timeout(NEVER, self.body.frame()).await.expect("the stream sends something");
            self.text.push_str(std::str::from_utf8(&frame?.ok()?.into_data().unwrap()).unwrap());
        }
    }

    /// The next event.
    async fn next(&mut self) -> Block {
        loop {
            let block = self.block().await.expect("the stream continues");
            if !block.event.is_empty() {
                return block;
            }
        }
    }

    async fn kinds(&mut self, count: usize) -> Vec<String> {
        let mut kinds = Vec::new();
        for _ in 0..count {
            kinds.push(self.next().await.event);
        }
        kinds
    }
}

async fn page(server: &TestServer, query: &str) -> TestResponse {
    server.send_bytes(Method::GET, &format!("/v1/events{query}"), JSON, "").await
}

async fn live(server: &TestServer, queue: &str) -> String {
    let (id, lease) = server.hold(queue).await;
    server.act(&id, "commit", json!({"lease": lease})).await.success();
    id
}

#[tokio::test(flavor = "multi_thread")]
async fn each_step_of_an_item_is_an_event() {
    let server = TestServer::start().await;
    let mut stream = Stream::open(&server, "", &[]).await;
    let begin = stream.block().await.unwrap();
    assert!(begin.id.is_some() && begin.event.is_empty(), "the stream starts with a cursor: {begin:?}");
    server.queue("jobs", json!({})).await;
    let id = live(&server, "jobs").await;
    let made = stream.next().await;
    assert_eq!((made.event.as_str(), &made.data["queue"]), ("queue.created", &json!("jobs")));
    let submitted = stream.next().await;
    assert_eq!(submitted.event, "item.submitted");
    assert_eq!(submitted.data["kind"], "item.submitted");
    assert_eq!(submitted.data["item"], json!(id));
    assert_eq!((&submitted.data["state"], &submitted.data["attempt"]), (&json!("pending"), &json!(1)));
    assert_eq!(submitted.data["id"], json!(submitted.id.clone().unwrap()));
    let received = stream.next().await;
    assert_eq!((received.event.as_str(), &received.data["deliveries"]), ("item.received", &json!(1)));
    assert!(received.data["deadline"].is_string());
    let completed = stream.next().await;
    assert_eq!((completed.event.as_str(), &completed.data["state"]), ("item.completed", &json!("completed")));

    // `Last-Event-ID` overrides the query string.
    let id = submitted.id.unwrap();
    let mut again = Stream::open(&server, "?after=oldest", &[("last-event-id", &id)]).await;
    assert_eq!(again.kinds(2).await, ["item.received", "item.completed"]);
    let mut again = Stream::open(&server, &format!("?after={}", begin.id.unwrap()), &[]).await;
    assert_eq!(again.kinds(4).await.last().unwrap(), "item.completed");
    let failed = server.submit("jobs", json!([{}])).await.remove(0);
    server.post(&format!("/v1/items/{failed}/cancel"), json!({"reason": "no\nlonger"})).await.success();
    for stream in [&mut stream, &mut again] {
        assert_eq!(stream.next().await.event, "item.submitted");
        let cancelled = stream.next().await;
        assert_eq!(cancelled.event, "item.cancelled");
        assert_eq!(
            (&cancelled.data["failure"], &cancelled.data["reason"]),
            (&json!("cancelled"), &json!("no\nlonger"))
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_selects_events() {
    let server = TestServer::start().await;
    for queue in ["a", "b"] {
        server.queue(queue, json!({})).await;
    }
    server.queue("c", json!({"dead_letter_queue": "b"})).await;
    let (one, other) = (live(&server, "a").await, live(&server, "b").await);
    let (dead, lease) = server.hold("c").await;
    server.act(&dead, "fail", json!({"lease": lease, "reason": "broken"})).await.success();
    for (query, count) in [
        ("queue=a", 4),
        ("queue=a&queue=b", 9),
        ("queue=a&kind=item.completed", 1),
        ("kind=item.completed", 2),
        ("kind=queue.*", 3),
        ("kind=item.completed&kind=item.failed", 3),
        (&format!("item={one}"), 3),
        (&format!("item={one}&item={other}&kind=item.*"), 6),
        // The item failed there and is now a dead letter.
        ("queue=c&kind=item.failed", 1),
        ("queue=b&kind=item.failed", 1),
        ("queue=nowhere", 0),
    ] {
        let found = page(&server, &format!("?after=oldest&limit=1000&{query}")).await.success();
        assert_eq!(found["events"].as_array().unwrap().len(), count, "{query}: {found}");
        let mut stream = Stream::open(&server, &format!("?after=oldest&for=1s&{query}"), &[]).await;
        for event in found["events"].as_array().unwrap() {
            assert_eq!(&stream.next().await.data, event, "{query}");
        }
    }
    for (query, expected) in [
        ("kind=item.complete", "item.completed"),
        ("kind=carried", "item.*"),
        ("queue=a b", "queue"),
        ("item=17", "it must be a UUID"),
        ("after=17", "oldest"),
        ("cursor=17", "oldest"),
        ("cursor=oldest&after=oldest", "choose one"),
        ("limit=10", "Accept: application/json"),
        ("kinds=item.failed", "did you mean \"kind\""),
        ("for=5", "for"),
    ] {
        let query = query.replace(' ', "%20");
        let answer = server.get(&format!("/v1/events?{query}&for=1ms")).await;
        if query == "for=5" {
            assert_eq!(answer.problem("invalid"), "for: given 2 times; give it once");
            continue;
        }
        let detail = answer.problem("invalid");
        assert!(detail.contains(expected), "{query}: {detail}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn event_pages_continue_at_the_cursor() {
    let server = TestServer::start().await;
    let begin = page(&server, "").await.success();
    assert_eq!((&begin["events"], &begin["more"]), (&json!([]), &json!(false)));
    server.queue("jobs", json!({})).await;
    server.submit("jobs", json!(vec![json!({}); 25])).await;
    let mut next = begin["next"].as_str().unwrap().to_owned();
    let mut ids = Vec::new();
    loop {
        let found = page(&server, &format!("?after={next}&limit=7")).await.success();
        ids.extend(
            found["events"].as_array().unwrap().iter().map(|event| event["id"].as_str().unwrap().to_owned()),
        );
        next = found["next"].as_str().unwrap().to_owned();
        if found["events"].as_array().unwrap().is_empty() {
            assert_eq!(found["more"], false);
            break;
        }
    }
    assert_eq!(ids.len(), 26);
    let rest = page(&server, &format!("?after={}&limit=1000", ids[20])).await.success();
    assert_eq!(rest["events"].as_array().unwrap().len(), 5);
    for limit in ["0", "1001", "x"] {
        assert!(page(&server, &format!("?limit={limit}")).await.problem("invalid").contains("limit"));
    }
    // A cursor of another store.
    let gone = page(&server, "?after=00000000-1-0").await.problem("events_gone");
    assert!(gone.contains("cursor=oldest"), "{gone}");
    let gone = server.get("/v1/events?after=00000000-1-0").await;
    assert_eq!((gone.status.as_u16(), gone.code()), (410, "events_gone"));
}

async fn socket(
    server: &TestServer,
    query: &str,
    token: Option<&str>,
) -> Result<tokio_tungstenite::WebSocketStream<tokio::net::TcpStream>, Error> {
    let mut request = format!("ws://{}/v1/events{query}", server.address).into_client_request().unwrap();
    if let Some(token) = token {
        request.headers_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    }
    let stream = tokio::net::TcpStream::connect(server.address).await.unwrap();
    Ok(tokio_tungstenite::client_async(request, stream).await?.0)
}

#[tokio::test(flavor = "multi_thread")]
async fn events_over_a_websocket_equal_server_sent_events() {
    let mut server = TestServer::start().await;
    server.queue("jobs", json!({})).await;
    let mut socket = socket(&server, "?kind=item.*", None).await.unwrap();
    // Messages of the client are ignored.
    socket.send(Message::text("hello")).await.unwrap();
    let id = live(&server, "jobs").await;
    let mut kinds = Vec::new();
    while kinds.len() < 3 {
        if let Message::Text(text) = socket.next().await.unwrap().unwrap() {
            let event: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(event["item"], json!(id));
            kinds.push(event["kind"].as_str().unwrap().to_owned());
        }
    }
    assert_eq!(kinds, ["item.submitted", "item.received", "item.completed"]);
    // The server reports that it stops.
    server.stop();
    let mut block = Vec::new();
    while let Some(Ok(message)) = tokio::time::timeout(NEVER, socket.next()).await.unwrap() {
        block.push(message);
    }
    let last: Value = serde_json::from_str(block[0].to_text().unwrap()).unwrap();
    assert_eq!(last["cut_off"]["code"], "stopping", "{block:?}");
    assert!(matches!(&block[1], Message::Close(Some(frame)) if frame.reason == "stopping"), "{block:?}");
    tokio::time::timeout(NEVER, server.stopped()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopping_server_ends_event_streams_with_a_reason() {
    let mut server = TestServer::start_with(|settings| settings.drain = NEVER * 10).await;
    server.queue("jobs", json!({})).await;
    let mut streams = Vec::new();
    for query in ["", "?after=oldest", "?kind=item.failed"] {
        streams.push(Stream::open(&server, query, &[]).await);
    }
    server.stop();
    for mut stream in streams {
        loop {
            let block = stream.next().await;
            if block.event == "cut_off" {
                assert_eq!(block.data["code"], "stopping");
                break;
            }
        }
        assert!(stream.block().await.is_none(), "the stream ends");
    }
    tokio::time::timeout(NEVER, server.stopped()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_stream_contains_only_readable_queues() {
    let server = TestServer::start_with_tokens(|_| {}).await;
    server.queue("mine", json!({})).await;
    server.queue("theirs", json!({})).await;
    let (token, id) = server.token_for(&["queue:mine:read"]).await;
    let bearer = format!("Bearer {token}");
    let headers = [("authorization", bearer.as_str())];
    let mut stream = Stream::open(&server, "?kind=item.submitted", &headers).await;
    let mut socket = socket(&server, "?kind=item.submitted", Some(&token)).await.unwrap();
    server.submit("theirs", json!([{}])).await;
    server.submit("mine", json!([{}])).await;
    assert_eq!(stream.next().await.data["queue"], "mine");
    let message = socket.next().await.unwrap().unwrap();
    assert_eq!(serde_json::from_str::<Value>(message.to_text().unwrap()).unwrap()["queue"], "mine");
    let refused = server.call_as(&token, Method::GET, "/v1/events?queue=theirs", None).await;
    assert!(refused.problem("forbidden").contains("queue:theirs:read"));
    let (submitter, _) = server.token_for(&["queue:mine:submit"]).await;
    server.call_as(&submitter, Method::GET, "/v1/events", None).await.problem("forbidden");
    // The streams of a token end with the token.
    server.post(&format!("/v1/tokens/{id}/revoke"), json!({})).await.success();
    while stream.block().await.is_some() {}
    while let Some(Ok(_)) = tokio::time::timeout(NEVER, socket.next()).await.unwrap() {}
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_follower_is_cut_off_and_can_resume() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({})).await;
    let mut slow = tokio::net::TcpStream::connect(server.address).await.unwrap();
    slow.write_all(b"GET /v1/events HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let mut first = [0; 64];
    slow.read_exact(&mut first).await.unwrap();
    // More than the broker holds for a follower, and more than fits into socket buffers.
    let batch = json!(vec![json!({}); 10_000]);
    let mut made = Vec::new();
    for _ in 0..8 {
        made.extend(server.submit("jobs", batch.clone()).await);
    }
    // A follower that keeps up gets all events, so the server has sent them.
    let mut seen = Stream::open(&server, "?after=oldest&kind=item.submitted", &[]).await;
    for id in &made {
        assert_eq!(seen.next().await.data["item"], json!(id));
    }
    let mut rest = Vec::new();
    tokio::time::timeout(NEVER, slow.read_to_end(&mut rest)).await.expect("it is cut off").ok();
    let text = String::from_utf8_lossy(&rest);
    let events: Vec<&str> = text.lines().filter(|line| line.starts_with("event: ")).collect();
    assert_eq!(events.last(), Some(&"event: cut_off"), "after {} events", events.len());
    assert!(text.contains(r#""code":"too_slow""#) && events.len() < made.len());
    // The client resumes after its last id.
    let last = text.lines().rev().find_map(|line| line.strip_prefix("id: ")).unwrap();
    let mut again = Stream::open(&server, &format!("?after={last}"), &[]).await;
    assert_eq!(again.next().await.data["item"], json!(made[events.len() - 1]));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_client_follows_events_and_reads_pages() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({})).await;
    let client = server.client();
    let query = towline_api::client::EventQuery {
        cursor: Some("oldest".to_owned()),
        kinds: vec!["item.*".to_owned()],
        ..Default::default()
    };
    let mut stream = client.follow_events(query.clone());
    let ids = server.submit("jobs", json!([{}, {}, {}])).await;
    let mut seen = Vec::new();
    for _ in 0..3 {
        seen.push(stream.next().await.unwrap());
    }
    assert_eq!(seen.iter().map(|event| event.item.unwrap().to_string()).collect::<Vec<_>>(), ids);
    assert_eq!(stream.cursor(), Some(seen[2].id.as_str()));
    let page = client.events(&query, Some(100)).await.unwrap();
    assert_eq!(page.events, seen);
    let gone = towline_api::client::EventQuery { cursor: Some("00000000-1-0".to_owned()), ..query };
    let error = client.follow_events(gone).next().await.unwrap_err();
    assert_eq!(error.code().map(|code| code.name()), Some("events_gone"));
}
