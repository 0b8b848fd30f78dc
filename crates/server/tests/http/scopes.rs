//! Every route in the OpenAPI description enforces the scope that it declares.

use crate::test_server::{TestResponse, TestServer};
use http::Method;
use serde_json::{Value, json};

/// All scopes except the required one.
fn all_but(requirement: &str, queue: &str) -> Vec<Vec<String>> {
    let right = requirement.rsplit(':').next().unwrap();
    let other_scopes: Vec<String> = ["submit", "receive", "read"]
        .into_iter()
        .filter(|other| *other != right)
        .map(|other| format!("queue:{queue}:{other}"))
        .collect();
    let with = |more: &[&str]| {
        let more = more.iter().map(|scope| (*scope).to_owned());
        other_scopes.iter().cloned().chain(more).collect::<Vec<String>>()
    };
    let all = [
        "buffer:*",
        "kv:*:*",
        "topic:*:*",
        "group:*:admin",
        "metrics:read",
        "compute:admin",
        "queue:*:admin",
    ];
    // The other scopes on everything, and a scope with the right on something else.
    let without = |resource: &str, more: &[&str]| {
        let others = all.iter().filter(|scope| !scope.starts_with(resource));
        others.chain(more).map(|scope| (*scope).to_owned()).collect::<Vec<String>>()
    };
    match requirement {
        "any" | "kv:{key of each call}:<read|write>" => Vec::new(),
        "admin" => vec![without("none", &[])],
        "metrics:read" => vec![without("metrics", &[])],
        "compute:read" => vec![without("compute", &["compute:node"])],
        "compute:node" => vec![without("compute", &["compute:read"])],
        "compute:admin" => vec![without("compute", &["compute:read", "compute:node"])],
        "buffer:read" => vec![without("buffer", &["buffer:write", "buffer:delete"])],
        "buffer:write" => vec![without("buffer", &["buffer:read", "buffer:delete"])],
        "buffer:delete" => vec![without("buffer", &["buffer:read", "buffer:write"])],
        "buffer:read and buffer:write" => {
            vec![without("buffer", &["buffer:read"]), without("buffer", &["buffer:write"])]
        }
        "buffer:read or the lease of an item" => vec![without("buffer", &["buffer:write"])],
        "buffer:write or the lease of an item" => vec![without("buffer", &["buffer:read"])],
        "kv:{key}:read" | "kv:{prefix}:read" => vec![without("kv", &["kv:*:write", "kv:b:read"])],
        "kv:{key}:write" => vec![without("kv", &["kv:*:read", "kv:b:write"])],
        "topic:{topic}:publish" => vec![without("topic", &["topic:*:subscribe", "topic:old*:publish"])],
        "topic:{topic}:subscribe" => vec![without("topic", &["topic:*:publish", "topic:old*:subscribe"])],
        "group:{group}:read" => vec![with(&["group:other:admin", "buffer:*"])],
        "group:{group}:admin" => vec![with(&["group:*:read", "group:other:admin", "queue:*:read"])],
        _ => vec![with(&["queue:other:admin", "buffer:*", "compute:admin"]), vec!["buffer:*".to_owned()]],
    }
}

/// The smallest scope that meets the requirement.
fn enough(requirement: &str, queue: &str) -> Vec<String> {
    let parts = requirement.split(" or ").next().unwrap().split(':').collect::<Vec<_>>();
    let scope = match parts[..] {
        ["any"] => "queue:other:read".to_owned(),
        ["buffer", "read and buffer", _] => "buffer:*".to_owned(),
        ["queue", "*", right] => format!("queue:*:{right}"),
        ["queue", _, right] => format!("queue:{queue}:{right}"),
        ["group", _, right] => format!("group:batch*:{right}"),
        ["kv", "{key of each call}", _] => "queue:other:read".to_owned(),
        ["kv", "{prefix}", right] => format!("kv:*:{right}"),
        ["kv", _, right] => format!("kv:a/:{right}"),
        ["topic", _, right] => format!("topic:ne*:{right}"),
        _ => requirement.split(" or ").next().unwrap().to_owned(),
    };
    vec![scope]
}

struct Scene<'a> {
    server: &'a TestServer,
    method: Method,
    path: String,
    body: Option<Value>,
}

impl Scene<'_> {
    async fn call(&self, token: Option<&str>) -> TestResponse {
        let bearer = token.map(|token| format!("Bearer {token}"));
        let mut headers: Vec<(&str, &str)> = vec![("authorization", bearer.as_deref().unwrap_or(""))];
        if token.is_none() {
            headers.clear();
        }
        if self.body.is_some() {
            headers.push(("content-type", "application/json"));
        }
        let body = self.body.as_ref().map_or(String::new(), Value::to_string);
        self.server.send_as_is(self.method.clone(), &self.path, &headers, body).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_described_route_enforces_its_scope() {
    let server = TestServer::start_with_tokens(|_| {}).await;
    server.queue("other", json!({})).await;
    let description = serde_json::to_value(towline_server::openapi()).unwrap();
    let mut seen = 0;
    for (path, methods) in description["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let name = operation["operationId"].as_str().unwrap();
            let security =
                operation["security"].as_array().unwrap_or_else(|| panic!("{name} declares nothing"));
            let requirement = security[0].get("token").map(|scopes| scopes[0].as_str().unwrap());
            // A new queue for each route: some routes delete it.
            let queue = format!("q-{seen}");
            server.queue(&queue, json!({})).await;
            let item = server.submit(&queue, json!([{}])).await.remove(0);
            let id = match operation["tags"][0].as_str().unwrap() {
                "items" => item.clone(),
                "tokens" => server.token_for(&["queue:none:read"]).await.1,
                _ => server.buffer().await,
            };
            let schedule = json!({"queue": queue, "every": "1h"});
            if path.contains("{schedule}") {
                let path = format!("/v1/schedules/{queue}");
                server.call(Method::PUT, &path, Some(schedule.clone())).await.success();
            }
            let mut path = path.replace("{queue}", &queue).replace("{id}", &id).replace("{schedule}", &queue);
            path = path.replace("{n}", "0").replace("{verb}", "heartbeat").replace("{act}", "pause");
            path = path.replace("{key}", "a%2Fb").replace("{topic}", "news").replace("{group}", "batch%207");
            match name {
                "wait_for_item" => path += "?timeout=1ms",
                // Long enough for a complete request, short enough to end.
                "subscribe" => path += "?for=1ms",
                _ => {}
            }
            if name == "follow_events" {
                path += "?for=1ms&after=oldest";
            }
            let lease = "0".repeat(32);
            let body = operation.get("requestBody").map(|_| match name {
                "settle_items" => json!({"actions": [{"id": item, "verb": "heartbeat", "lease": lease}]}),
                "settle_item" => json!({"lease": lease}),
                "put_schedule" | "apply_schedule" => schedule.clone(),
                "set_record" => json!({"value": "1"}),
                "publish" => json!({"message": "hello"}),
                _ => json!({}),
            });
            let method = Method::from_bytes(method.to_ascii_uppercase().as_bytes()).unwrap();
            let scene = Scene { server: &server, method, path, body };
            check(&scene, name, requirement, &queue).await;
            seen += 1;
        }
    }
    assert!(seen >= 40, "{seen}");
}

async fn check(scene: &Scene<'_>, name: &str, requirement: Option<&str>, queue: &str) {
    let Some(requirement) = requirement else {
        let answer = scene.call(None).await;
        assert!(answer.status.is_success(), "{name} needs no token");
        return;
    };
    let answer = scene.call(None).await;
    assert_eq!(answer.code(), "unauthenticated", "{name}");
    assert_eq!(answer.headers["www-authenticate"], "Bearer realm=\"towline\"", "{name}");
    for scopes in all_but(requirement, queue) {
        let scopes: Vec<&str> = scopes.iter().map(String::as_str).collect();
        let answer = scene.call(Some(&scene.server.token_for(&scopes).await.0)).await;
        if answer.status.is_success() && name == "follow_events" {
            let body = String::from_utf8_lossy(&answer.body);
            assert!(!body.contains(queue), "{name} {scopes:?}: {body}");
            continue;
        }
        if answer.status.is_success() && requirement.contains("each item") {
            assert_eq!(answer.json()["results"][0]["error"]["code"], "item_not_found", "{name} {scopes:?}");
            continue;
        }
        // The response hides whether the item or schedule exists.
        let hidden = ["item", "schedule"]
            .into_iter()
            .find(|what| requirement.contains(&format!("queue of the {what}")));
        let puts = ["put_schedule", "apply_schedule"].contains(&name);
        let hidden = hidden.filter(|_| !puts && scopes.iter().any(|scope| scope.contains("other")));
        let code = hidden.map_or_else(|| "forbidden".to_owned(), |what| format!("{what}_not_found"));
        assert_eq!(answer.code(), code, "{name} {scopes:?}: {}", answer.json());
        if code == "forbidden" {
            assert!(answer.headers["www-authenticate"].to_str().unwrap().contains("insufficient_scope"));
        }
    }
    let scopes = enough(requirement, queue);
    let scopes: Vec<&str> = scopes.iter().map(String::as_str).collect();
    let answer = scene.call(Some(&scene.server.token_for(&scopes).await.0)).await;
    if !answer.status.is_success() {
        let code = answer.code();
        let refused =
            ["unauthenticated", "forbidden", "item_not_found", "schedule_not_found", "token_not_found"]
                .contains(&code);
        assert!(!refused, "{name} {scopes:?}: {}", answer.json());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_item_of_a_batch_is_authorized_and_hidden_items_are_not_found() {
    let server = TestServer::start_with_tokens(|_| {}).await;
    server.queue("mine", json!({})).await;
    server.queue("other", json!({})).await;
    let (mine, my_lease) = server.hold("mine").await;
    let (other, other_lease) = server.hold("other").await;
    let missing = "0199aa3d-98e9-7000-8000-0d81c4c5fb00";
    let worker = server.token_for(&["queue:mine:receive"]).await.0;
    let commit = |id: &str, lease: &str| json!({"id": id, "verb": "commit", "lease": lease});
    let actions = json!({"actions": [commit(&other, &other_lease), commit(&mine, &my_lease), commit(missing, &my_lease)]});
    let answer = server.post_as(&worker, "/v1/settle", actions).await.success();
    let error = |at: usize, id: &str| answer["results"][at]["error"].to_string().replace(id, "ID");
    assert_eq!(answer["results"][1]["state"], "completed", "{answer}");
    assert!(error(0, &other).contains("item_not_found"), "{answer}");
    assert_eq!(error(0, &other), error(2, missing));
    assert_eq!(server.item(&other).await["state"], "processing", "the item is unchanged");

    let alone =
        server.post_as(&worker, &format!("/v1/items/{other}/commit"), json!({"lease": other_lease})).await;
    let absent =
        server.post_as(&worker, &format!("/v1/items/{missing}/commit"), json!({"lease": other_lease})).await;
    let detail = |answer: &TestResponse, id: &str| answer.problem("item_not_found").replace(id, "ID");
    assert_eq!(detail(&alone, &other), detail(&absent, missing));
}

#[tokio::test(flavor = "multi_thread")]
async fn moving_items_needs_the_right_to_submit_to_the_target() {
    let server = TestServer::start_with_tokens(|_| {}).await;
    server.queue("mine", json!({})).await;
    server.queue("other", json!({})).await;
    let (id, lease) = server.hold("mine").await;
    let worker = server.token_for(&["queue:mine:admin"]).await.0;
    let retry = json!({"lease": lease, "queue": "other"});
    let moved = server.post_as(&worker, &format!("/v1/items/{id}/release"), retry.clone()).await;
    assert!(moved.problem("forbidden").contains("queue:other:submit"));
    let action = json!({"actions": [{"id": id, "verb": "release", "lease": lease, "queue": "other"}]});
    let moved = server.post_as(&worker, "/v1/settle", action).await.success();
    assert_eq!(moved["results"][0]["error"]["code"], "forbidden", "{moved}");
    let letters = json!({"policy": {"dead_letter_queue": "other"}});
    for (method, body) in [(Method::PUT, letters.clone()), (Method::PATCH, letters)] {
        let refused = server.call_as(&worker, method, "/v1/queues/mine", Some(body)).await;
        refused.problem("forbidden");
    }
    let both = server.token_for(&["queue:mine:admin", "queue:other:submit"]).await.0;
    server.post_as(&both, &format!("/v1/items/{id}/release"), retry).await.success();
    assert_eq!(server.item(&id).await["queue"], "other");
    let waiting = server.submit("mine", json!([{}])).await.remove(0);
    let all = "/v1/queues/mine/items/move?state=all&to=";
    for query in ["other", "other&dry_run=true"] {
        let moved = server.call_as(&worker, Method::POST, &format!("{all}{query}"), None).await;
        assert!(moved.problem("forbidden").contains("queue:other:submit"));
    }
    // The response hides whether the queue exists.
    server.call_as(&worker, Method::POST, &format!("{all}nowhere"), None).await.problem("forbidden");
    assert_eq!(server.item(&waiting).await["queue"], "mine");
    assert_eq!(server.call_as(&both, Method::POST, &format!("{all}other"), None).await.success()["done"], 1);
    assert_eq!(server.item(&waiting).await["queue"], "other");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schedule_needs_the_right_to_submit_to_its_queue() {
    let server = TestServer::start_with_tokens(|_| {}).await;
    server.queue("mine", json!({})).await;
    server.queue("other", json!({})).await;
    let mine = server.token_for(&["queue:mine:submit", "queue:mine:read"]).await.0;
    let every_hour = |queue: &str| Some(json!({"queue": queue, "every": "1h"}));
    let put = async |name: &str, queue: &str| {
        server.call_as(&mine, Method::PUT, &format!("/v1/schedules/{name}"), every_hour(queue)).await
    };
    put("a", "mine").await.success();
    assert!(put("b", "other").await.problem("forbidden").contains("queue:other:submit"));
    assert!(put("a", "other").await.problem("forbidden").contains("queue:other:submit"));
    // A schedule of another queue cannot be taken over.
    server.call(Method::PUT, "/v1/schedules/b", every_hour("other")).await.success();
    put("b", "mine").await.problem("forbidden");
    for (method, path) in [
        (Method::GET, "/v1/schedules/b"),
        (Method::DELETE, "/v1/schedules/b"),
        (Method::GET, "/v1/schedules/b/next"),
        (Method::POST, "/v1/schedules/b/run"),
    ] {
        server.call_as(&mine, method, path, None).await.problem("schedule_not_found");
    }
    let listed = server.call_as(&mine, Method::GET, "/v1/schedules", None).await.success();
    let names: Vec<&Value> =
        listed["schedules"].as_array().unwrap().iter().map(|schedule| &schedule["name"]).collect();
    assert_eq!(names, ["a"]);
    server.call_as(&mine, Method::POST, "/v1/schedules/a/run", None).await.success();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_queues_contains_the_readable_queues() {
    let server = TestServer::start_with_tokens(|_| {}).await;
    for queue in ["a-1", "a-2", "b-1"] {
        server.queue(queue, json!({})).await;
    }
    for (scopes, expected) in [
        (&["queue:a-*:read"][..], &["a-1", "a-2"][..]),
        (&["queue:b-1:admin"], &["b-1"]),
        (&["queue:*:submit"], &[]),
        (&["admin"], &["a-1", "a-2", "b-1"]),
    ] {
        let token = server.token_for(scopes).await.0;
        let page = server.call_as(&token, Method::GET, "/v1/queues", None).await.success();
        let names: Vec<&str> =
            page["queues"].as_array().unwrap().iter().map(|queue| queue["name"].as_str().unwrap()).collect();
        assert_eq!(names, expected, "{scopes:?}");
    }
    // The check uses the decoded name, like the route.
    let token = server.token_for(&["queue:*41:read"]).await.0;
    server.queue("xA", json!({})).await;
    server.call_as(&token, Method::GET, "/v1/queues/x%41", None).await.problem("forbidden");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_holder_of_a_lease_uses_the_buffers_of_its_item_without_a_scope() {
    let server = TestServer::start_with_tokens(|_| {}).await;
    let schema = json!({"inputs": ["raw"], "outputs": ["out"]});
    server.put("/v1/queues/jobs", json!({"schema": schema})).await.success();
    let (input, foreign) = (server.buffer().await, server.buffer().await);
    server.submit("jobs", json!([{"inputs": {"raw": input}}])).await;
    let token = server.token_for(&["queue:jobs:receive"]).await.0;
    let received =
        server.post_as(&token, "/v1/queues/jobs/receive", json!({"create_output_buffers": true})).await;
    let received = received.success()["items"][0].clone();
    let text = |name: &str| received[name].as_str().unwrap().to_owned();
    let (id, lease) = (text("id"), text("lease"));
    let output = received["outputs"]["out"].as_str().unwrap_or_else(|| panic!("{received}")).to_owned();
    let call = async |method: Method, path: &str, lease: &str, body: &'static str| {
        let bearer = format!("Bearer {token}");
        let mut headers =
            vec![("authorization", bearer.as_str()), ("content-type", "application/octet-stream")];
        headers.extend((!lease.is_empty()).then_some(("towline-lease", lease)));
        server.send_as_is(method, path, &headers, body).await
    };
    let content = |buffer: &str| format!("/v1/buffers/{buffer}/content");
    let own = format!("{id} {lease}");
    assert_eq!(call(Method::GET, &content(&input), &own, "").await.body, "data");
    call(Method::PUT, &content(&output), &own, "result").await.success();
    assert_eq!(call(Method::GET, &content(&output), &own, "").await.body, "result");
    // Nothing else: no other buffer, no writing of an input, no deleting, no call without the lease.
    let other_lease = format!("{id} {}", "0".repeat(32));
    for (method, buffer, lease) in [
        (Method::GET, &foreign, own.as_str()),
        (Method::PUT, &input, &own),
        (Method::GET, &input, &other_lease),
        (Method::GET, &input, ""),
    ] {
        let detail = call(method, &content(buffer), lease, "").await.problem("forbidden");
        assert!(detail.contains("the lease of an item"), "{detail}");
    }
    call(Method::DELETE, &format!("/v1/buffers/{output}"), &own, "").await.problem("forbidden");
    call(Method::GET, "/v1/buffers", &own, "").await.problem("forbidden");
    call(Method::GET, &content(&input), "nonsense", "").await.problem("invalid");
    server.post_as(&token, &format!("/v1/items/{id}/commit"), json!({"lease": lease})).await.success();
    call(Method::GET, &content(&input), &own, "").await.problem("forbidden");
}

#[tokio::test(flavor = "multi_thread")]
async fn submitting_into_a_group_needs_a_right_on_the_group() {
    let server = TestServer::start_with_tokens(|_| {}).await;
    server.queue("jobs", json!({})).await;
    let items = json!({"items": [{"group": "mine-1"}, {"group": "other"}, {}]});
    for (scopes, allowed) in [
        (&["queue:jobs:submit", "group:mine-*:admin"][..], [true, false, true]),
        (&["queue:jobs:submit", "group:*:read"], [false, false, true]),
        (&["queue:*:submit"], [true, true, true]),
    ] {
        let token = server.token_for(scopes).await.0;
        let answer = server.post_as(&token, "/v1/queues/jobs/items", items.clone()).await.success();
        for (at, allowed) in allowed.into_iter().enumerate() {
            let code = &answer["items"][at]["error"]["code"];
            assert_eq!(*code, if allowed { Value::Null } else { json!("forbidden") }, "{scopes:?} {answer}");
        }
    }
    let token = server.token_for(&["queue:jobs:submit"]).await.0;
    let schedule = json!({"queue": "jobs", "every": "1h", "item": {"group": "other"}});
    let put = server.call_as(&token, Method::PUT, "/v1/schedules/hourly", Some(schedule)).await;
    assert!(put.problem("forbidden").contains("group:other:admin"));
    let own = server.token_for(&["group:mine-*:admin"]).await.0;
    let shown = server.call_as(&own, Method::GET, "/v1/groups/mine-1", None).await.success();
    assert_eq!(shown["group"], "mine-1", "{shown}");
    server.call_as(&own, Method::POST, "/v1/groups/other/cancel", None).await.problem("forbidden");
    let cancelled = server.call_as(&own, Method::POST, "/v1/groups/mine-1/cancel", None).await.success();
    assert_eq!(cancelled["done"], 2, "{cancelled}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redrive_needs_the_right_to_submit_to_the_origin() {
    let server = TestServer::start_with_tokens(|_| {}).await;
    server.queue("dead", json!({})).await;
    server.queue("jobs", json!({"dead_letter_queue": "dead"})).await;
    let mut ids = Vec::new();
    for _ in 0..2 {
        let (id, lease) = server.hold("jobs").await;
        server.act(&id, "fail", json!({"lease": lease})).await.success();
        assert_eq!(server.item(&id).await["queue"], "dead");
        ids.push(id);
    }
    let admin = server.token_for(&["queue:dead:admin"]).await.0;
    let one = format!("/v1/items/{}/redrive", ids[0]);
    let many = "/v1/queues/dead/items/redrive?state=all";
    let refused = server.call_as(&admin, Method::POST, &one, None).await;
    assert!(refused.problem("forbidden").contains("queue:jobs:submit"));
    let bulk = server.call_as(&admin, Method::POST, many, None).await.success();
    assert_eq!((&bulk["done"], &bulk["left"]["forbidden"]), (&json!(0), &json!(2)), "{bulk}");
    let both = server.token_for(&["queue:dead:admin", "queue:jobs:submit"]).await.0;
    server.call_as(&both, Method::POST, &one, None).await.success();
    assert_eq!(server.call_as(&both, Method::POST, many, None).await.success()["done"], 1);
    assert_eq!(server.counts("jobs").await["pending"], 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_hides_an_item_that_moved_to_a_queue_of_others() {
    let server = TestServer::start_with_tokens(|_| {}).await;
    server.queue("secret", json!({})).await;
    server.queue("jobs", json!({"dead_letter_queue": "secret"})).await;
    let (id, lease) = server.hold("jobs").await;
    let reader = server.token_for(&["queue:jobs:read"]).await.0;
    let path = format!("/v1/items/{id}/wait?timeout=5m");
    let wait = server.call_as(&reader, Method::GET, &path, None);
    let fail = async { server.act(&id, "fail", json!({"lease": lease})).await.success() };
    let (waited, _) = tokio::join!(wait, fail);
    waited.problem("item_not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_call_about_a_record_needs_a_right_on_its_key() {
    let server = TestServer::start_with_tokens(|_| {}).await;
    for key in ["a%2F1", "b%2F1"] {
        server.put(&format!("/v1/kv/{key}"), json!({"value": "1"})).await.success();
    }
    let (token, _) = server.token_for(&["kv:a/:read", "kv:b/:write"]).await;
    let calls = json!([
        {"verb": "get", "key": "a/1"},
        {"verb": "get", "key": "b/1"},
        {"verb": "set", "key": "a/1", "value": "2"},
        {"verb": "increment", "key": "a/1"},
        {"verb": "delete", "key": "a/1"},
        {"verb": "set", "key": "b/1", "value": "2"},
        {"verb": "delete", "key": "c"},
    ]);
    let answer = server.post_as(&token, "/v1/kv", json!({ "actions": calls })).await.success();
    let code = |result: &Value| result["error"]["code"].as_str().unwrap_or("ok").to_owned();
    let codes: Vec<String> = answer["results"].as_array().unwrap().iter().map(code).collect();
    let no = "forbidden";
    assert_eq!(codes, ["ok", no, no, no, no, "ok", no]);
    assert_eq!(server.get("/v1/kv/a%2F1").await.success()["value"], "1");
    assert_eq!(server.get("/v1/kv/b%2F1").await.success()["value"], "2");
}
