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
            let described = ["application/json", "application/octet-stream"]
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
