//! `item wait`: a result, a failure, a timeout, and restarts of the server.

use crate::rig::{Lines, Run, Server, in_time, piped};

fn submitted() -> (Server, String) {
    let server = Server::start();
    server.ok(&["queue", "create", "jobs"]);
    let id = server.ok(&["queue", "submit", "jobs"]);
    (server, id)
}

#[test]
fn waiting_for_a_completed_item_exits_with_0() {
    let (server, id) = submitted();
    let waiting = piped(&mut server.command(&["queue", "item", "wait", &id])).spawn().unwrap();
    let (_, lease) = server.receive(&["jobs"]);
    server.ok(&["item", "commit", &id, "--lease", &lease]);
    let run = Run::end(waiting);
    assert_eq!((run.code, run.stdout.as_str(), run.stderr.as_str()), (Some(0), "", ""));
    assert_eq!(server.json(&["item", "wait", &id, "-o", "json"])["state"], "completed");
}

#[test]
fn waiting_for_a_failed_item_exits_with_1_and_the_reason() {
    let (server, id) = submitted();
    let (_, lease) = server.receive(&["jobs"]);
    server.ok(&["item", "fail", &id, "--lease", &lease, "--reason", "out of \u{1b}[31mmemory"]);
    let run = server.run(&["item", "wait", &id]);
    assert_eq!(run.code, Some(1));
    assert!(run.stderr.contains("explicit") && run.stderr.contains("memory"), "{run:?}");
    assert!(!run.stderr.contains('\u{1b}'), "a reason must not drive the terminal: {run:?}");
}

#[test]
fn a_wait_that_times_out_exits_with_4() {
    let (server, id) = submitted();
    for timeout in ["0s", "100ms"] {
        let run = server.run(&["item", "wait", &id, "--timeout", timeout]);
        assert_eq!(run.code, Some(4), "{run:?}");
        assert!(run.stderr.contains("pending"), "{run:?}");
    }
}

#[test]
fn a_server_that_restarts_is_waited_for() {
    let (mut server, id) = submitted();
    let mut waiting = piped(&mut server.command(&["item", "wait", &id])).spawn().unwrap();
    let (_, lease) = server.receive(&["jobs"]);
    server.kill();
    // The command has noticed the outage.
    let (words, line) = Lines::of(waiting.stderr.take().unwrap()).read();
    assert!(line.contains("trying again"), "{line:?}");
    server.restart();
    server.ok(&["item", "commit", &id, "--lease", &lease]);
    assert_eq!(in_time("the wait ends", move || waiting.wait()).unwrap().code(), Some(0));
    assert_eq!(words.rest(), "");
}

#[test]
fn a_wait_without_a_server_exits_with_3() {
    let (mut server, id) = submitted();
    server.kill();
    assert_eq!(server.run(&["item", "wait", &id, "--timeout", "200ms"]).code, Some(3));
}
