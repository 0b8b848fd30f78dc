//! An example for the body of every request, and for the answers of the main routes.

use super::{JSON, json as json_content, request_body};
use serde_json::{Value, json};
use utoipa::openapi::path::Operation;
use utoipa::openapi::{OpenApi, RefOr};

const LEASE: &str = "2122d199fa6487ac01a33a62883e7a7b";
const ITEM: &str = "01a1dfc8-fd66-7000-8000-000754550388";
const WRITER: &str = "5c0ffee0123456789abcdef012345678";
const CHAIN: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// `None`: the body is bytes, or the example is missing.
fn example(operation: &str) -> Option<Value> {
    Some(match operation {
        "create_token" => json!({"name": "worker", "scopes": ["queue:jobs:receive"], "expires_in": "90d"}),
        "put_queue" | "apply_queue" => {
            json!({"schema": {"inputs": ["raw"], "input_params": ["level?"]}, "policy": {"max_retries": 5}})
        }
        "change_queue" => json!({"max_retries": 10, "failed_ttl": null}),
        "submit_items" => {
            json!({"items": [{"params": {"n": 1}, "payload_text": "hello", "idempotency_key": "order-7"}]})
        }
        "receive_items" => json!({"max": 10, "wait": "5s"}),
        "settle_items" => {
            json!({"actions": [{"verb": "commit", "id": ITEM, "lease": LEASE, "output_params": {"quality": 0.9}}]})
        }
        "settle_item" => json!({"lease": LEASE, "output_params": {"quality": 0.9}}),
        "cancel_item" | "cancel_group" | "run_bulk_action" => json!({"reason": "no longer needed"}),
        "put_schedule" | "apply_schedule" => {
            json!({"queue": "jobs", "cron": "0 8 * * 1-5", "time_zone": "Europe/Berlin", "item": {"params": {"n": 1}}})
        }
        "pause_item" => json!({"lease": LEASE}),
        "set_record" => json!({"value": "green", "ttl": "30d"}),
        "increment_record" => json!({"by": 3, "once": "delivery 17", "ttl": "1d"}),
        "act_on_records" => {
            json!({"actions": [{"verb": "set", "key": "colour", "value": "green"}, {"verb": "get", "key": "size"}]})
        }
        "publish" => json!({"message": "something has changed"}),
        "create_buffer" | "copy_buffer" => json!({"tags": {"project": "heart"}, "ttl": "30d"}),
        "begin_buffer" | "touch_buffer" => json!({"writer": WRITER}),
        "finish_buffer" => json!({"writer": WRITER, "chunks": 0, "bytes": 0, "chain": CHAIN}),
        "fail_buffer" => json!({"writer": WRITER, "reason": "the scanner is off"}),
        "sign_put_chunk" => json!({"writer": WRITER, "length": 4096, "hash": CHAIN, "chain": CHAIN}),
        "sign_get_chunk" => json!({"expires_in": "15m"}),
        "put_codespec" => {
            json!({"codespec": {"command": ["sh", "-c", "sort $IN_PIPE > $OUT_PIPE"], "buffers": {"inputs": ["in"], "outputs": ["out"]}}})
        }
        "create_run" => json!({"codespec": "sort", "buffers": {"in": ITEM}, "timeout": "1h"}),
        "cancel_run" => json!({"reason": "no longer needed"}),
        "create_run_log" => json!({"lease": LEASE}),
        "put_service" => json!({"codespec": "resizer", "replicas": 2, "queues": {"requests": "images"}}),
        "scale_service" => json!({"replicas": {"min": 1, "max": 8, "per_replica": 100}}),
        "put_trigger" => {
            json!({"codespec": "sort", "input_queue": "names", "concurrency": 4, "output_queues": [{"queue": "sorted", "mapping": {"data": "out"}}]})
        }
        "scale_trigger" => json!({"concurrency": 8}),
        "beat_node" => {
            json!({"instance": "5c0ffee0", "pool": "default", "runner": "process", "slots": 16, "holds": [ITEM], "version": "0.1.0"})
        }
        "adopt_chunk" => json!({"writer": WRITER}),
        _ => return None,
    })
}

/// The status of an answer, and its body.
fn answer(operation: &str) -> Option<(&'static str, Value)> {
    Some(match operation {
        "submit_items" => ("201", json!({"id": ITEM, "created": true})),
        "receive_items" => (
            "200",
            json!({
                "status": "open",
                "items": [{
                    "id": ITEM, "lease": LEASE, "queue": "jobs", "attempt": 1, "retries": 0, "deliveries": 1,
                    "transitions": 1, "lapses": 0, "priority": 0, "created_at": "2026-11-15T15:17:33.670Z",
                    "ready_at": "2026-11-15T15:17:33.670Z", "lease_expires_at": "2026-11-15T15:22:33.734Z",
                    "inputs": {}, "outputs": {}, "params": {"n": 1}, "tags": {"team": "mri"}, "payload": "aGVsbG8="
                }]
            }),
        ),
        "settle_items" => ("200", json!({"results": [{"id": ITEM, "state": "completed"}]})),
        "show_item" => (
            "200",
            json!({
                "id": ITEM, "queue": "jobs", "state": "completed", "priority": 0, "attempt": 1, "retries": 0,
                "retries_left": 3, "deliveries": 1, "transitions": 2, "lapses": 0,
                "created_at": "2026-11-15T15:17:33.670Z", "ready_at": "2026-11-15T15:17:33.670Z",
                "finished_at": "2026-11-15T15:17:34.018Z", "remove_at": "2026-11-22T15:17:34.018Z", "tags": {},
                "inputs": {}, "params": {"n": 1}, "outputs": {}, "output_params": {"quality": 0.9}, "errors": []
            }),
        ),
        _ => return None,
    })
}

pub(super) fn add(openapi: &mut OpenApi) {
    for item in openapi.paths.paths.values_mut() {
        let operations = [&mut item.get, &mut item.put, &mut item.post, &mut item.patch];
        operations.into_iter().flatten().for_each(add_to);
    }
}

fn add_to(operation: &mut Operation) {
    let example = operation.operation_id.as_deref().and_then(example);
    if let Some(content) = request_body(operation) {
        content.example = example;
    }
    if let Some((status, example)) = operation.operation_id.as_deref().and_then(answer)
        && let Some(RefOr::T(response)) = operation.responses.responses.get_mut(status)
        && let Some(content) = json_content(response.content.get_mut(JSON))
    {
        content.example = Some(example);
    }
}
