//! Export from a directory to a database, and back.

use crate::migrate::url;
use crate::postgres::Own;
use crate::rig::{Run, Server, piped, towline, until};
use std::process::Stdio;

#[test]
fn everything_goes_to_a_database_and_back() {
    let mut from = Server::start();
    from.ok(&["queue", "create", "jobs"]);
    for n in 0..5 {
        let (payload, tag) = (format!("work {n}"), format!("n={n}"));
        from.ok(&["queue", "submit", "jobs", "--payload", &payload, "--tag", &tag]);
    }
    let (done, lease) = from.receive(&["jobs"]);
    from.ok(&["item", "commit", &done, "--lease", &lease, "--output-param", "found=it"]);
    let (held, lease) = from.receive(&["jobs"]);
    from.ok(&["schedule", "create", "hourly", "--queue", "jobs", "--every", "1h", "--payload", "tick"]);
    from.ok(&["kv", "set", "brief", "value", "--ttl", "1h"]);
    let count = ["kv", "increment", "counter", "--once", "first", "--ttl", "1h"];
    from.ok(&count);
    from.ok(&["queue", "submit", "jobs", "--group", "g", "--idempotency-key", "member"]);
    let waits = from.ok(&["queue", "submit", "jobs", "--after-group", "g"]);
    let list = ["queue", "item", "list", "jobs", "-o", "json"];
    let before = from.json(&list);
    let shown = |server: &Server| {
        let others = [&["kv", "list"][..], &["schedule", "show", "hourly"], &["group", "show", "g"]];
        others.map(|command| server.json(&[command, &["-o", "json"]].concat()))
    };
    let others = shown(&from);
    from.stop();

    let database = Own::start();
    let store = url(&database);
    let first = from.directory().join("data");
    let mut back = Server::start();
    back.stop();
    let second = back.directory().join("data");
    let place = from.directory().join("place");
    let place = ["--buffers", place.to_str().unwrap()];
    for (source, target) in [
        (vec!["--data", first.to_str().unwrap()], [&["--store", store.as_str()][..], &place].concat()),
        ([&["--store", store.as_str()][..], &place].concat(), vec!["--data", second.to_str().unwrap()]),
    ] {
        let mut export = towline(&[&["export"][..], &source].concat());
        let mut exporting = piped(&mut export).spawn().unwrap();
        let pipe = Stdio::from(exporting.stdout.take().unwrap());
        let imported = Run::of(towline(&[&["import"][..], &target].concat()).stdin(pipe));
        assert_eq!(Run::end(exporting).code, Some(0));
        assert_eq!(imported.code, Some(0), "{imported:?}");
    }
    back.restart();
    for server in [&Server::start_with(&[("TOWLINE_STORE", store.as_str())]), &back] {
        assert_eq!(server.json(&list), before);
        assert_eq!(shown(server), others);
        assert_eq!(server.ok(&count), "1", "it was counted in the first store");
        assert_eq!(server.json(&["item", "show", &done])["output_params"]["found"], "it");
        // The lease is valid after the import.
        server.ok(&["item", "commit", &held, "--lease", &lease]);
        let member = server.ok(&["queue", "submit", "jobs", "--group", "g", "--idempotency-key", "member"]);
        server.ok(&["item", "cancel", &member]);
        until("the dependency is resolved", || server.state(&waits) == "failed");
    }
}

#[test]
fn a_server_on_a_database_exports_and_refuses_a_backup() {
    let database = Own::start();
    let store = url(&database);
    let server = Server::start_with(&[("TOWLINE_STORE", store.as_str())]);
    server.ok(&["queue", "create", "jobs"]);
    server.ok(&["queue", "submit", "jobs", "--payload", "work"]);
    let export = server.run(&["export"]);
    assert_eq!(export.stderr.trim_end(), "towline: exported 1 queue, 1 item");
    let out = server.directory().join("out");
    let refused = server.run(&["backup", out.to_str().unwrap()]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("pg_dump"), "{refused:?}");
    assert!(!out.exists());
}
