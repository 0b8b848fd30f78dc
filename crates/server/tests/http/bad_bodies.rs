//! Invalid bodies are rejected with the reason and the position.

use crate::raw::{Raw, head, padded};
use crate::test_server::TestServer;
use bytes::Bytes;
use futures::stream;
use http::{Method, Request};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use std::convert::Infallible;

const ITEMS: &str = "/v1/queues/jobs/items";

async fn with_queue() -> TestServer {
    let server = TestServer::start().await;
    server.queue("jobs", json!({})).await;
    server
}

#[track_caller]
fn assert_words(body: &str, message: &str, expected: &[&str]) {
    assert!(expected.iter().all(|word| message.contains(word)), "{body}: {message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_names_the_field_of_an_item_that_is_wrong() {
    let server = with_queue().await;
    for (item, expected) in [
        (r#"{"priority":"high"}"#, &["priority: ", "string \"high\""][..]),
        (r#"{"tags":{"a":1}}"#, &["tags.a: ", "integer `1`"]),
        (r#"{"colour":"red"}"#, &["unknown field `colour`", "priority"]),
        (r#"{"delay":[]}"#, &["delay: ", "a duration like"]),
        (r#"{"ready_at":{}}"#, &["ready_at: ", "a time like"]),
        (r#"{"payload":5}"#, &["payload: ", "base64"]),
        (r#"{"id":5}"#, &["id: ", "a string"]),
        (r#"{"fee":-1}"#, &["fee: ", "expected a whole number from 0"]),
        (r#"{"priority":99999999999999999999}"#, &["priority: "]),
        (r#"{"priority":1e999}"#, &["priority: ", "out of range"]),
        (r#"{"max_retries":1.5}"#, &["max_retries: "]),
        (r#"{"backoff":{"base":"1s","faktor":2}}"#, &["backoff", "unknown field `faktor`"]),
        (r#"{"backoff":7}"#, &["backoff: ", "the name of a backoff"]),
        (r#"{"params":{"a":"\ud800"}}"#, &["params.a: ", "half a character"]),
        (r#"{"params":[]}"#, &["params: ", "an object of parameters"]),
        (r#"{"blob":"","payload":""}"#, &["duplicate field `payload`"]),
    ] {
        // Alone, and in a list.
        assert_words(item, &server.post_text(ITEMS, item).await.problem("malformed_body"), expected);
        let body = format!(r#"{{"items":[{{"delay":"1h"}},{item},7,[]]}}"#);
        let answer = server.post_text(ITEMS, body).await.success();
        assert_eq!(answer["items"][0]["created"], true);
        for (n, expected) in [(1, expected), (2, &["expected an object"]), (3, &["expected an object"])] {
            let error = &answer["items"][n]["error"];
            assert_eq!(error["code"], "malformed_body", "{item}: {answer}");
            let message = error["message"].as_str().unwrap();
            assert_words(item, message, expected);
            assert!(!message.contains("line"), "the position is that of the element: {message}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_names_the_field_of_an_action_that_is_wrong() {
    let server = with_queue().await;
    for (action, expected) in [
        ("[]", &["expected an object"][..]),
        (r#"{"set":[]}"#, &["set: ", "expected an object"]),
        (r#"{"priority":"low"}"#, &["priority: "]),
        (r#"{"verb":{}}"#, &["verb: "]),
        (r#"{"set":{"colour":""}}"#, &["set", "unknown field `colour`"]),
    ] {
        let answer =
            server.post_text("/v1/settle", format!(r#"{{"actions":[{{}},{action}]}}"#)).await.success();
        let errors = answer["results"].as_array().unwrap().iter().map(|result| &result["error"]);
        let errors: Vec<&Value> = errors.collect();
        assert_eq!((&errors[0]["code"], &errors[1]["code"]), (&json!("invalid"), &json!("malformed_body")));
        let message = errors[1]["message"].as_str().unwrap();
        assert_words(action, message, expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_says_where_a_body_is_wrong() {
    let server = with_queue().await;
    for (path, body, expected) in [
        (ITEMS, r#"{"items":[{"params":{"a":[1,}}]}"#, &["items[0]", "column"][..]),
        (ITEMS, r#"{"items":[{}],"items":[{}]}"#, &["duplicate field `items`"]),
        (ITEMS, r#"{"items":[{}],"wait":1,"wait":1}"#, &["duplicate field `wait`"]),
        (ITEMS, r#"{"items":[{}],"priority":1}"#, &["both `items` and fields of an item"]),
        (ITEMS, r#"{"items":{}}"#, &["items", "a list"]),
        (ITEMS, r#"{"items":null}"#, &["items", "null"]),
        (ITEMS, r#"{"item":[]}"#, &["unknown field `item`"]),
        (ITEMS, r#"[]"#, &["expected an object"]),
        (ITEMS, r#"[[{}]]"#, &["expected an object"]),
        ("/v1/settle", r#"{}"#, &["missing field `actions`"]),
        ("/v1/settle", "", &["missing field `actions`"]),
        ("/v1/settle", " \n", &["missing field `actions`"]),
        ("/v1/queues/jobs/receive", "[]", &["expected an object"]),
        (ITEMS, r#""items""#, &["string"]),
        (ITEMS, r#"{"items":[]} x"#, &["trailing characters"]),
        (ITEMS, r#"{"items":[{"fee":"x"}]} x"#, &["trailing characters"]),
        (ITEMS, r#"{"items":[]"#, &["EOF"]),
        (ITEMS, r#"{'items':[]}"#, &["key must be a string"]),
        (ITEMS, "\u{feff}{}", &["expected value"]),
        ("/v1/queues/jobs/receive", r#"{"max":"many"}"#, &["max", "string \"many\""]),
        ("/v1/queues/jobs/receive", r#"{"fields":[1]}"#, &["fields[0]"]),
    ] {
        let detail = server.post_text(path, body).await.problem("malformed_body");
        assert_words(body, &detail, expected);
        let is_json = serde_json::from_str::<Value>(body).is_ok() || body.trim().is_empty();
        assert_eq!(detail.contains(" at line "), !is_json, "a position helps where it is not JSON: {detail}");
    }
    assert_eq!(server.counts("jobs").await["pending"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_names_the_field_of_a_queue_that_is_wrong() {
    let server = TestServer::start().await;
    for (body, expected) in [
        (r#"{"policy":{"order":{"score":{"fee":1}}}}"#, &["policy.order", "unknown field `fee`"][..]),
        (r#"{"policy":{"order":{"score":{},"more":1}}}"#, &["policy.order", "unknown field `more`"]),
        (r#"{"policy":{"order":5}}"#, &["policy.order", "`fifo`"]),
        (r#"{"policy":{"lease":{"renewals":1}}}"#, &["policy.lease", "unknown field `renewals`"]),
        (r#"{"policy":{"max_retries":"3"}}"#, &["policy.max_retries"]),
        (r#"{"schema":{"inputs":"raw"}}"#, &["schema.inputs"]),
        (r#"{"policy":[]}"#, &["policy", "expected an object"]),
        (r#"{"schema":[]}"#, &["schema", "expected an object"]),
        (r#"{"policy":{"order":{"score":[]}}}"#, &["policy.order", "expected an object"]),
        (r#"{"policy":{"lease":[]}}"#, &["policy.lease", "expected an object"]),
        (r#"{"name":"jobs"}"#, &["unknown field `name`"]),
    ] {
        let json = [("content-type", "application/json")];
        let detail =
            server.send_bytes(Method::PUT, "/v1/queues/new", &json, body).await.problem("malformed_body");
        assert_words(body, &detail, expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn deeply_nested_bodies_are_rejected() {
    let server = with_queue().await;
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let objects = |depth: usize| format!("{}1{}", r#"{"a":"#.repeat(depth), "}".repeat(depth));
    for value in [nested(101), nested(100_000), objects(101), objects(100_000)] {
        let body = format!(r#"{{"items":[{{"params":{{"ok":1,"x":{value}}}}}]}}"#);
        let answer = server.post_text(ITEMS, body).await.success();
        assert_eq!(answer["items"][0]["error"]["code"], "malformed_body");
        let message = answer["items"][0]["error"]["message"].as_str().unwrap();
        assert!(message.contains("params.x") && message.contains("nested more than 100 deep"), "{message}");
        assert!(message.len() < 1_000);
    }
    // Deep nesting in a field that does not exist does not overflow the stack either.
    for body in [
        nested(1_000_000),
        "[".repeat(1_000_000),
        format!(r#"{{"items":[{}}}"#, nested(100_000)),
        objects(100_000),
    ] {
        server.post_text(ITEMS, body.clone()).await.problem("malformed_body");
        let json = [("content-type", "application/json")];
        server.send_bytes(Method::PATCH, "/v1/queues/jobs", &json, body).await.problem("malformed_body");
    }
    let deepest = format!(r#"{{"items":[{{"params":{{"x":{}}}}}]}}"#, nested(100));
    let id = server.post_text(ITEMS, deepest).await.success()["items"][0]["id"].as_str().unwrap().to_owned();
    assert_eq!(server.item(&id).await["state"], "pending");
    let lease = server.receive("jobs").await["lease"].clone();
    let commit = format!(r#"{{"lease":{lease},"output_params":{{"y":{}}}}}"#, nested(101));
    let detail = server.post_text(&format!("/v1/items/{id}/commit"), commit).await.problem("malformed_body");
    assert!(detail.contains("output_params.y"), "{detail}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_is_not_utf8_is_rejected() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({})).await;
    for body in [
        &b"\xff\xfe{\0}"[..],
        b"{\"items\":[{\"group\":\"\xc3\x28\"}]}",
        b"{\"items\":[{\"params\":{\"a\":\"\xff\"}}]}",
        b"\0",
        b"\x1f\x8b\x08",
    ] {
        server.post_text(ITEMS, body.to_vec()).await.problem("malformed_body");
    }
    let long = format!(r#"{{"{}":1}}"#, "x".repeat(1_000_000));
    let detail = server.post_text(ITEMS, long).await.problem("malformed_body");
    assert!(detail.len() < 5_000, "a long name is shortened in the error");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_needs_a_known_content_type() {
    let server = with_queue().await;
    let body = r#"{"items":[{}]}"#;
    for content_type in [
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "text/plain",
        "text/plain; charset=application/json",
        "text/json",
        "application/jsonp",
        "application/xml",
        "json",
        "",
        "\u{e9}",
    ] {
        let detail = server
            .send_bytes(Method::POST, ITEMS, &[("content-type", content_type)], body)
            .await
            .problem("unsupported_media_type");
        assert!(detail.contains("application/json"), "{detail}");
    }
    server.send_bytes(Method::POST, ITEMS, &[], body).await.problem("unsupported_media_type");
    // A form without fields has an empty body, and is still rejected as a form.
    let form = [("content-type", "application/x-www-form-urlencoded")];
    server
        .send_bytes(Method::POST, "/v1/queues/jobs/receive", &form, "")
        .await
        .problem("unsupported_media_type");
    assert_eq!(server.counts("jobs").await["pending"], 0);
    for content_type in
        ["application/json", "Application/JSON", "application/json;charset=UTF-8", " application/json ; a=b"]
    {
        server.send_bytes(Method::POST, ITEMS, &[("content-type", content_type)], body).await.success();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_size_of_a_body_is_limited_with_and_without_content_length() {
    let server = TestServer::start_with(|settings| settings.body_bytes_max = 100_000).await;
    server.queue("jobs", json!({})).await;
    let body = |length: usize| padded(r#"{"items":[{}]}"#, length);
    server.post_text(ITEMS, body(100_000)).await.success();
    let detail = server.post_text(ITEMS, body(100_001)).await.problem("too_large");
    assert!(detail.contains("100001") && detail.contains("100000"), "{detail}");

    // In frames, without a content length.
    let pieces = |count: usize| {
        let piece = move |n: usize| if n == 0 { body(1_000) } else { " ".repeat(1_000) };
        let frames = (0..count).map(move |n| Ok::<_, Infallible>(Frame::data(Bytes::from(piece(n)))));
        let request =
            Request::post(format!("{}{ITEMS}", server.url())).header("content-type", "application/json");
        request.body(StreamBody::new(stream::iter(frames))).unwrap()
    };
    let http: Client<_, StreamBody<_>> = Client::builder(TokioExecutor::new()).build_http();
    let good = http.request(pieces(100)).await.unwrap();
    assert_eq!(good.status().as_u16(), 200);
    let answer = http.request(pieces(101)).await.unwrap();
    assert_eq!(answer.status().as_u16(), 413);
    let problem: Value =
        serde_json::from_slice(&answer.into_body().collect().await.unwrap().to_bytes()).unwrap();
    assert_eq!(problem["code"], "too_large");

    // The server rejects a too large content length before it reads the body.
    let mut raw = Raw::connect(server.address).await;
    raw.send(head("POST", ITEMS, usize::MAX >> 1)).await;
    raw.answer().await.unwrap().problem("too_large");
    assert_eq!(server.counts("jobs").await["pending"], 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_incomplete_body_changes_nothing() {
    let server = with_queue().await;
    let whole = r#"{"items":[{}]}"#;
    let chunked = format!(
        "POST {ITEMS} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
    );
    for start in [
        head("POST", ITEMS, whole.len() + 1) + whole,
        format!("{chunked}e\r\n{whole}\r\n"),
        format!("{chunked}zz\r\n"),
    ] {
        let mut raw = Raw::connect(server.address).await;
        raw.send(&start).await;
        raw.finish().await;
        if let Some(answer) = raw.answer().await {
            answer.problem("malformed_body");
        }
        raw.hung_up().await;
    }
    assert_eq!(server.counts("jobs").await["pending"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn too_many_large_bodies_get_busy() {
    let server = TestServer::start_with(|settings| settings.bodies_bytes_max = 1 << 20).await;
    server.queue("jobs", json!({})).await;
    let body = padded(r#"{"items":[{}]}"#, 900_000);
    let first = Raw::hold_memory(&server, &body).await;
    // The client gets the response although the server never reads its body.
    let second = server.post_text(ITEMS, body.clone()).await;
    if second.status.as_u16() != 200 {
        second.problem("busy");
        assert_eq!(second.headers["retry-after"], "1");
    }
    // Small bodies always fit.
    server.submit("jobs", json!([{}])).await;
    drop(first);
    while server.post_text(ITEMS, body.clone()).await.status.as_u16() != 200 {}
}

#[tokio::test(flavor = "multi_thread")]
async fn the_client_gets_a_response_that_is_sent_before_its_body_ends() {
    let server = TestServer::start_with(|settings| settings.body_bytes_max = 100_000).await;
    server.queue("jobs", json!({})).await;
    let body = padded("{}", 5 << 20);
    for _ in 0..20 {
        server.post_text(ITEMS, body.clone()).await.problem("too_large");
        server.post_text("/v1/nothing", body.clone()).await.problem("route_not_found");
        server.post_text("/v1/queues/a%20b/items", body.clone()).await.problem("invalid");
        server
            .send_bytes(Method::POST, ITEMS, &[("content-type", "text/plain")], body.clone())
            .await
            .problem("unsupported_media_type");
        server
            .send_bytes(Method::POST, ITEMS, &[("origin", "http://evil.example")], body.clone())
            .await
            .problem("cross_origin");
    }
}
