//! `heartbeat --while-alive`: keeps the lease while the parent lives, and no longer.

use crate::rig::{Lines, Run, Server, in_time, piped, signal, until};
use rustix::process::Signal;
use std::process::Child;

/// A held item whose lease lasts a second unless somebody beats.
fn held() -> (Server, String, String) {
    let server = Server::start();
    server.ok(&["queue", "create", "jobs", "--visibility-timeout", "1s", "--max-retries", "100"]);
    server.ok(&["queue", "submit", "jobs"]);
    let (id, lease) = server.receive(&["jobs", "--visibility-timeout", "5m"]);
    (server, id, lease)
}

/// Beats and prints each one, as a child of this test.
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
fn beats_until_the_item_is_settled_and_ends_well() {
    for (verb, args) in [
        ("commit", &[][..]),
        ("fail", &["--reason", "no"]),
        ("retry", &["--delay", "1h"]),
        ("release", &["--delay", "1h"]),
        ("defer", &["--delay", "1h"]),
    ] {
        let (server, id, lease) = held();
        let (child, lines) = beating(&server, &id, &lease);
        // The second: it goes on.
        let (lines, line) = lines.read();
        assert!(line.contains("lease_expires_at"), "{line:?}");
        server.ok(&[&["item", verb, &id, "--lease", &lease][..], args].concat());
        let run = Run::end(child);
        assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{verb}");
        drop(lines);
    }
}

#[test]
fn an_item_that_was_completed_before_the_first_beat_is_well_too() {
    let (server, id, lease) = held();
    server.ok(&["item", "commit", &id, "--lease", &lease]);
    let run = server.run(&["item", "heartbeat", &id, "--lease", &lease, "--while-alive"]);
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""));
}

#[test]
fn a_killed_parent_ends_the_beats_and_the_item_comes_back() {
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
    // The orphan holds the other end of the pipe until it ends.
    lines.rest();
    until("the lease lapses", || server.state(&id) == "pending");
}

#[test]
fn a_parent_that_is_gone_before_the_first_look_is_noticed() {
    let (server, id, lease) = held();
    // The heartbeat starts when its parent is gone: it is init's, or another's who adopts.
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
fn a_lost_lease_is_1() {
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
fn a_server_that_restarts_does_not_end_it() {
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
fn a_server_that_stays_away_ends_it_when_the_lease_has_run_out() {
    let (mut server, id, lease) = held();
    let (mut child, lines) = beating(&server, &id, &lease);
    server.kill();
    let words = Lines::of(child.stderr.take().unwrap()).rest();
    assert!(words.contains("has run out"), "{words}");
    assert_eq!(in_time("the heartbeat ends", move || child.wait()).unwrap().code(), Some(1));
    drop(lines);
}

#[test]
fn changes_are_made_by_the_first_beat() {
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
