//! What happens is told to whoever follows: once, in order, only what they may see, and with a last word when it ends.

use crate::rig::{Answer, Rig};
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

/// Far beyond every bound: a test that gets here hangs.
const NEVER: Duration = Duration::from_secs(60);
const JSON: &[(&str, &str)] = &[("accept", "application/json")];

/// A stream of server-sent events.
struct Stream {
    body: Incoming,
    text: String,
}

#[derive(Debug)]
struct Said {
    id: Option<String>,
    event: String,
    data: Value,
}

impl Stream {
    async fn open(rig: &Rig, query: &str, headers: &[(&str, &str)]) -> Stream {
        let http: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
        let mut request = Request::get(format!("{}/v1/events{query}", rig.url()));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = http.request(request.body(Full::default()).unwrap()).await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Stream { body: response.into_body(), text: String::new() }
    }

    /// What is said next, signs of life too; `None`: it has ended.
    async fn said(&mut self) -> Option<Said> {
        loop {
            if let Some((said, rest)) = self.text.split_once("\n\n") {
                let field = |name: &str| {
                    let prefix = format!("{name}: ");
                    said.lines().find_map(|line| line.strip_prefix(&prefix)).map(str::to_owned)
                };
                let (id, event) = (field("id"), field("event").unwrap_or_default());
                let data = field("data").map_or(Value::Null, |data| serde_json::from_str(&data).unwrap());
                self.text = rest.to_owned();
                return Some(Said { id, event, data });
            }
            let frame = tokio::time::timeout(NEVER, self.body.frame()).await.expect("it says something");
            self.text.push_str(std::str::from_utf8(&frame?.ok()?.into_data().unwrap()).unwrap());
        }
    }

    /// The next event.
    async fn next(&mut self) -> Said {
        loop {
            let said = self.said().await.expect("it goes on");
            if !said.event.is_empty() {
                return said;
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

async fn page(rig: &Rig, query: &str) -> Answer {
    rig.send_bytes(Method::GET, &format!("/v1/events{query}"), JSON, "").await
}

async fn live(rig: &Rig, queue: &str) -> String {
    let (id, lease) = rig.hold(queue).await;
    rig.act(&id, "commit", json!({"lease": lease})).await.good();
    id
}

#[tokio::test(flavor = "multi_thread")]
async fn each_step_is_told_as_it_happens() {
    let rig = Rig::start().await;
    let mut stream = Stream::open(&rig, "", &[]).await;
    let begin = stream.said().await.unwrap();
    assert!(begin.id.is_some() && begin.event.is_empty(), "where it begins is said first: {begin:?}");
    rig.queue("jobs", json!({})).await;
    let id = live(&rig, "jobs").await;
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

    // Whoever comes back with the last id goes on from there, whatever its address says.
    let id = submitted.id.unwrap();
    let mut again = Stream::open(&rig, "?after=oldest", &[("last-event-id", &id)]).await;
    assert_eq!(again.kinds(2).await, ["item.received", "item.completed"]);
    let mut again = Stream::open(&rig, &format!("?after={}", begin.id.unwrap()), &[]).await;
    assert_eq!(again.kinds(4).await.last().unwrap(), "item.completed");
    let failed = rig.submit("jobs", json!([{}])).await.remove(0);
    rig.post(&format!("/v1/items/{failed}/cancel"), json!({"reason": "no\nlonger"})).await.good();
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
async fn a_filter_leaves_out_the_rest() {
    let rig = Rig::start().await;
    for queue in ["a", "b"] {
        rig.queue(queue, json!({})).await;
    }
    rig.queue("c", json!({"dead_letter_queue": "b"})).await;
    let (one, other) = (live(&rig, "a").await, live(&rig, "b").await);
    let (dead, lease) = rig.hold("c").await;
    rig.act(&dead, "fail", json!({"lease": lease, "reason": "broken"})).await.good();
    for (query, count) in [
        ("queue=a", 4),
        ("queue=a&queue=b", 9),
        ("queue=a&kind=item.completed", 1),
        ("kind=item.completed", 2),
        ("kind=queue.*", 3),
        ("kind=item.completed&kind=item.failed", 3),
        (&format!("item={one}"), 3),
        (&format!("item={one}&item={other}&kind=item.*"), 6),
        // It failed there, and is elsewhere now.
        ("queue=c&kind=item.failed", 1),
        ("queue=b&kind=item.failed", 1),
        ("queue=nowhere", 0),
    ] {
        let found = page(&rig, &format!("?after=oldest&limit=1000&{query}")).await.good();
        assert_eq!(found["events"].as_array().unwrap().len(), count, "{query}: {found}");
        let mut stream = Stream::open(&rig, &format!("?after=oldest&for=1s&{query}"), &[]).await;
        for event in found["events"].as_array().unwrap() {
            assert_eq!(&stream.next().await.data, event, "{query}");
        }
    }
    for (query, words) in [
        ("kind=item.complete", "item.completed"),
        ("kind=carried", "item.*"),
        ("queue=a b", "queue"),
        ("item=17", "not an id"),
        ("after=17", "oldest"),
        ("limit=10", "Accept: application/json"),
        ("kinds=item.failed", "did you mean \"kind\""),
        ("for=5", "for"),
    ] {
        let query = query.replace(' ', "%20");
        let answer = rig.get(&format!("/v1/events?{query}&for=1ms")).await;
        if query == "for=5" {
            assert_eq!(answer.refused("invalid"), "for: given 2 times; once is enough");
            continue;
        }
        let detail = answer.refused("invalid");
        assert!(detail.contains(words), "{query}: {detail}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_go_on_where_they_were() {
    let rig = Rig::start().await;
    let begin = page(&rig, "").await.good();
    assert_eq!((&begin["events"], &begin["more"]), (&json!([]), &json!(false)));
    rig.queue("jobs", json!({})).await;
    rig.submit("jobs", json!(vec![json!({}); 25])).await;
    let mut next = begin["next"].as_str().unwrap().to_owned();
    let mut ids = Vec::new();
    loop {
        let found = page(&rig, &format!("?after={next}&limit=7")).await.good();
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
    let rest = page(&rig, &format!("?after={}&limit=1000", ids[20])).await.good();
    assert_eq!(rest["events"].as_array().unwrap().len(), 5);
    for limit in ["0", "1001", "x"] {
        assert!(page(&rig, &format!("?limit={limit}")).await.refused("invalid").contains("limit"));
    }
    // Its kind of number, of another store.
    let gone = page(&rig, "?after=00000000-1-0").await.refused("events_gone");
    assert!(gone.contains("after=oldest"), "{gone}");
    let gone = rig.get("/v1/events?after=00000000-1-0").await;
    assert_eq!((gone.status.as_u16(), gone.code()), (410, "events_gone"));
}

async fn socket(
    rig: &Rig,
    query: &str,
    token: Option<&str>,
) -> Result<tokio_tungstenite::WebSocketStream<tokio::net::TcpStream>, Error> {
    let mut request = format!("ws://{}/v1/events{query}", rig.address).into_client_request().unwrap();
    if let Some(token) = token {
        request.headers_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    }
    let stream = tokio::net::TcpStream::connect(rig.address).await.unwrap();
    Ok(tokio_tungstenite::client_async(request, stream).await?.0)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_over_a_web_socket() {
    let mut rig = Rig::start().await;
    rig.queue("jobs", json!({})).await;
    let mut socket = socket(&rig, "?kind=item.*", None).await.unwrap();
    // Whatever a client says is of no interest.
    socket.send(Message::text("hello")).await.unwrap();
    let id = live(&rig, "jobs").await;
    let mut kinds = Vec::new();
    while kinds.len() < 3 {
        if let Message::Text(text) = socket.next().await.unwrap().unwrap() {
            let event: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(event["item"], json!(id));
            kinds.push(event["kind"].as_str().unwrap().to_owned());
        }
    }
    assert_eq!(kinds, ["item.submitted", "item.received", "item.completed"]);
    // The server says that it stops, and does.
    rig.stop();
    let mut said = Vec::new();
    while let Some(Ok(message)) = tokio::time::timeout(NEVER, socket.next()).await.unwrap() {
        said.push(message);
    }
    let last: Value = serde_json::from_str(said[0].to_text().unwrap()).unwrap();
    assert_eq!(last["cut_off"]["code"], "stopping", "{said:?}");
    assert!(matches!(&said[1], Message::Close(Some(frame)) if frame.reason == "stopping"), "{said:?}");
    tokio::time::timeout(NEVER, rig.stopped()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stops_says_so_and_waits_for_nobody() {
    let mut rig = Rig::start_with(|settings| settings.drain = NEVER * 10).await;
    rig.queue("jobs", json!({})).await;
    let mut streams = Vec::new();
    for query in ["", "?after=oldest", "?kind=item.failed"] {
        streams.push(Stream::open(&rig, query, &[]).await);
    }
    rig.stop();
    for mut stream in streams {
        loop {
            let said = stream.next().await;
            if said.event == "cut_off" {
                assert_eq!(said.data["code"], "stopping");
                break;
            }
        }
        assert!(stream.said().await.is_none(), "it ends well");
    }
    tokio::time::timeout(NEVER, rig.stopped()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_sees_what_it_may_read() {
    let rig = Rig::start_with_tokens(|_| {}).await;
    rig.queue("mine", json!({})).await;
    rig.queue("theirs", json!({})).await;
    let (token, id) = rig.token_for(&["queue:mine:read"]).await;
    let bearer = format!("Bearer {token}");
    let headers = [("authorization", bearer.as_str())];
    let mut stream = Stream::open(&rig, "?kind=item.submitted", &headers).await;
    let mut socket = socket(&rig, "?kind=item.submitted", Some(&token)).await.unwrap();
    rig.submit("theirs", json!([{}])).await;
    rig.submit("mine", json!([{}])).await;
    assert_eq!(stream.next().await.data["queue"], "mine");
    let heard = socket.next().await.unwrap().unwrap();
    assert_eq!(serde_json::from_str::<Value>(heard.to_text().unwrap()).unwrap()["queue"], "mine");
    let refused = rig.call_as(&token, Method::GET, "/v1/events?queue=theirs", None).await;
    assert!(refused.refused("forbidden").contains("queue:theirs:read"));
    let (submitter, _) = rig.token_for(&["queue:mine:submit"]).await;
    rig.call_as(&submitter, Method::GET, "/v1/events", None).await.refused("forbidden");
    // With the token, its streams end.
    rig.post(&format!("/v1/tokens/{id}/revoke"), json!({})).await.good();
    while stream.said().await.is_some() {}
    while let Some(Ok(_)) = tokio::time::timeout(NEVER, socket.next()).await.unwrap() {}
}

#[tokio::test(flavor = "multi_thread")]
async fn who_does_not_keep_up_is_cut_off_and_can_come_back() {
    let rig = Rig::start().await;
    rig.queue("jobs", json!({})).await;
    let mut slow = tokio::net::TcpStream::connect(rig.address).await.unwrap();
    slow.write_all(b"GET /v1/events HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let mut first = [0; 64];
    slow.read_exact(&mut first).await.unwrap();
    // More than is held for it, and more than fits on the way.
    let batch = json!(vec![json!({}); 10_000]);
    let mut made = Vec::new();
    for _ in 0..8 {
        made.extend(rig.submit("jobs", batch.clone()).await);
    }
    // One that keeps up has them all, and so the server has told them.
    let mut seen = Stream::open(&rig, "?after=oldest&kind=item.submitted", &[]).await;
    for id in &made {
        assert_eq!(seen.next().await.data["item"], json!(id));
    }
    let mut rest = Vec::new();
    tokio::time::timeout(NEVER, slow.read_to_end(&mut rest)).await.expect("it is cut off").ok();
    let text = String::from_utf8_lossy(&rest);
    let events: Vec<&str> = text.lines().filter(|line| line.starts_with("event: ")).collect();
    assert_eq!(events.last(), Some(&"event: cut_off"), "after {} events", events.len());
    assert!(text.contains(r#""code":"too_slow""#) && events.len() < made.len());
    // From its last id on, the rest is there.
    let last = text.lines().rev().find_map(|line| line.strip_prefix("id: ")).unwrap();
    let mut again = Stream::open(&rig, &format!("?after={last}"), &[]).await;
    assert_eq!(again.next().await.data["item"], json!(made[events.len() - 1]));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_client_follows_and_pages() {
    let rig = Rig::start().await;
    rig.queue("jobs", json!({})).await;
    let client = rig.client();
    let query = towline_api::client::EventQuery {
        after: Some("oldest".to_owned()),
        kinds: vec!["item.*".to_owned()],
        ..Default::default()
    };
    let mut stream = client.follow_events(query.clone());
    let ids = rig.submit("jobs", json!([{}, {}, {}])).await;
    let mut seen = Vec::new();
    for _ in 0..3 {
        seen.push(stream.next().await.unwrap());
    }
    assert_eq!(seen.iter().map(|event| event.item.unwrap().to_string()).collect::<Vec<_>>(), ids);
    assert_eq!(stream.cursor(), Some(seen[2].id.as_str()));
    let page = client.events(&query, Some(100)).await.unwrap();
    assert_eq!(page.events, seen);
    let gone = towline_api::client::EventQuery { after: Some("00000000-1-0".to_owned()), ..query };
    let error = client.follow_events(gone).next().await.unwrap_err();
    assert_eq!(error.code().map(|code| code.name()), Some("events_gone"));
}
