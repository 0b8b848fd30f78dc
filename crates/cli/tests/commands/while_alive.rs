//! `heartbeat --while-alive` keeps the lease while the parent is alive, and no longer.

use crate::rig::{Lines, Run, Server, in_time, piped, signal, until};
use rustix::process::Signal;
use std::process::Child;

/// An item whose lease lasts one second without heartbeats.
fn held() -> (Server, String, String) {
    let server = Server::start();
    server.ok(&["queue", "create", "jobs", "--visibility-timeout", "1s", "--max-retries", "100"]);
    server.ok(&["queue", "submit", "jobs"]);
    let (id, lease) = server.receive(&["jobs", "--visibility-timeout", "5m"]);
    (server, id, lease)
}

/// Starts the heartbeat as a child of this test. It prints each heartbeat.
fn beating(server: &Server, id: &str, lease: &str) -> (Child, Lines) {
    let args = [
        "queue",
        "item",
        "heartbeat",
        id,
        "--lease",
        lease,
        "--while-alive",
        "--visibility-timeout",
        "2s",
        "-o",
        "ndjson",
    ];
    let mut child = piped(&mut server.command(&args)).spawn().unwrap();
    let (lines, line) = Lines::of(child.stdout.take().unwrap()).read();
    if !line.contains("lease_expires_at") {
        panic!("no beat: {line:?} {:?} {}", Run::end(child), server.log());
    }
    (child, lines)
}

#[test]
fn heartbeats_continue_until_the_item_is_settled() {
    for (verb, args) in [
        ("commit", &[][..]),
        ("fail", &["--reason", "no"]),
        ("retry", &["--delay", "1h"]),
        ("release", &["--delay", "1h"]),
        ("defer", &["--delay", "1h"]),
    ] {
        let (server, id, lease) = held();
        let (child, lines) = beating(&server, &id, &lease);
        // The second heartbeat shows that it continues.
        let (lines, line) = lines.read();
        assert!(line.contains("lease_expires_at"), "{line:?}");
        server.ok(&[&["item", verb, &id, "--lease", &lease][..], args].concat());
        let run = Run::end(child);
        assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{verb}");
        drop(lines);
    }
}

#[test]
fn an_item_completed_before_the_first_heartbeat_exits_with_0() {
    let (server, id, lease) = held();
    server.ok(&["item", "commit", &id, "--lease", &lease]);
    let run = server.run(&["item", "heartbeat", &id, "--lease", &lease, "--while-alive"]);
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""));
}

#[test]
fn a_killed_parent_ends_the_heartbeats_and_the_item_is_delivered_again() {
    let (server, id, lease) = held();
    let script = format!(
        "towline item heartbeat {id} --lease {lease} --while-alive --visibility-timeout 2s -o ndjson & wait"
    );
    let mut parent = piped(&mut server.script(&script)).spawn().unwrap();
    let (lines, line) = Lines::of(parent.stdout.take().unwrap()).read();
    if !line.contains("lease_expires_at") {
        panic!("no beat: {line:?} {:?} {}", Run::end(parent), server.log());
    }
    signal(parent.id(), Signal::KILL);
    parent.wait().unwrap();
    // The orphan keeps the pipe open until it ends.
    lines.rest();
    until("the lease lapses", || server.state(&id) == "pending");
}

#[test]
fn a_parent_that_exits_before_the_first_check_is_noticed() {
    let (server, id, lease) = held();
    // The heartbeat starts after its parent has exited, so it has been adopted.
    let script = format!(
        "(while grep -q \"PPid:[[:space:]]$$\\$\" /proc/$BASHPID/status; do sleep 0.05; done
          exec towline item heartbeat {id} --lease {lease} --while-alive --visibility-timeout 2s) & exit"
    );
    let mut parent = piped(&mut server.script(&script)).spawn().unwrap();
    let lines = Lines::of(parent.stdout.take().unwrap());
    parent.wait().unwrap();
    lines.rest();
}

#[test]
fn a_lost_lease_exits_with_1() {
    for (verb, words) in [("cancel", "ended"), ("delete", "no item")] {
        let (server, id, lease) = held();
        let (child, lines) = beating(&server, &id, &lease);
        server.ok(&[&["item", verb, &id][..], if verb == "delete" { &["--force"] } else { &[] }].concat());
        let run = Run::end(child);
        assert_eq!(run.code, Some(1), "{verb}: {run:?}");
        assert!(run.stderr.contains(words), "{verb}: {run:?}");
        drop(lines);
    }
    let (server, id, _) = held();
    let run = server.run(&[
        "item",
        "heartbeat",
        &id,
        "--lease",
        "0123456789abcdef0123456789abcdef",
        "--while-alive",
    ]);
    assert_eq!(run.code, Some(1), "{run:?}");
}

#[test]
fn heartbeats_survive_a_restart_of_the_server() {
    let (mut server, id, lease) = held();
    let args = ["item", "heartbeat", &id, "--lease", &lease, "--while-alive", "-o", "ndjson"];
    let mut command = server.command(&[&args[..], &["--visibility-timeout", "30s"]].concat());
    let mut child = piped(&mut command).spawn().unwrap();
    let (mut lines, first) = Lines::of(child.stdout.take().unwrap()).read();
    server.kill();
    let (words, line) = Lines::of(child.stderr.take().unwrap()).read();
    assert!(line.contains("trying again"), "{line:?}");
    server.restart();
    let second;
    (lines, second) = lines.read();
    assert!(second > first, "{first} {second}");
    server.ok(&["item", "commit", &id, "--lease", &lease]);
    assert_eq!(in_time("the heartbeat ends", move || child.wait()).unwrap().code(), Some(0));
    drop((lines, words));
}

#[test]
fn heartbeats_end_when_the_lease_lapses_during_an_outage() {
    let (mut server, id, lease) = held();
    let (mut child, lines) = beating(&server, &id, &lease);
    server.kill();
    let words = Lines::of(child.stderr.take().unwrap()).rest();
    assert!(words.contains("lapsed meanwhile"), "{words}");
    assert_eq!(in_time("the heartbeat ends", move || child.wait()).unwrap().code(), Some(1));
    drop(lines);
}

#[test]
fn the_first_heartbeat_makes_the_changes() {
    let (server, id, lease) = held();
    let args = [
        "item",
        "heartbeat",
        &id,
        "--lease",
        &lease,
        "--while-alive",
        "--set",
        "metadata=mine",
        "-o",
        "ndjson",
    ];
    let mut child = piped(&mut server.command(&args)).spawn().unwrap();
    let (lines, _) = Lines::of(child.stdout.take().unwrap()).read();
    assert_eq!(server.json(&["item", "show", &id])["metadata"], "bWluZQ==");
    child.kill().unwrap();
    child.wait().unwrap();
    drop(lines);
}
