//! Mutated requests get a complete response, and never an internal error.

use crate::test_server::TestServer;
use http::Method;
use serde_json::{Value, json};

/// Pseudo-random numbers, the same in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % sides
    }
}

const TOKENS: [&str; 24] = [
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "null",
    "true",
    "-1",
    "1e999",
    "0.5",
    "99999999999999999999",
    "\"\"",
    "\"\\ud800\"",
    "\\",
    "\u{0}",
    "é",
    "{}",
    "[]",
    "\"5m\"",
    "\"items\":",
    "\"params\":",
    "\"-5s\"",
];

fn mutate(dice: &mut Dice, body: &[u8]) -> Vec<u8> {
    let mut body = body.to_vec();
    for _ in 0..=dice.roll(4) {
        let at = dice.roll(body.len().max(1)).min(body.len());
        match dice.roll(5) {
            0 if at < body.len() => body[at] ^= 1 << dice.roll(8),
            1 => drop(body.splice(at..at, TOKENS[dice.roll(TOKENS.len())].bytes())),
            2 => body.truncate(at),
            3 if at < body.len() => drop(body.remove(at)),
            _ => {
                let end = (at + 1 + dice.roll(20)).min(body.len());
                let copied = body[at..end].to_vec();
                drop(body.splice(at..at, copied));
            }
        }
    }
    body
}

fn bodies(id: &str, lease: &str) -> Vec<(Method, String, Value)> {
    let fields = json!({"payload": "aGk=", "state_blob": "", "metadata": "bQ==", "parameters": "cA=="});
    vec![
        (
            Method::PUT,
            "/v1/queues/q".to_owned(),
            json!({"schema": {"inputs": ["a", "b?"], "output_params": ["c"]}, "policy": {"visibility_timeout": "1m", "max_retries": 3,
            "backoff": {"base": "1s", "factor": 2, "max": "5m", "hash_jitter": 0.5, "round": "1s"}, "order": {"score": {"fee_half": 1, "age_unit": "1h", "tiers_permille": {"a": 1}}},
            "item_ttl": "7d", "failed_ttl": null, "depth_limit": 10, "dead_letter_queue": "jobs", "lease": {"renewals_max": 5}}}),
        ),
        (
            Method::PATCH,
            "/v1/queues/jobs".to_owned(),
            json!({"policy": {"max_retries": 100, "completed_ttl": "1d", "backoff": "tyger"}}),
        ),
        (
            Method::POST,
            "/v1/queues/jobs/items".to_owned(),
            json!({"items": [{"params": {"a": [1, {"b": null}]}, "inputs": {}, "priority": -3, "delay": "1s", "tags": {"t": "v"},
            "idempotency_key": "k", "payload": "aGk=", "metadata": "", "max_retries": 2, "backoff": "none", "fee": 5, "parent": id}, {"ready_at": "2030-01-01T00:00:00Z", "id": id}]}),
        ),
        (
            Method::POST,
            "/v1/queues/jobs/receive".to_owned(),
            json!({"max": 2, "wait": 1, "visibility_timeout": "1m", "fields": ["payload"], "create_output_buffers": true}),
        ),
        (
            Method::POST,
            "/v1/settle".to_owned(),
            json!({"actions": [{"verb": "heartbeat", "id": id, "lease": lease, "visibility_timeout": "5m"}, {"verb": "defer", "id": id, "lease": lease,
            "until": 0, "priority": 5, "queue": "jobs", "set": fields, "unset": []}, {"verb": "commit", "id": id, "lease": lease, "outputs": {"o": "b"}, "output_params": {"p": 1}}]}),
        ),
        (
            Method::POST,
            format!("/v1/items/{id}/retry"),
            json!({"lease": lease, "reason": "why", "delay": "1s", "unset": ["blob"]}),
        ),
        (Method::POST, format!("/v1/items/{id}/cancel"), json!({"reason": "why"})),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn mutated_bodies_get_proper_responses_in_both_formats() {
    let server = TestServer::start_with(|settings| settings.durability = towline_embedded_interval()).await;
    server.queue("jobs", json!({"max_retries": 10_000, "visibility_timeout": "30d"})).await;
    let (id, lease) = server.hold("jobs").await;
    let mut dice = Dice(7);
    let (mut good, mut refused) = (0, 0);
    for round in 0..300 {
        for (method, path, body) in bodies(&id, &lease) {
            for (content_type, plain) in [
                ("application/json", body.to_string().into_bytes()),
                ("application/msgpack", rmp_serde::to_vec_named(&body).unwrap()),
            ] {
                let sent = if round == 0 { plain } else { mutate(&mut dice, &plain) };
                let answer = server
                    .send_bytes(method.clone(), &path, &[("content-type", content_type)], sent.clone())
                    .await;
                if answer.status.is_success() {
                    good += 1;
                } else {
                    assert!(
                        answer.status.is_client_error(),
                        "{path}: {:?}: {}",
                        String::from_utf8_lossy(&sent),
                        answer.json()
                    );
                    answer.code();
                    refused += 1;
                }
            }
        }
    }
    assert!(good > 100 && refused > 1_000, "{good} {refused}");
    // The result of it all is readable.
    for accept in ["application/json", "application/msgpack", "application/x-ndjson"] {
        let path = "/v1/queues/jobs/items?limit=1000&fields=payload,state_blob,metadata,parameters";
        let answer = server.send_bytes(Method::GET, path, &[("accept", accept)], "").await;
        assert_eq!(answer.status.as_u16(), 200, "{accept}");
    }
    server
        .client()
        .receive("jobs", &towline_api::ReceiveRequest { max: Some(10_000), ..Default::default() })
        .await
        .unwrap();
}

/// Thousands of requests, without a disk sync for each.
fn towline_embedded_interval() -> towline_embedded::Durability {
    towline_embedded::Durability::Interval(std::time::Duration::from_millis(50))
}

#[tokio::test(flavor = "multi_thread")]
async fn mutated_paths_get_proper_responses() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({})).await;
    let id = server.submit("jobs", json!([{}])).await.remove(0);
    let mut dice = Dice(11);
    let paths = [
        format!("/v1/items/{id}"),
        format!("/v1/items/{id}/wait?timeout=1ms"),
        "/v1/queues/jobs".to_owned(),
        "/v1/queues?limit=5&cursor=a".to_owned(),
        "/v1/queues/jobs/items?state=pending&limit=5&cursor=0&tag=a=b&fields=payload&created_from=2020-01-01T00:00:00Z".to_owned(),
        "/v1/queues/jobs/counts".to_owned(),
    ];
    for _ in 0..200 {
        for path in &paths {
            let mut bytes: Vec<u8> = path.bytes().skip(1).collect();
            for _ in 0..=dice.roll(3) {
                let at = dice.roll(bytes.len());
                match dice.roll(3) {
                    0 => bytes[at] = b"%&=?/.~+-_aZ09"[dice.roll(14)],
                    1 => drop(bytes.splice(at..at, format!("%{:02X}", dice.roll(256)).into_bytes())),
                    _ => drop(bytes.remove(at)),
                }
                if bytes.is_empty() {
                    bytes.push(b'x');
                }
            }
            let path = format!("/{}", String::from_utf8(bytes).unwrap());
            // A mutated timeout may be long.
            if path.contains("wait") && !path.ends_with("timeout=1ms") {
                continue;
            }
            let answer = server.get(&path).await;
            if !answer.status.is_success() {
                assert!(answer.status.is_client_error(), "{path}: {}", answer.json());
                answer.code();
            }
        }
    }
}
