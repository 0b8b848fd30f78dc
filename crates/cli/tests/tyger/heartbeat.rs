//! The heartbeat pattern.

use crate::sandbox::{Sandbox, start, wait_for, well};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

struct LeasedItem {
    id: String,
    lease: String,
    /// How long to wait for the result.
    buffer: String,
}

/// A script in its own process group. Dropping it kills the script and what the script started.
struct RunningScript(Child);

impl Drop for RunningScript {
    fn drop(&mut self) {
        // The group may have ended.
        let _ = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
        let _ = self.0.wait();
    }
}

/// A leased item with a visibility timeout of two seconds.
fn receive(sandbox: &Sandbox) -> LeasedItem {
    sandbox.says(&["queue", "create", "jobs", "--output", "result", "--visibility-timeout", "2s"]);
    let id = sandbox.says(&["queue", "submit", "jobs"]);
    let received = sandbox.json(&["queue", "receive", "jobs"]);
    let text = |name: &str| received["items"][0][name].as_str().unwrap().to_owned();
    assert_eq!(text("id"), id);
    LeasedItem { lease: text("lease"), id, buffer: sandbox.buffer(b"result") }
}

fn pattern(sandbox: &Sandbox, leased: &LeasedItem) -> Command {
    let mut script = sandbox.script("heartbeat.sh");
    script.env("item_id", &leased.id).env("token", &leased.lease).env("output_buf", &leased.buffer);
    script
}

fn show(sandbox: &Sandbox, leased: &LeasedItem) -> Value {
    sandbox.json(&["queue", "item", "show", &leased.id])
}

#[test]
fn a_lease_of_two_seconds_is_kept_over_five_seconds_of_work() {
    let sandbox = Sandbox::new();
    let leased = receive(&sandbox);
    sandbox.program("process.sh", "sleep 5; touch worked");
    let script = start(pattern(&sandbox, &leased));
    while !sandbox.path("worked").exists() {
        let item = show(&sandbox, &leased);
        assert_eq!((&item["state"], &item["deliveries"]), (&"processing".into(), &1.into()), "{item}");
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
    well(&script.wait_with_output().unwrap());
    let item = show(&sandbox, &leased);
    assert_eq!(item["state"], "completed");
    assert_eq!(item["outputs"]["result"], leased.buffer.as_str());
    assert_eq!((&item["deliveries"], &item["attempt"]), (&1.into(), &1.into()));
}

#[test]
fn the_heartbeat_stops_when_its_parent_is_killed() {
    let sandbox = Sandbox::new();
    let leased = receive(&sandbox);
    sandbox.program("process.sh", "exec sleep 600");
    let mut pattern = pattern(&sandbox, &leased);
    pattern.process_group(0);
    let mut script = RunningScript(start(pattern));
    let children = wait_for("the heartbeat and the work", || {
        let children = children(script.0.id());
        (children.len() == 2).then_some(children)
    });
    // After its first heartbeat, the heartbeat process keeps the lease.
    let first = show(&sandbox, &leased)["lease_expires_at"].clone();
    wait_for("a beat", || (show(&sandbox, &leased)["lease_expires_at"] != first).then_some(()));
    script.0.kill().unwrap();
    script.0.wait().unwrap();
    let again = sandbox.json(&["queue", "receive", "jobs", "--wait", "20s"]);
    assert_eq!(again["items"][0]["id"], leased.id.as_str());
    assert_eq!(again["items"][0]["attempt"], 2);
    let is_heartbeat = |pid: &&u32| command_line(**pid).contains("heartbeat");
    wait_for("the heartbeat's end", || children.iter().find(is_heartbeat).is_none().then_some(()));
    let continues = |pid: &u32| command_line(*pid).starts_with("sleep");
    assert!(children.iter().any(continues), "the work continues after its parent is killed");
}

#[test]
fn the_heartbeat_stops_when_the_item_is_settled() {
    for settle in ["commit", "fail", "release"] {
        let sandbox = Sandbox::new();
        let leased = receive(&sandbox);
        let output = format!("result={}", leased.buffer);
        let beat = ["queue", "item", "heartbeat", &leased.id, "--lease", &leased.lease, "--while-alive"];
        let mut beating = start(sandbox.tyger(&beat));
        let first = show(&sandbox, &leased)["lease_expires_at"].clone();
        wait_for("a beat", || (show(&sandbox, &leased)["lease_expires_at"] != first).then_some(()));
        let mut arguments = vec!["queue", "item", settle, &leased.id, "--lease", &leased.lease];
        match settle {
            "commit" => arguments.extend(["--output", &output]),
            "fail" => arguments.extend(["--reason", "no"]),
            _ => {}
        }
        sandbox.says(&arguments);
        wait_for("the heartbeat's end", || beating.try_wait().unwrap());
        well(&beating.wait_with_output().unwrap());
    }
}

#[test]
fn the_heartbeat_stops_when_the_lease_is_lost() {
    let sandbox = Sandbox::new();
    let leased = receive(&sandbox);
    let beat = ["queue", "item", "heartbeat", &leased.id, "--lease", &leased.lease, "--while-alive"];
    let mut beating = start(sandbox.tyger(&beat));
    sandbox.says(&["queue", "item", "cancel", &leased.id]);
    let end = wait_for("the heartbeat's end", || beating.try_wait().unwrap());
    assert_eq!(end.code(), Some(1));
}

fn children(pid: u32) -> Vec<u32> {
    let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    list.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

/// Empty when the process has exited.
fn command_line(pid: u32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default()
}
