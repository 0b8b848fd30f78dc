//! The heartbeat pattern.

use crate::place::{Place, start, wait_for, well};
use serde_json::Value;
use std::process::Command;

struct Held {
    id: String,
    lease: String,
    /// For the result.
    buffer: String,
}

/// An item that somebody works on, with a lease of two seconds.
fn receive(place: &Place) -> Held {
    place.says(&["queue", "create", "jobs", "--output", "result", "--visibility-timeout", "2s"]);
    let id = place.says(&["queue", "submit", "jobs"]);
    let received = place.json(&["queue", "receive", "jobs"]);
    let text = |name: &str| received["items"][0][name].as_str().unwrap().to_owned();
    assert_eq!(text("id"), id);
    Held { lease: text("lease"), id, buffer: place.buffer(b"result") }
}

fn pattern(place: &Place, held: &Held) -> Command {
    let mut script = place.script("heartbeat.sh");
    script.env("item_id", &held.id).env("token", &held.lease).env("output_buf", &held.buffer);
    script
}

fn show(place: &Place, held: &Held) -> Value {
    place.json(&["queue", "item", "show", &held.id])
}

#[test]
fn a_lease_of_two_seconds_is_kept_over_five_seconds_of_work() {
    let place = Place::new();
    let held = receive(&place);
    place.program("process.sh", "sleep 5; touch worked");
    let script = start(pattern(&place, &held));
    while !place.path("worked").exists() {
        let item = show(&place, &held);
        assert_eq!((&item["state"], &item["deliveries"]), (&"processing".into(), &1.into()), "{item}");
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
    well(&script.wait_with_output().unwrap());
    let item = show(&place, &held);
    assert_eq!(item["state"], "completed");
    assert_eq!(item["outputs"]["result"], held.buffer.as_str());
    assert_eq!((&item["deliveries"], &item["attempt"]), (&1.into(), &1.into()));
}

#[test]
fn it_stops_when_its_parent_is_killed_and_the_item_comes_back() {
    let place = Place::new();
    let held = receive(&place);
    place.program("process.sh", "exec sleep 600");
    let mut script = start(pattern(&place, &held));
    let children = wait_for("the heartbeat and the work", || {
        let children = children(script.id());
        (children.len() == 2).then_some(children)
    });
    // Once it has beaten, it is the heartbeat that keeps the lease.
    let first = show(&place, &held)["lease_expires_at"].clone();
    wait_for("a beat", || (show(&place, &held)["lease_expires_at"] != first).then_some(()));
    script.kill().unwrap();
    script.wait().unwrap();
    let again = place.json(&["queue", "receive", "jobs", "--wait", "20s"]);
    assert_eq!(again["items"][0]["id"], held.id.as_str());
    assert_eq!(again["items"][0]["attempt"], 2);
    let is_heartbeat = |pid: &&u32| command_line(**pid).contains("heartbeat");
    wait_for("the heartbeat's end", || children.iter().find(is_heartbeat).is_none().then_some(()));
    // The work outlives its parent, as work does.
    for pid in children.iter().filter(|pid| command_line(**pid).starts_with("sleep")) {
        Command::new("kill").arg(pid.to_string()).status().unwrap();
    }
}

#[test]
fn it_stops_when_the_item_is_settled() {
    for settle in ["commit", "fail", "release"] {
        let place = Place::new();
        let held = receive(&place);
        let output = format!("result={}", held.buffer);
        let beat = ["queue", "item", "heartbeat", &held.id, "--lease", &held.lease, "--while-alive"];
        let mut beating = start(place.tyger(&beat));
        let first = show(&place, &held)["lease_expires_at"].clone();
        wait_for("a beat", || (show(&place, &held)["lease_expires_at"] != first).then_some(()));
        let mut arguments = vec!["queue", "item", settle, &held.id, "--lease", &held.lease];
        match settle {
            "commit" => arguments.extend(["--output", &output]),
            "fail" => arguments.extend(["--reason", "no"]),
            _ => {}
        }
        place.says(&arguments);
        wait_for("the heartbeat's end", || beating.try_wait().unwrap());
        well(&beating.wait_with_output().unwrap());
    }
}

#[test]
fn it_stops_when_the_lease_is_lost() {
    let place = Place::new();
    let held = receive(&place);
    let beat = ["queue", "item", "heartbeat", &held.id, "--lease", &held.lease, "--while-alive"];
    let mut beating = start(place.tyger(&beat));
    place.says(&["queue", "item", "cancel", &held.id]);
    let end = wait_for("the heartbeat's end", || beating.try_wait().unwrap());
    assert_eq!(end.code(), Some(1));
}

fn children(pid: u32) -> Vec<u32> {
    let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    list.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

/// Empty when the process is gone.
fn command_line(pid: u32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default()
}
