//! `towline group`, from members to the item that depends on them.

use crate::rig::Server;

fn submit(server: &Server, args: &[&str]) -> String {
    server.ok(&[&["queue", "submit", "jobs"], args].concat())
}

fn commit(server: &Server) -> String {
    let (id, lease) = server.receive(&["jobs", "--wait", "20s"]);
    server.ok(&["item", "commit", &id, "--lease", &lease, "--output-param", "pages:=3"]);
    id
}

#[test]
fn children_fan_in_and_a_restart_changes_nothing() {
    let mut server = Server::start();
    server.ok(&["queue", "create", "jobs"]);
    let bind = submit(&server, &["--after-group", "book", "--after-expect", "3", "--payload", "bind it"]);
    for _ in 0..3 {
        submit(&server, &["--group", "book"]);
    }
    let after = submit(&server, &["--after-item", &bind, "--after-when", "all-done"]);
    commit(&server);
    let shown = server.json(&["group", "show", "book"]);
    assert_eq!((&shown["members"], &shown["unfinished"]), (&3.into(), &2.into()));
    let vain = server.run(&["group", "wait", "book", "--timeout", "10ms"]);
    assert_eq!(vain.code, Some(4), "{vain:?}");
    assert!(vain.stderr.contains("2 of 3"), "{}", vain.stderr);
    server.kill();
    server.restart();
    commit(&server);
    commit(&server);
    server.ok(&["group", "wait", "book", "--expect", "3", "--timeout", "60s"]);
    let results = server.json(&["group", "results", "book", "--status", "completed"]);
    let results = results.as_array().unwrap();
    assert_eq!(results.len(), 3);
    assert!(results.iter().all(|item| item["output_params"]["pages"] == 3));
    let table = server.ok(&["group", "results", "book", "-o", "table"]);
    assert!(table.contains("RESULT") && table.matches("pages=3").count() == 3, "{table}");
    assert_eq!(commit(&server), bind);
    assert_eq!(commit(&server), after);
}

#[test]
fn cancelling_a_group_fails_its_dependents() {
    let server = Server::start();
    server.ok(&["queue", "create", "jobs"]);
    for _ in 0..2 {
        submit(&server, &["--group", "a b"]);
    }
    let last = submit(&server, &["--after-group", "a b"]);
    assert_eq!(server.json(&["item", "show", &last])["state"], "waiting");
    assert_eq!(server.ok(&["group", "cancel", "a b", "--dry-run"]), "2");
    assert_eq!(server.ok(&["group", "cancel", "a b", "--reason", "enough"]), "2");
    let waited = server.run(&["item", "wait", &last, "--timeout", "60s"]);
    assert_eq!(waited.code, Some(1));
    assert!(waited.stderr.contains("group \"a b\""), "{}", waited.stderr);
    let ended = server.run(&["group", "wait", "a b"]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains("2 failed"), "{}", ended.stderr);
    let usage = server.run(&["queue", "submit", "jobs", "--after-when", "all-done"]);
    assert_eq!(usage.code, Some(2), "{usage:?}");
}

#[test]
fn an_empty_group_is_reported() {
    let server = Server::start();
    server.ok(&["queue", "create", "jobs"]);
    let submitted = server.run(&["queue", "submit", "jobs", "--after-group", "typo"]);
    assert!(submitted.code == Some(0) && submitted.stderr.contains("\"typo\" has no items"), "{submitted:?}");
    let shown = server.run(&["group", "show", "typo"]);
    assert!(shown.code == Some(0) && shown.stderr.contains("no members"), "{shown:?}");
    let waited = server.run(&["group", "wait", "typo", "--timeout", "10ms"]);
    assert_eq!(waited.code, Some(4), "{waited:?}");
    assert!(
        waited.stderr.contains("no members yet") && waited.stderr.contains("has no members\n"),
        "{waited:?}"
    );
    let scheduled = server.run(&["schedule", "create", "s", "--queue", "absent", "--every", "1h"]);
    assert!(
        scheduled.code == Some(0) && scheduled.stderr.contains("\"absent\" does not exist"),
        "{scheduled:?}"
    );
}
