//! Counts and bulk actions.

use crate::rig::Server;

fn filled() -> Server {
    let server = Server::start();
    server.ok(&["queue", "create", "jobs"]);
    server.ok(&["queue", "create", "other"]);
    let line = |n: u32| {
        let path = if n.is_multiple_of(3) { "/ab/c" } else { "/abc" };
        format!("{{\"tags\":{{\"path\":\"{path}\",\"type\":\"mail\"}},\"priority\":{}}}\n", n % 4)
    };
    let lines: String = (0..1200).map(line).collect();
    assert_eq!(server.feed(&["queue", "submit", "jobs", "--bulk"], &lines).code, Some(0));
    server
}

#[test]
fn every_bulk_action_has_the_same_filter_flags() {
    let server = filled();
    let count = |args: &[&str]| server.ok(&[&["queue", "item", "count"], args].concat());
    assert_eq!(count(&["jobs"]), "1200");
    assert_eq!(count(&[]), "1200", "all queues");
    assert_eq!(count(&["other"]), "0");
    assert_eq!(count(&["jobs", "--tag-prefix", "path=/ab"]), "400");
    assert_eq!(count(&["jobs", "--type", "mail", "--priority", "2"]), "300");
    assert_eq!(count(&["jobs", "--priority-min", "-1", "--priority-max", "1", "--state", "pending"]), "600");
    assert_eq!(count(&["jobs", "--attempt-min", "2"]), "0");
    assert_eq!(server.json(&["queue", "item", "count", "jobs", "-o", "json"])["count"], 1200);
    let listed = server.json(&["queue", "item", "list", "--tag-prefix", "path=/ab", "--summary"]);
    let listed = listed.as_array().unwrap();
    assert_eq!(listed.len(), 400);
    assert!(listed.iter().all(|item| item.get("params").is_none() && item["retries_left"] == 3));
    let pause = |args: &[&str]| server.ok(&[&["queue", "item", "pause", "--queue", "jobs"], args].concat());
    assert_eq!(pause(&["--tag-prefix", "path=/ab", "--dry-run"]), "400");
    assert_eq!(count(&["jobs", "--status", "paused"]), "0");
    assert_eq!(pause(&["--tag-prefix", "path=/ab"]), "400");
    assert_eq!(
        server.ok(&["queue", "item", "set-priority", "jobs", "--to", "-9", "--status", "paused"]),
        "400"
    );
    assert_eq!(count(&["--priority", "-9"]), "400");
    assert_eq!(server.ok(&["queue", "item", "move", "jobs", "--to", "other", "--priority", "-9"]), "400");
    assert_eq!(server.ok(&["queue", "item", "resume", "--queue", "other", "--status", "all"]), "400");
    let cancel = server.json(&[
        "queue", "item", "cancel", "--queue", "other", "--status", "pending", "--reason", "late", "-o",
        "json",
    ]);
    assert_eq!((&cancel["matched"], &cancel["done"]), (&400.into(), &400.into()));
    assert_eq!(count(&["other", "--failure", "cancelled", "--error", "LATE"]), "400");
    assert_eq!(server.ok(&["queue", "item", "redrive", "--queue", "other", "--status", "failed"]), "400");
    let purge = |args: &[&str]| server.ok(&[&["queue", "item", "purge", "jobs"], args].concat());
    assert_eq!(purge(&["--status", "pending", "--dry-run"]), "800");
    assert_eq!(purge(&["--status", "pending", "--priority", "0"]), "200");
    assert_eq!(count(&["jobs"]), "600");
}

#[test]
fn an_empty_filter_is_refused_before_any_change() {
    let server = filled();
    for args in [
        &["redrive"][..],
        &["redrive", "--status", "failed"],
        &["redrive", "01a1dfc8-fd66-7000-8000-000754550388", "--queue", "jobs"],
        &["redrive", "01a1dfc8-fd66-7000-8000-000754550388", "--tag", "a=b"],
        &["redrive", "--queue", "jobs"],
        &["pause", "--queue", "jobs", "--dry-run"],
        &["move", "jobs"],
        &["move", "jobs", "--to", "other"],
        &["set-priority", "jobs", "--to", "1"],
        &["set-priority", "jobs", "--to", "soon"],
        &["count", "jobs", "--priority", "1", "--priority-min", "0"],
        &["count", "jobs", "--created-from", "yesterday"],
    ] {
        let run = server.run(&[&["queue", "item"], args].concat());
        assert_eq!(run.code, Some(2), "{args:?}: {}", run.stderr);
    }
    for args in [
        &["move", "jobs", "--status", "all", "--to", "nowhere"][..],
        &["count", "jobs", "--status", "sleepy"],
    ] {
        let run = server.run(&[&["queue", "item"], args].concat());
        assert_eq!(run.code, Some(1), "{args:?}: {}", run.stderr);
    }
}
