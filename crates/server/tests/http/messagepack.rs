//! MessagePack requests and responses are equivalent to JSON.

use crate::test_server::{TestResponse, TestServer};
use http::Method;
use serde::Serialize;
use serde_json::{Value, json};
use towline_api::Format;

const PACKED: &str = "application/msgpack";

fn pack(body: &impl Serialize) -> Vec<u8> {
    rmp_serde::to_vec_named(body).unwrap()
}

/// For responses without byte strings, which JSON values cannot represent.
fn unpack(answer: &TestResponse) -> Value {
    assert!(answer.status.is_success(), "{}: {}", answer.status, String::from_utf8_lossy(&answer.body));
    assert_eq!(answer.headers["content-type"], PACKED);
    rmp_serde::from_slice(&answer.body).unwrap()
}

async fn packed(server: &TestServer, method: Method, path: &str, body: Value) -> TestResponse {
    server.send_bytes(method, path, &[("content-type", PACKED)], pack(&body)).await
}

/// Removes what differs between items: ids, texts that contain them, leases and times.
fn timeless(mut value: Value) -> Value {
    fn walk(value: &mut Value) {
        match value {
            Value::Object(object) => {
                for (name, value) in object.iter_mut() {
                    match name.as_str() {
                        "id" | "lease" | "message" => *value = json!(name),
                        name if name.ends_with("_at") && value.is_string() => *value = json!("then"),
                        _ => walk(value),
                    }
                }
            }
            Value::Array(array) => array.iter_mut().for_each(walk),
            _ => {}
        }
    }
    walk(&mut value);
    value
}

#[tokio::test(flavor = "multi_thread")]
async fn messagepack_and_json_requests_get_equal_responses() {
    let server = TestServer::start().await;
    let raw = server.buffer().await;
    let mut responses = Vec::new();
    for queue in ["jobs", "sboj"] {
        let in_json = queue == "jobs";
        let call = |method: Method, path: String, body: Value| {
            let server = &server;
            async move {
                let answer = if in_json {
                    server.call(method, &path, Some(body)).await.success()
                } else {
                    unpack(&packed(server, method, &path, body).await)
                };
                serde_json::from_str::<Value>(&answer.to_string().replace("sboj", "jobs")).unwrap()
            }
        };
        let schema = json!({"schema": {"inputs": ["raw?"], "input_params": ["x?"], "output_params": ["y?"]},
            "policy": {"visibility_timeout": 60_000, "backoff": {"base": "1s", "factor": 1.5, "jitter": 0.25}, "order": {"score": {"fee_half": 7}}, "item_ttl": null}});
        let item = json!({"params": {"x": {"a": [1, -2.5, null, true, "é", u64::MAX, i64::MIN]}}, "payload": "AP8=", "metadata": "", "inputs": {"raw": raw},
            "tags": {"t": "v"}, "priority": -7, "delay": 0, "fee": 12});
        let items = json!({"items": [item, {"priority": 99_999}, {"id": "?"}, {"delay": "1h"}]});
        let (queue_path, items_path) = (format!("/v1/queues/{queue}"), format!("/v1/queues/{queue}/items"));
        let mut answers = vec![
            call(Method::PUT, queue_path.clone(), schema).await,
            call(Method::PATCH, queue_path.clone(), json!({"max_retries": 9, "failed_ttl": "3d"})).await,
            call(Method::PATCH, queue_path.clone(), json!({"policy": {"backoff": "none"}})).await,
            call(Method::POST, items_path, items).await,
        ];
        let received = call(
            Method::POST,
            format!("{queue_path}/receive"),
            json!({"max": 2, "wait": "1s", "fields": []}),
        )
        .await;
        let (id, lease) =
            (received["items"][0]["id"].as_str().unwrap(), received["items"][0]["lease"].clone());
        answers.push(call(Method::POST, format!("/v1/items/{id}/heartbeat"), json!({"lease": lease})).await);
        let settle = json!({"actions": [
            {"verb": "edit", "id": id, "lease": lease, "set": {"state_blob": "AQI="}, "unset": ["metadata", "blob"]},
            {"verb": "commit", "id": id, "lease": lease, "output_params": {"y": 1.5}}, {"verb": "fail", "id": id, "lease": lease}, {"verb": "none", "id": "x"},
        ]});
        answers.push(call(Method::POST, "/v1/settle".to_owned(), settle).await);
        let accept = [("accept", if in_json { "application/json" } else { PACKED })];
        for path in [
            format!("/v1/items/{id}?fields="),
            format!("{queue_path}/counts"),
            format!("{queue_path}/items"),
            queue_path.clone(),
        ] {
            let shown = server.send_bytes(Method::GET, &path, &accept, "").await;
            let shown = if in_json { shown.success() } else { unpack(&shown) };
            answers.push(serde_json::from_str(&shown.to_string().replace("sboj", "jobs")).unwrap());
        }
        responses.push(answers.into_iter().map(timeless).collect::<Vec<_>>());
    }
    for (json, packed) in responses[0].iter().zip(&responses[1]) {
        assert_eq!(json, packed);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payload_is_bytes_or_base64() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({})).await;
    #[derive(Serialize)]
    struct Items<T> {
        items: Vec<T>,
    }
    #[derive(Serialize)]
    struct Binary {
        payload: bytes::Bytes,
        params: Value,
    }
    let every_byte: Vec<u8> = (0..=255).collect();
    let body =
        pack(&Items { items: vec![Binary { payload: every_byte.clone().into(), params: json!({"n": 1}) }] });
    let path = "/v1/queues/jobs/items";
    let answer = unpack(&server.send_bytes(Method::POST, path, &[("content-type", PACKED)], body).await);
    let text = unpack(
        &packed(
            &server,
            Method::POST,
            path,
            json!({"items": [{"payload": "AP8="}, {"payload": "no base64"}]}),
        )
        .await,
    );
    assert_eq!(text["items"][1]["error"]["code"], "invalid");
    let id = text["items"][0]["id"].as_str().unwrap();
    assert_eq!(server.item(id).await["payload"], "AP8=");
    let id = answer["items"][0]["id"].as_str().unwrap();
    let shown = server.client().item(id.parse().unwrap()).await.unwrap();
    assert_eq!(shown.payload.unwrap().into_domain("payload").unwrap(), every_byte);
}

#[tokio::test(flavor = "multi_thread")]
async fn accept_selects_the_response_format_or_else_the_content_type_does() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({})).await;
    let path = "/v1/queues/jobs/receive";
    for (accept, content_type, expected) in [
        (None, "application/json", Format::Json),
        (None, "application/json; charset=utf-8", Format::Json),
        (None, PACKED, Format::MessagePack),
        (None, "application/x-msgpack", Format::MessagePack),
        (None, "application/vnd.msgpack", Format::MessagePack),
        (Some("*/*"), PACKED, Format::MessagePack),
        (Some("application/json"), PACKED, Format::Json),
        (Some("application/msgpack"), "application/json", Format::MessagePack),
        (Some("text/html, application/msgpack;q=0.8, */*"), "application/json", Format::MessagePack),
        (Some("application/json, application/msgpack"), PACKED, Format::Json),
        (Some("text/html"), "application/json", Format::Json),
    ] {
        let mut headers = vec![("content-type", content_type)];
        headers.extend(accept.map(|accept| ("accept", accept)));
        let body = Format::of(content_type).unwrap().encode(&json!({"max": 1})).unwrap();
        let answer = server.send_bytes(Method::POST, path, &headers, body).await;
        assert_eq!(answer.headers["content-type"], expected.content_type(), "{headers:?}");
        assert_eq!(expected.decode::<Value>(&answer.body).unwrap(), json!({"status": "open", "items": []}));
    }
    // A problem is always JSON.
    let accept = [("accept", PACKED)];
    server.send_bytes(Method::GET, "/v1/queues/nowhere", &accept, "").await.problem("queue_not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn large_numbers_keep_their_digits_in_both_formats() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({})).await;
    let text = r#"{"items":[{"params":{"deep":{"a":[1e400,-1e400,{"b":2}]},"long":123456789012345678901234567890,"plain":7}}]}"#;
    server.post_text("/v1/queues/jobs/items", text).await.success();
    let received = unpack(&packed(&server, Method::POST, "/v1/queues/jobs/receive", json!({})).await);
    let params = &received["items"][0]["params"];
    assert_eq!(params["deep"], json!({"a": [f64::MAX, f64::MIN, {"b": 2}]}));
    assert_eq!((&params["long"], &params["plain"]), (&json!(1.2345678901234568e29), &json!(7)));
    // In JSON the digits are as submitted.
    let shown = server.get(&format!("/v1/items/{}", received["items"][0]["id"].as_str().unwrap())).await;
    let body = String::from_utf8(shown.body.to_vec()).unwrap();
    assert!(
        body.contains(
            r#"{"deep":{"a":[1e400,-1e400,{"b":2}]},"long":123456789012345678901234567890,"plain":7}"#
        ),
        "{body}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn messagepack_types_that_json_lacks_are_rejected() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({})).await;
    let nested = |depth: usize| [vec![0x91; depth], vec![0xc0]].concat();
    let within = |value: &[u8]| {
        // {"items": [{"params": {"x": value}}]}
        [b"\x81\xa5items\x91\x81\xa6params\x81\xa1x", value].concat()
    };
    for (value, expected) in [
        (b"\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00".to_vec(), "NaN"),
        (b"\xcb\x7f\xf0\x00\x00\x00\x00\x00\x00".to_vec(), "inf"),
        (b"\xca\x7f\x80\x00\x00".to_vec(), "inf"),
        (b"\xc4\x01\x00".to_vec(), "a value that JSON has"),
        (b"\xd4\x01\x00".to_vec(), ""),
        (b"\x81\x01\x02".to_vec(), "string"),
        (b"\xa2\xff\xfe".to_vec(), ""),
        (b"\xc1".to_vec(), ""),
        (b"\xdd\xff\xff\xff\xff".to_vec(), ""),
        (b"\xdf\xff\xff\xff\xff".to_vec(), ""),
        (b"\xdb\xff\xff\xff\xff".to_vec(), ""),
        (nested(101), "nested more than 100 deep"),
        (nested(1_000), "depth"),
        (nested(1_000_000), "depth"),
        ([b"\x01".to_vec(), b"\x01".to_vec()].concat(), "trailing bytes"),
    ] {
        let answer = server
            .send_bytes(Method::POST, "/v1/queues/jobs/items", &[("content-type", PACKED)], within(&value))
            .await;
        // The element is refused, or the body if it is not MessagePack.
        let detail = if answer.status.is_success() {
            let error = unpack(&answer)["items"][0]["error"].clone();
            assert_eq!(error["code"], "malformed_body");
            error["message"].to_string()
        } else {
            answer.problem("malformed_body")
        };
        assert!(detail.contains(expected), "{:?}: {detail}", &value[..value.len().min(10)]);
    }
    let deep = server
        .send_bytes(Method::POST, "/v1/queues/jobs/items", &[("content-type", PACKED)], within(&nested(100)))
        .await;
    let id = unpack(&deep)["items"][0]["id"].as_str().unwrap().to_owned();
    // Both formats accept the maximum depth.
    server.item(&id).await;
    server.client().item(id.parse().unwrap()).await.unwrap();
    server.client().format(Format::Json).item(id.parse().unwrap()).await.unwrap();
}
