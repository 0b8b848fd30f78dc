//! The request-response pattern.

use crate::sandbox::{Sandbox, start, well};

#[test]
fn the_submitter_waits_and_gets_the_result() {
    let sandbox = Sandbox::new();
    sandbox.says(&["queue", "create", "my-queue", "--input", "raw_signal", "--output", "reconstructed"]);
    let mut script = sandbox.script("request_response.sh");
    let signal = sandbox.buffer(b"signal");
    script.env("input_buf", &signal);
    let asking = start(script);
    let received = sandbox.json(&["queue", "receive", "my-queue", "--wait", "20s"]);
    let item = &received["items"][0];
    assert_eq!(item["inputs"]["raw_signal"], signal.as_str());
    let (id, lease) = (item["id"].as_str().unwrap(), item["lease"].as_str().unwrap());
    let image = sandbox.buffer(b"image of the signal");
    let output = format!("reconstructed={image}");
    sandbox.says(&["queue", "item", "commit", id, "--lease", lease, "--output", &output]);
    well(&asking.wait_with_output().unwrap());
    assert_eq!(std::fs::read_to_string(sandbox.path("result.dat")).unwrap(), "image of the signal");
}

#[test]
fn a_request_that_fails_ends_the_wait_with_1_and_the_reason() {
    let sandbox = Sandbox::new();
    sandbox.says(&["queue", "create", "my-queue", "--max-retries", "0"]);
    let id = sandbox.says(&["queue", "submit", "my-queue"]);
    let waiting = start(sandbox.tyger(&["queue", "item", "wait", &id]));
    let received = sandbox.json(&["queue", "receive", "my-queue"]);
    let lease = received["items"][0]["lease"].as_str().unwrap();
    sandbox.says(&["queue", "item", "fail", &id, "--lease", lease, "--reason", "no such signal"]);
    let output = waiting.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr).unwrap().contains("no such signal"));
}
