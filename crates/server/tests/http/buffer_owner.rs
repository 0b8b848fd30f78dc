//! The place for buffers belongs to one store: a server of another store does not start on it.

use crate::test_server::TestServer;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::Duration;
use towline_domain::Millis;
use towline_server::{Server, ServerError, Settings};

fn at(settings: &mut Settings, place: &Path) {
    settings.buffers.location = Some(place.to_str().unwrap().parse().unwrap());
}

async fn open(
    data: PathBuf,
    place: &Path,
    change: impl FnOnce(&mut Settings),
) -> Result<Server, ServerError> {
    let mut settings = Settings { listen: "127.0.0.1:0".parse().unwrap(), data, ..Settings::default() };
    at(&mut settings, place);
    // It would remove whatever it may, at once.
    settings.collection.grace = Millis(1);
    change(&mut settings);
    tokio::spawn(Server::open(settings)).await.unwrap()
}

async fn run_and_stop(server: Server) {
    server.run_until(tokio::time::sleep(Duration::ZERO)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_of_another_store_refuses_to_start() {
    let elsewhere = tempfile::tempdir().unwrap();
    let place = elsewhere.path().join("buffers");
    let server = TestServer::start_with(|settings| at(settings, &place)).await;
    server.queue("jobs", json!({})).await;
    let payload = "QUJD".repeat(50_000);
    server.submit("jobs", json!([{"payload": payload}])).await;

    let refused = open(elsewhere.path().join("typo"), &place, |_| {}).await.unwrap_err();
    assert!(matches!(refused, ServerError::BuffersOwner { .. }), "{refused}");
    let detail = refused.to_string();
    let record: serde_json::Value =
        serde_json::from_slice(&std::fs::read(place.join("owner")).unwrap()).unwrap();
    let owner = record["stores"][0].as_str().unwrap();
    for words in [place.to_str().unwrap(), owner, "--adopt-buffers", "--buffers", "--store"] {
        assert!(detail.contains(words), "{words}: {detail}");
    }
    assert_eq!(server.receive("jobs").await["payload"], payload.as_str());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_takes_a_place_over_with_a_flag() {
    let root = tempfile::tempdir().unwrap();
    let (place, log) = (root.path().join("buffers"), root.path().join("audit.log"));
    let start = |name: &str, adopt: bool| {
        let (data, log) = (root.path().join(name), log.clone());
        open(data, &place, move |settings| {
            settings.adopt_buffers = adopt;
            settings.audit_log = Some(log);
        })
    };
    run_and_stop(start("first", false).await.unwrap()).await;
    run_and_stop(start("first", true).await.unwrap()).await;
    assert_eq!(std::fs::read_to_string(&log).unwrap(), "", "it is the owner: nothing to adopt");
    run_and_stop(start("second", true).await.unwrap()).await;
    let entry: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&log).unwrap()).unwrap();
    assert_eq!(entry["operation"], "adopt_buffers", "{entry}");
    assert!(entry["subject"].as_str().unwrap().contains(place.to_str().unwrap()), "{entry}");
    // The place is the second store's from now on.
    run_and_stop(start("second", false).await.unwrap()).await;
    let refused = start("first", false).await.unwrap_err();
    assert!(matches!(refused, ServerError::BuffersOwner { .. }), "{refused}");
}
