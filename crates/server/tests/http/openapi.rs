//! The OpenAPI description: it matches its golden file and is consistent.
//!
//! `TOWLINE_BLESS=1` rewrites the golden file.

use crate::test_server::TestServer;
use serde_json::Value;
use std::collections::HashSet;
use std::path::Path;
use towline_server::openapi;

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/http/golden/openapi.json");
const METHODS: [&str; 5] = ["get", "put", "post", "patch", "delete"];

fn description() -> Value {
    serde_json::to_value(openapi()).unwrap()
}

fn operations(description: &Value) -> Vec<(&String, &String, &Value)> {
    let mut all = Vec::new();
    for (path, methods) in description["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            assert!(METHODS.contains(&method.as_str()), "{method} {path}");
            all.push((method, path, operation));
        }
    }
    all
}

#[test]
fn the_description_matches_the_golden_file() {
    let now = openapi().to_pretty_json().unwrap() + "\n";
    if std::env::var_os("TOWLINE_BLESS").is_some() {
        std::fs::create_dir_all(Path::new(GOLDEN).parent().unwrap()).unwrap();
        std::fs::write(GOLDEN, &now).unwrap();
    }
    let golden = std::fs::read_to_string(GOLDEN).unwrap();
    assert!(
        golden == now,
        "the description has changed; if this is intended, run the tests with TOWLINE_BLESS=1"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_description_is_served() {
    let server = TestServer::start().await;
    let answer = server.get("/v1/openapi.json").await;
    assert_eq!(answer.headers["content-type"], "application/json");
    assert_eq!(answer.success(), description());
}

#[test]
fn every_operation_has_a_unique_id_and_lists_its_responses() {
    let description = description();
    assert!(description["openapi"].as_str().unwrap().starts_with("3.1."));
    assert!(description["info"]["title"].is_string() && description["info"]["version"].is_string());
    let mut names = HashSet::new();
    for (method, path, operation) in operations(&description) {
        let name = operation["operationId"].as_str().unwrap();
        assert!(names.insert(name), "{name} is used twice");
        let detail = operation["summary"].as_str().unwrap_or_default();
        assert!(!detail.is_empty(), "{method} {path} is not described");
        let responses = operation["responses"].as_object().unwrap();
        assert!(responses.contains_key("200") || responses.contains_key("204"), "{method} {path}");
        for status in ["400", "401", "403", "405", "429", "500", "503", "507"] {
            assert!(responses.contains_key(status), "{method} {path}: {status}");
        }
        if operation.get("requestBody").is_some() {
            assert!(
                ["408", "413", "415"].iter().all(|status| responses.contains_key(*status)),
                "{method} {path}"
            );
            let content = &operation["requestBody"]["content"];
            let described = ["application/json", "application/octet-stream", "application/x-ndjson"]
                .iter()
                .any(|format| content[format]["schema"].is_object());
            assert!(described, "{method} {path}");
        }
        for (status, response) in responses {
            assert!(response["description"].is_string(), "{method} {path}: {status}");
            if status.as_str() >= "400" {
                let schema = &response["content"]["application/problem+json"]["schema"]["$ref"];
                assert_eq!(schema, "#/components/schemas/Problem", "{method} {path}: {status}");
            }
        }
    }
    assert!(names.len() >= 42, "{names:?}");
}

#[test]
fn answers_have_null_only_where_a_server_answers_null() {
    let description = description();
    let schemas = &description["components"]["schemas"];
    let is_nullable =
        |schema: &str, field: &str| schemas[schema]["properties"][field].to_string().contains("\"null\"");
    let is_required = |schema: &str, field: &str| {
        schemas[schema]["required"].as_array().unwrap().iter().any(|name| name == field)
    };
    for (schema, field) in [
        ("ItemPage", "next"),
        ("QueuePage", "next"),
        ("BulkResult", "next"),
        ("ItemShown", "finished_at"),
        ("ScheduleShown", "next_at"),
    ] {
        assert!(is_nullable(schema, field) && is_required(schema, field), "{schema}.{field}");
    }
    for (schema, field) in [
        ("ItemShown", "failure"),
        ("ItemShown", "expires_at"),
        ("ReceivedItem", "group"),
        ("EventShown", "state"),
        ("QueueShown", "since"),
        ("TokenShown", "expires_at"),
        ("BufferShown", "reason"),
    ] {
        assert!(!is_nullable(schema, field) && !is_required(schema, field), "{schema}.{field}");
    }
    for field in ["queues", "items", "schedules", "records", "tokens"] {
        assert!(is_required("TransferSummary", field), "{field}");
    }
    assert!(is_nullable("PolicyBody", "depth_limit"), "null removes a limit");
}

#[test]
fn a_field_that_a_request_must_have_is_required_and_has_no_default() {
    let description = description();
    for (schema, field) in [("PutSchedule", "queue"), ("NewToken", "name"), ("NewToken", "scopes")] {
        let schema = &description["components"]["schemas"][schema];
        assert!(schema["required"].as_array().unwrap().contains(&field.into()), "{schema}");
        assert!(schema["properties"][field].get("default").is_none(), "{schema}");
    }
}

#[test]
fn constrained_text_has_its_names_or_its_pattern() {
    let description = description();
    let schemas = &description["components"]["schemas"];
    for (schema, field) in [
        ("PutSchedule", "overlap"),
        ("NewItem", "unique"),
        ("QueueShown", "state"),
        ("Problem", "code"),
        ("ErrorBody", "code"),
        ("ScheduleErrorShown", "code"),
        ("ItemError", "kind"),
        ("EventShown", "state"),
        ("Health", "status"),
        ("Readiness", "status"),
    ] {
        assert!(schemas[schema]["properties"][field]["enum"].is_array(), "{schema}.{field}");
    }
    for (schema, field) in [
        ("Action", "lease"),
        ("SignPut", "hash"),
        ("PutSchedule", "queue"),
        ("Action", "queue"),
        ("HandOffBody", "queue"),
        ("ReceivedItem", "queue"),
        ("EventShown", "queue"),
        ("OriginShown", "queue"),
        ("PolicyBody", "dead_letter_queue"),
    ] {
        assert!(schemas[schema]["properties"][field]["pattern"].is_string(), "{schema}.{field}");
    }
    for (method, path, operation) in operations(&description) {
        for parameter in operation.get("parameters").and_then(Value::as_array).into_iter().flatten() {
            if ["failure", "view", "by", "action"].iter().any(|name| parameter["name"] == *name) {
                assert!(parameter["schema"]["enum"].is_array(), "{method} {path}: {parameter}");
            }
            if parameter["in"] == "path"
                && ["queue", "schedule", "topic"].iter().any(|name| parameter["name"] == *name)
            {
                assert!(parameter["schema"]["pattern"].is_string(), "{method} {path}");
            }
        }
    }
}

#[test]
fn every_parameter_of_a_path_is_declared() {
    for (method, path, operation) in operations(&description()) {
        let parameters = operation.get("parameters").and_then(Value::as_array).cloned().unwrap_or_default();
        let mut seen = HashSet::new();
        let mut declared: Vec<String> = Vec::new();
        for parameter in &parameters {
            let (name, place) = (parameter["name"].as_str().unwrap(), parameter["in"].as_str().unwrap());
            assert!(seen.insert((name, place)), "{method} {path}: {name} twice");
            assert!(parameter["schema"].is_object(), "{method} {path}: {name}");
            if place == "path" {
                assert_eq!(parameter["required"], true, "{method} {path}: {name}");
                declared.push(name.to_owned());
            }
        }
        let mut named: Vec<String> =
            path.split('{').skip(1).map(|rest| rest.split('}').next().unwrap().to_owned()).collect();
        declared.sort();
        named.sort();
        assert_eq!(declared, named, "{method} {path}");
    }
}

#[test]
fn every_reference_resolves_and_every_schema_is_used() {
    fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
        match value {
            Value::Object(object) => {
                found.extend(object.get("$ref").and_then(Value::as_str));
                object.values().for_each(|value| references(value, found));
            }
            Value::Array(array) => array.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }
    let description = description();
    let mut found = Vec::new();
    references(&description, &mut found);
    for reference in &found {
        let place = reference.strip_prefix('#').unwrap();
        assert!(description.pointer(place).is_some(), "{reference} does not resolve");
    }
    for name in description["components"]["schemas"].as_object().unwrap().keys() {
        assert!(found.contains(&format!("#/components/schemas/{name}").as_str()), "{name} is used nowhere");
    }
}

#[test]
fn every_json_body_can_be_messagepack_and_every_request_has_an_example() {
    let description = description();
    for (method, path, operation) in operations(&description) {
        let bodies = operation["responses"].as_object().unwrap().values().chain(operation.get("requestBody"));
        for content in
            bodies.map(|body| &body["content"]).filter(|content| content["application/json"].is_object())
        {
            let [json, packed] =
                ["application/json", "application/msgpack"].map(|format| &content[format]["schema"]);
            assert_eq!(json, packed, "{method} {path}");
        }
        if let Some(content) = operation["requestBody"]["content"].get("application/json") {
            assert!(content["example"].is_object(), "{method} {path} has no example");
        }
    }
}

#[test]
fn the_main_routes_have_examples_of_their_answers() {
    fn reads<T: serde::de::DeserializeOwned + serde::Serialize>(example: &Value) {
        let read: T = serde_json::from_value(example.clone()).unwrap();
        assert_eq!(&serde_json::to_value(read).unwrap(), example);
    }
    let description = description();
    let example = |method: &str, path: &str, status: &str| {
        description["paths"][path][method]["responses"][status]["content"]["application/json"]["example"]
            .clone()
    };
    reads::<towline_api::Submitted>(&example("post", "/v1/queues/{queue}/items", "201"));
    reads::<towline_api::ReceiveAnswer>(&example("post", "/v1/queues/{queue}/receive", "200"));
    reads::<towline_api::SettleAnswer>(&example("post", "/v1/settle", "200"));
    reads::<towline_api::ItemShown>(&example("get", "/v1/items/{id}", "200"));
}

/// The examples are read as the types of their routes.
#[tokio::test(flavor = "multi_thread")]
async fn every_example_is_a_well_formed_request() {
    let server = TestServer::start().await;
    for (method, path, operation) in operations(&description()) {
        let Some(example) = operation["requestBody"]["content"]["application/json"].get("example") else {
            continue;
        };
        let path = path
            .replace("{queue}", "jobs")
            .replace("{verb}", "commit")
            .replace("{action}", "cancel")
            .replace("{n}", "0")
            .replace("{id}", "01a1dfc8-fd66-7000-8000-000754550388");
        // A name of its own for each, so that the examples do not meet.
        let name = operation["operationId"].as_str().unwrap();
        let path =
            ["{schedule}", "{topic}", "{key}", "{group}", "{codespec}", "{service}", "{trigger}", "{node}"]
                .iter()
                .fold(path, |path, parameter| path.replace(parameter, name));
        let method = method.to_uppercase().parse().unwrap();
        let answer = server.call(method, &path, Some(example.clone())).await;
        if !answer.status.is_success() {
            let code = answer.code();
            assert!(!["malformed_body", "too_large"].contains(&code), "{path}: {}", answer.json());
            // A bulk action needs a filter; it is not part of the body.
            assert!(code != "invalid" || path.ends_with("/items/cancel"), "{path}: {}", answer.json());
        }
    }
}

#[test]
fn schemas_say_which_names_and_shapes_are_possible() {
    fn null_defaults(value: &Value) -> usize {
        match value {
            Value::Object(object) => {
                let own = usize::from(object.get("default").is_some_and(Value::is_null));
                own + object.values().map(null_defaults).sum::<usize>()
            }
            Value::Array(array) => array.iter().map(null_defaults).sum(),
            _ => 0,
        }
    }
    let description = description();
    let schemas = &description["components"]["schemas"];
    assert_eq!(null_defaults(schemas), 0);
    let state = &schemas["ItemShown"]["properties"]["state"];
    assert!(state["enum"].as_array().unwrap().contains(&Value::from("waiting")), "{state}");
    assert_eq!(schemas["QueueShown"]["properties"]["state"]["enum"].as_array().unwrap().len(), 3);
    for (result, required) in [("Submitted", ["id", "created"]), ("Settled", ["id", "state"])] {
        let shapes = schemas[result]["oneOf"].as_array().unwrap();
        assert_eq!(shapes[0]["required"], Value::from(required.to_vec()));
        assert!(shapes[0]["properties"].get("error").is_none());
        assert_eq!(shapes[1]["required"], Value::from(vec!["error"]));
    }
    let submit = &description["paths"]["/v1/queues/{queue}/items"]["post"]["requestBody"]["content"];
    assert_eq!(submit["application/json"]["schema"]["oneOf"].as_array().unwrap().len(), 2);
    assert!(schemas["SingleItem"]["properties"]["wait"].is_object());
}

#[test]
fn a_duration_is_a_string_or_a_number() {
    let description = description();
    let schemas = &description["components"]["schemas"];
    let kinds = |schema: &Value| -> Vec<String> {
        schema["oneOf"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["type"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(kinds(&schemas["Duration"]), ["string", "integer"]);
    assert_eq!(kinds(&schemas["Time"]), ["string", "integer"]);
    for (schema, field) in [
        ("ReceiveRequest", "wait"),
        ("PolicyBody", "visibility_timeout"),
        ("PolicyBody", "failed_ttl"),
        ("NewItem", "delay"),
        ("Action", "delay"),
    ] {
        let text = schemas[schema]["properties"][field].to_string();
        assert!(text.contains("#/components/schemas/Duration"), "{schema}.{field}: {text}");
    }
    // Unknown fields are rejected, and the description says so.
    for schema in
        ["NewItem", "ReceiveRequest", "Action", "PolicyBody", "PutQueue", "SubmitRequest", "SettleRequest"]
    {
        assert_eq!(schemas[schema]["additionalProperties"], false, "{schema}");
    }
}
