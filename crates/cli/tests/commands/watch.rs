//! `queue watch` and `receive --wait`: items as they arrive, across restarts, until the queue is completed.

use crate::rig::{Lines, Run, Server, in_time, piped};
use rustix::process::{Pid, Signal, kill_process_group};
use std::os::unix::process::CommandExt;

fn server() -> Server {
    let server = Server::start();
    server.ok(&["queue", "create", "jobs"]);
    server
}

fn id(line: &str) -> String {
    let item: serde_json::Value = serde_json::from_str(line).unwrap();
    item["id"].as_str().unwrap().to_owned()
}

#[test]
fn items_are_printed_as_they_come_until_the_queue_is_completed() {
    let server = server();
    let mut child = piped(&mut server.command(&["queue", "watch", "jobs"])).spawn().unwrap();
    let mut lines = Lines::of(child.stdout.take().unwrap());
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(server.ok(&["queue", "submit", "jobs"]));
        let (rest, line) = lines.read();
        lines = rest;
        assert_eq!(Some(&id(&line)), ids.last());
    }
    server.ok(&["queue", "close", "jobs"]);
    server.ok(&["item", "cancel", &ids[0], &ids[1], &ids[2]]);
    assert_eq!(lines.rest(), "");
    assert_eq!(Run::end(child).code, Some(0));
}

#[test]
fn a_server_that_restarts_is_waited_for() {
    let mut server = server();
    let mut child = piped(&mut server.command(&["queue", "watch", "jobs", "--count", "2"])).spawn().unwrap();
    let first = server.ok(&["queue", "submit", "jobs"]);
    let (lines, line) = Lines::of(child.stdout.take().unwrap()).read();
    assert_eq!(id(&line), first);
    server.kill();
    server.restart();
    let second = server.ok(&["queue", "submit", "jobs"]);
    assert_eq!(id(&lines.rest()), second);
    assert_eq!(Run::end(child).code, Some(0));
}

#[test]
fn watch_takes_no_more_items_than_requested() {
    let server = server();
    for _ in 0..5 {
        server.ok(&["queue", "submit", "jobs"]);
    }
    let printed = server.ok(&["queue", "watch", "jobs", "--count", "3", "--max", "10"]);
    assert_eq!(printed.lines().count(), 3);
    assert_eq!(server.json(&["queue", "counts", "jobs"])["pending"], 2);
}

#[test]
fn receive_follow_is_watch_and_tail_leases_nothing() {
    let server = server();
    let ids = [server.ok(&["queue", "submit", "jobs"]), server.ok(&["queue", "submit", "jobs"])];
    let tail = server.ok(&["queue", "tail", "jobs", "--after", "oldest", "--count", "2"]);
    assert_eq!(tail.lines().map(id).collect::<Vec<_>>(), ids);
    assert_eq!(server.json(&["queue", "counts", "jobs"])["pending"], 2);
    let followed = server.ok(&["queue", "receive", "jobs", "--follow", "--count", "2"]);
    assert_eq!(followed.lines().map(id).collect::<Vec<_>>(), ids);
    assert_eq!(server.json(&["queue", "counts", "jobs"])["processing"], 2);
    assert_eq!(server.run(&["queue", "tail", "nope"]).code, Some(1));
    assert_eq!(server.run(&["queue", "receive", "jobs", "--count", "2"]).code, Some(2));
    // It ends with its queue.
    let tail = piped(&mut server.command(&["queue", "tail", "jobs", "--after", "oldest"])).spawn().unwrap();
    server.ok(&["queue", "close", "jobs"]);
    server.ok(&["item", "cancel", &ids[0], &ids[1]]);
    assert_eq!(Run::end(tail).ok(&["tail"]).lines().count(), 2);
}

#[test]
fn a_slow_reader_gets_the_next_item_when_it_has_taken_the_last() {
    let server = server();
    for _ in 0..20 {
        server.ok(&["queue", "submit", "jobs"]);
    }
    let script = "towline queue watch jobs | while read -r item; do
        read -r _ < gate || exit
        jq -r .id <<< \"$item\"
    done";
    let gate = server.directory().join("gate");
    assert!(std::process::Command::new("mkfifo").arg(&gate).status().unwrap().success());
    let mut command = server.script(script);
    let mut child = piped(command.current_dir(server.directory()).process_group(0)).spawn().unwrap();
    let mut lines = Lines::of(child.stdout.take().unwrap());
    for worked in 1..=3 {
        std::fs::write(&gate, "go\n").unwrap();
        let (rest, line) = lines.read();
        lines = rest;
        assert_eq!(line.len(), 37);
        // One item is in work, one is in the pipe, one is on its way there.
        let held = server.json(&["queue", "counts", "jobs"])["processing"].as_u64().unwrap();
        assert!(held <= worked + 2, "{held} are held after {worked}");
    }
    // Every process of the pipeline.
    kill_process_group(Pid::from_child(&child), Signal::KILL).unwrap();
    child.wait().unwrap();
}

#[test]
fn a_queue_that_is_deleted_ends_its_watchers() {
    let server = server();
    let child = piped(&mut server.command(&["queue", "watch", "jobs"])).spawn().unwrap();
    server.ok(&["queue", "delete", "jobs"]);
    let run = Run::end(child);
    assert_eq!(run.code, Some(1), "{run:?}");
}

#[test]
fn receive_waits_for_an_item_and_across_a_restart() {
    let mut server = server();
    let args = ["queue", "receive", "jobs", "--wait", "10m"];
    let child = piped(&mut server.command(&args)).spawn().unwrap();
    let first = server.ok(&["queue", "submit", "jobs"]);
    assert!(Run::end(child).stdout.contains(&first));
    server.stop();
    let mut child = piped(&mut server.command(&args)).spawn().unwrap();
    let (_, line) = Lines::of(child.stderr.take().unwrap()).read();
    assert!(line.contains("trying again"), "{line:?}");
    server.restart();
    let second = server.ok(&["queue", "submit", "jobs"]);
    assert!(Lines::of(child.stdout.take().unwrap()).rest().contains(&second));
    assert_eq!(in_time("receive ends", move || child.wait()).unwrap().code(), Some(0));
}
