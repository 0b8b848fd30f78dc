//! `docs/http.md` is executed: the test sends every request in it and compares the responses.

use crate::test_server::TestServer;
use http::Method;
use serde_json::Value;
use std::collections::BTreeMap;

/// Maps ids and leases in the document to those of this run.
type Names = BTreeMap<String, String>;

fn is_made_by_the_server(text: &str) -> bool {
    let plain = text.replace('-', "");
    plain.len() == 32 && plain.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn translate(text: &str, names: &Names) -> String {
    names.iter().fold(text.to_owned(), |text, (documented, real)| text.replace(documented, real))
}

/// Compares values. Ids and leases are added to `names`.
fn agree(documented: &Value, real: &Value, names: &mut Names) -> bool {
    match (documented, real) {
        (Value::Object(documented), Value::Object(real)) => {
            documented.len() == real.len()
                && documented.iter().all(|(name, value)| match real.get(name) {
                    Some(other) if name.ends_with("_at") || name == "since" => {
                        value.is_null() == other.is_null()
                    }
                    Some(other) => agree(value, other, names),
                    None => false,
                })
        }
        (Value::Array(documented), Value::Array(real)) => {
            documented.len() == real.len()
                && documented.iter().zip(real).all(|(one, other)| agree(one, other, names))
        }
        (Value::String(documented), Value::String(real)) if is_made_by_the_server(documented) => {
            names.entry(documented.clone()).or_insert_with(|| real.clone()) == real
        }
        (Value::String(documented), Value::String(real)) => translate(documented, names) == *real,
        _ => documented == real,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_session_in_the_http_docs_runs() {
    let document = include_str!("../../../../docs/http.md");
    let server = TestServer::start().await;
    let mut names = Names::new();
    let blocks: Vec<&str> =
        document.split("```http\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert!(blocks.len() > 25, "{}", blocks.len());
    for block in blocks {
        let (request, answer) = block.split_once("\n\n").unwrap();
        let (line, body) = request.split_once('\n').unwrap_or((request, ""));
        let (method, path) = line.split_once(' ').unwrap();
        let (status, printed) = answer.split_once('\n').unwrap();
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let headers: &[(&str, &str)] =
            if body.is_empty() { &[] } else { &[("content-type", "application/json")] };
        let path = translate(path, &names);
        let got = server.send_bytes(method, &path, headers, translate(body, &names)).await;
        assert_eq!(got.status.as_str(), status, "{line}: {}", String::from_utf8_lossy(&got.body));
        if printed.is_empty() {
            assert!(got.body.is_empty(), "{line}");
            continue;
        }
        let printed: Value =
            serde_json::from_str(printed).unwrap_or_else(|error| panic!("{line}: {error}: {printed}"));
        assert!(agree(&printed, &got.json(), &mut names), "{line}\nprinted: {printed}\ngot: {}", got.json());
    }
}
