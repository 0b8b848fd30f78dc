//! Output for scripts: names and ids alone, objects as JSON, and no output of settles.

use crate::rig::Server;
use std::os::unix::fs::symlink;
use std::process::Command;

#[test]
fn create_prints_the_name_and_submit_the_id() {
    let server = Server::start();
    assert_eq!(server.run(&["queue", "create", "jobs"]).stdout, "jobs\n");
    let id = server.run(&["queue", "submit", "jobs", "--payload", "x"]).stdout;
    assert_eq!((id.len(), id.lines().count()), (37, 1), "{id:?}");
    let whole = server.json(&["queue", "submit", "jobs", "--idempotency-key", "k", "-o", "json"]);
    assert_eq!(whole["created"], true);
    let again = server.json(&["queue", "submit", "jobs", "--idempotency-key", "k", "-o", "json"]);
    assert_eq!((again["created"].as_bool(), &again["id"]), (Some(false), &whole["id"]));
}

#[test]
fn a_replacing_submit_prints_the_id_of_the_pending_item() {
    let server = Server::start();
    server.ok(&["queue", "create", "jobs"]);
    let submit = ["queue", "submit", "jobs", "--replace-key", "doc-7", "--delay", "5m", "--delay-max", "1h"];
    let id = server.ok(&submit);
    assert_eq!(server.ok(&submit), id);
    let whole = server.json(&[&submit[..], &["--payload", "latest", "-o", "json"]].concat());
    assert_eq!((whole["id"].as_str(), whole["replaced"].as_bool()), (Some(&*id), Some(true)));
    let counts = server.json(&["queue", "show", "jobs"])["counts"].clone();
    assert_eq!((counts["scheduled"].as_u64(), counts["pending"].as_u64()), (Some(1), Some(0)));
    let usage = server.run(&["queue", "submit", "jobs", "--delay-max", "1h"]);
    assert_eq!(usage.code, Some(2), "{usage:?}");
}

#[test]
fn a_limit_per_key_is_set_shown_enforced_and_removed() {
    let server = Server::start();
    server.ok(&["queue", "create", "jobs", "--concurrency-per-key", "2"]);
    let limit = || server.json(&["queue", "show", "jobs"])["policy"]["concurrency_per_key"].clone();
    assert_eq!(limit(), 2);
    for key in ["gold", "gold", "gold", "iron"] {
        server.ok(&["queue", "submit", "jobs", "--fairness-key", key]);
    }
    let given =
        || server.json(&["queue", "receive", "jobs", "--max", "5"])["items"].as_array().unwrap().len();
    assert_eq!(given(), 3);
    let another = server.run(&["queue", "create", "jobs", "--concurrency-per-key", "3"]);
    assert!(another.stderr.contains("policy.concurrency_per_key"), "{another:?}");
    let wrong = server.run(&["queue", "update", "jobs", "--concurrency-per-key", "0"]);
    assert!(wrong.stderr.contains("0 is out of range; use 1 to 1000000"), "{wrong:?}");
    server.ok(&["queue", "update", "jobs", "--concurrency-per-key", "none"]);
    assert_eq!((limit(), given()), (serde_json::Value::Null, 1));
}

#[test]
fn singular_and_plural_commands_both_work() {
    let server = Server::start();
    server.ok(&["queues", "create", "jobs"]);
    let id = server.ok(&["queues", "submit", "jobs"]);
    for words in [&["queue", "item"][..], &["queue", "items"], &["queues", "item"], &["item"], &["items"]] {
        server.ok(&[words, &["show", &id]].concat());
        server.ok(&[words, &["list", "jobs"]].concat());
    }
}

#[test]
fn receive_prints_one_object_with_status_and_items() {
    let server = Server::start();
    server.ok(&["queue", "create", "jobs"]);
    assert_eq!(server.run(&["queue", "receive", "jobs"]).stdout, "{\"status\":\"open\",\"items\":[]}\n");
    for _ in 0..3 {
        server.ok(&["queue", "submit", "jobs", "--payload", "hello", "--input-param", "n:=1.50"]);
    }
    let text = server.ok(&["queue", "receive", "jobs"]);
    assert!(text.contains("\"n\":1.50"), "digits are kept: {text}");
    let two = server.json(&["queue", "receive", "jobs", "--max", "5", "--fields", "metadata"]);
    assert_eq!(two["items"].as_array().unwrap().len(), 2);
    assert_eq!(two["items"][0].get("payload"), None);
    server.ok(&["queue", "close", "jobs"]);
    let state = server.json(&["queue", "receive", "jobs", "--wait", "100ms"]);
    assert_eq!(state["status"], "closed");
}

#[test]
fn a_queue_is_created_shown_changed_paused_closed_and_deleted() {
    let server = Server::start();
    let policy = [
        "--visibility-timeout",
        "90s",
        "--max-retries",
        "2",
        "--item-ttl",
        "1d",
        "--failed-ttl",
        "none",
        "--backoff",
        "base=1s,max=1m,jitter=0.5",
        "--order",
        "fifo",
        "--depth-limit",
        "5",
        "--dead-letter-queue",
        "dead",
        "--expire-after",
        "2h",
        "--give-up-after",
        "1h",
        "--poison-after",
        "3",
        "--lease-renewals-max",
        "7",
    ];
    server.ok(&["queue", "create", "dead"]);
    server.ok(&[&["queue", "create", "jobs", "--input", "a", "--output", "b?"][..], &policy].concat());
    let shown = server.json(&["queue", "show", "jobs"]);
    assert_eq!(shown["schema"]["inputs"][0], "a");
    assert_eq!(shown["schema"]["outputs"][0], "b?");
    let policy = &shown["policy"];
    for (name, value) in [
        ("visibility_timeout", "90s"),
        ("completed_ttl", "1d"),
        ("order", "fifo"),
        ("dead_letter_queue", "dead"),
        ("expire_after", "2h"),
        ("give_up_after", "1h"),
    ] {
        let shown = policy[name].as_str().unwrap();
        assert!(shown == value || (name == "visibility_timeout" && shown == "1m30s"), "{name}: {shown}");
    }
    assert!(policy["failed_ttl"].is_null());
    assert_eq!((&policy["poison_after"], &policy["lease"]["renewals_max"]), (&3.into(), &7.into()));
    assert_eq!(server.run(&["queue", "update", "jobs", "--depth-limit", "none"]).stdout, "");
    assert!(server.json(&["queue", "show", "jobs"])["policy"]["depth_limit"].is_null());
    server.ok(&["queue", "pause", "jobs"]);
    assert_eq!(server.json(&["queue", "show", "jobs"])["paused"], true);
    server.ok(&["queue", "resume", "jobs"]);
    assert_eq!(server.json(&["queue", "close", "jobs", "-o", "json"])["state"], "completed");
    server.ok(&["queue", "delete", "jobs"]);
    assert_eq!(server.run(&["queue", "show", "jobs"]).code, Some(1));
}

#[test]
fn a_link_named_tyger_is_the_same_program() {
    let server = Server::start();
    let link = server.directory().join("tyger");
    symlink(env!("CARGO_BIN_EXE_towline"), &link).unwrap();
    let run = Command::new(&link).args(["queue", "create", "jobs", "--url", &server.url()]).output().unwrap();
    assert_eq!(run.stdout, b"jobs\n");
}

#[test]
fn every_field_of_an_item_can_be_given() {
    let server = Server::start();
    let file = server.directory().join("payload");
    std::fs::write(&file, [0, 159, 146, 150]).unwrap();
    server.ok(&["queue", "create", "jobs"]);
    let buffer = server.buffer("something");
    let input = format!("a={buffer}");
    let given = [
        "--input",
        &input,
        "--input-param",
        "s=text",
        "--input-param",
        "j:={\"deep\":[1,2]}",
        "--priority",
        "-5",
        "--at",
        "2040-01-01T00:00:00Z",
        "--tag",
        "tenant=7",
        "--group",
        "g",
        "--fairness-key",
        "f",
        "--source",
        "here",
        "--id",
        "0199aa3d-98e9-4000-8000-0d81c4c5fb00",
        "--metadata",
        "{}",
        "--state-blob",
        "s",
        "--parameters",
        "p",
        "--max-retries",
        "1",
        "--failed-ttl",
        "1h",
        "--payload-file",
        file.to_str().unwrap(),
    ];
    let id = server.ok(&[&["queue", "submit", "jobs"][..], &given].concat());
    assert_eq!(id, "0199aa3d-98e9-4000-8000-0d81c4c5fb00");
    let shown = server.json(&["item", "show", &id]);
    for (at, value) in [
        ("/state", "scheduled"),
        ("/inputs/a", buffer.as_str()),
        ("/params/s", "text"),
        ("/tags/tenant", "7"),
        ("/group", "g"),
        ("/fairness_key", "f"),
        ("/source", "here"),
        ("/payload", "AJ+Slg=="),
        ("/metadata", "e30="),
        ("/state_blob", "cw=="),
        ("/parameters", "cA=="),
        ("/ready_at", "2040-01-01T00:00:00.000Z"),
    ] {
        assert_eq!(shown.pointer(at).and_then(|value| value.as_str()), Some(value), "{at}");
    }
    assert_eq!((&shown["priority"], &shown["params"]["j"]["deep"][1]), (&(-5).into(), &2.into()));
    let id = server.feed(&["queue", "submit", "jobs", "--payload-file", "-"], "from a pipe").stdout;
    assert_eq!(server.json(&["item", "show", id.trim_end()])["payload"], "ZnJvbSBhIHBpcGU=");
}

#[test]
fn payloads_are_printed_as_text_or_json() {
    let server = Server::start();
    server.ok(&["queue", "create", "jobs"]);
    let id = server.ok(&["queue", "submit", "jobs", "--payload", r#"{"n": 1}"#]);
    let shown = |form: &str| server.json(&["item", "show", &id, "--payload-as", form]);
    assert_eq!(shown("text")["payload_text"], r#"{"n": 1}"#);
    assert_eq!(shown("json")["payload_json"]["n"], 1);
    assert_eq!(shown("base64")["payload"], server.json(&["item", "show", &id])["payload"]);
    let listed = server.json(&["item", "list", "jobs", "--fields", "payload", "--payload-as", "text"]);
    assert_eq!(listed[0]["payload_text"], r#"{"n": 1}"#);
    let tail = ["queue", "tail", "jobs", "--after", "oldest", "--count", "1", "--payload-as", "json"];
    assert_eq!(server.json(&tail)["payload_json"]["n"], 1);
    let received = server.json(&["queue", "receive", "jobs", "--payload-as", "text"]);
    assert_eq!(received["items"][0]["payload_text"], r#"{"n": 1}"#);
    let lease = received["items"][0]["lease"].as_str().unwrap();
    server.ok(&["item", "commit", &id, "--lease", lease]);
    let waited = server.json(&["item", "wait", &id, "-o", "json", "--payload-as", "text"]);
    assert!(waited.get("payload").is_none(), "{waited}");
    let unknown = server.run(&["item", "show", &id, "--payload-as", "hex"]);
    assert!(unknown.code == Some(2) && unknown.stderr.contains("base64, text or json"), "{unknown:?}");
}
