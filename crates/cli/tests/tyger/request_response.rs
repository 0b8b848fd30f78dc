//! The request-response pattern.

use crate::place::{Place, start, well};

#[test]
fn the_submitter_waits_and_gets_the_result() {
    let place = Place::new();
    place.says(&["queue", "create", "my-queue", "--input", "raw_signal", "--output", "reconstructed"]);
    let mut script = place.script("request_response.sh");
    let signal = place.buffer(b"signal");
    script.env("input_buf", &signal);
    let asking = start(script);
    let received = place.json(&["queue", "receive", "my-queue", "--wait", "20s"]);
    let item = &received["items"][0];
    assert_eq!(item["inputs"]["raw_signal"], signal.as_str());
    let (id, lease) = (item["id"].as_str().unwrap(), item["lease"].as_str().unwrap());
    let image = place.buffer(b"image of the signal");
    let output = format!("reconstructed={image}");
    place.says(&["queue", "item", "commit", id, "--lease", lease, "--output", &output]);
    well(&asking.wait_with_output().unwrap());
    assert_eq!(std::fs::read_to_string(place.path("result.dat")).unwrap(), "image of the signal");
}

#[test]
fn a_request_that_fails_ends_the_wait_with_1_and_the_reason() {
    let place = Place::new();
    place.says(&["queue", "create", "my-queue", "--max-retries", "0"]);
    let id = place.says(&["queue", "submit", "my-queue"]);
    let waiting = start(place.tyger(&["queue", "item", "wait", &id]));
    let received = place.json(&["queue", "receive", "my-queue"]);
    let lease = received["items"][0]["lease"].as_str().unwrap();
    place.says(&["queue", "item", "fail", &id, "--lease", lease, "--reason", "no such signal"]);
    let output = waiting.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr).unwrap().contains("no such signal"));
}
