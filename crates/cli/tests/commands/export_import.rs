//! `towline export | towline import`.

use crate::faulty_proxy::{End, FaultyProxy};
use crate::rig::{Run, Server, piped, towline, until};
use std::path::Path;
use std::process::Stdio;

/// A server with items in every state.
fn busy() -> Server {
    let server = Server::start();
    server.ok(&["queue", "create", "dead"]);
    server.ok(&["queue", "create", "jobs", "--max-retries", "5", "--dead-letter-queue", "dead"]);
    server.ok(&["queue", "create", "over"]);
    let submit = ["queue", "submit", "jobs", "--payload", "work"];
    for more in [
        &["--tag", "team=blue", "--idempotency-key", "k", "--priority", "-5"][..],
        &["--delay", "1h", "--input-param", "size=big"],
        &[],
        &[],
        &[],
        &[],
    ] {
        server.ok(&[&submit[..], more].concat());
    }
    for settle in [
        &["commit", "--output-param", "found=it"][..],
        &["fail", "--reason", "cannot"],
        &["retry", "--error", "not yet", "--delay", "0s"],
    ] {
        let (id, lease) = server.receive(&["jobs"]);
        let (verb, rest) = settle.split_first().unwrap();
        server.ok(&[&["item", verb, &id, "--lease", &lease], rest].concat());
    }
    let (id, _) = server.receive(&["jobs"]);
    server.ok(&["item", "cancel", &id, "--reason", "not needed"]);
    server.receive(&["jobs"]);
    server.ok(&["queue", "pause", "jobs"]);
    server.ok(&["queue", "close", "over"]);
    server
}

/// All items and queues, without the fields that depend on the time of the call.
fn shown(server: &Server) -> Vec<serde_json::Value> {
    let mut all = Vec::new();
    for queue in ["dead", "jobs", "over"] {
        let mut about = server.json(&["queue", "show", queue, "-o", "json"]);
        about
            .as_object_mut()
            .unwrap()
            .retain(|name, _| !["created_at", "since", "consumers"].contains(&name.as_str()));
        all.push(about);
        let ids = server.json(&["queue", "item", "list", queue, "-o", "json"]);
        for item in ids.as_array().unwrap() {
            all.push(server.json(&["item", "show", item["id"].as_str().unwrap(), "-o", "json"]));
        }
    }
    all
}

fn export(data: &Path) -> Run {
    Run::of(towline(&["export", "--data"]).arg(data))
}

fn import(export: &str, data: &Path) -> Run {
    let file = data.with_extension("jsonl");
    std::fs::write(&file, export).unwrap();
    let input = std::fs::File::open(&file).unwrap();
    Run::of(towline(&["import", "--data"]).arg(data).stdin(Stdio::from(input)))
}

#[test]
fn everything_goes_from_one_store_to_another() {
    let mut from = busy();
    let before = shown(&from);
    assert!(from.stop().success());
    // A server that never got a call leaves an empty store.
    let mut to = Server::start();
    to.stop();
    let (source, target) = (from.directory().join("data"), to.directory().join("data"));
    let mut exporting = piped(towline(&["export", "--data"]).arg(&source)).spawn().unwrap();
    let pipe = Stdio::from(exporting.stdout.take().unwrap());
    let imported = Run::of(towline(&["import", "--data"]).arg(&target).stdin(pipe));
    let exported = Run::end(exporting);
    assert_eq!((exported.code, exported.stderr.trim_end()), (Some(0), "towline: exported 3 queues, 6 items"));
    assert_eq!((imported.code, imported.stderr.trim_end()), (Some(0), "towline: imported 3 queues, 6 items"));
    to.restart();
    assert_eq!(shown(&to), before);
    // The exported store is unchanged.
    from.restart();
    assert_eq!(shown(&from), before);
}

#[test]
fn a_truncated_export_is_refused() {
    let mut from = busy();
    from.stop();
    let whole = export(&from.directory().join("data")).ok(&["export"]);
    let lines: Vec<&str> = whole.lines().collect();
    let targets = tempfile::tempdir().unwrap();
    let without = |n: usize| {
        let kept = lines.iter().enumerate().filter(|(at, _)| *at != n).map(|(_, line)| format!("{line}\n"));
        kept.collect::<String>()
    };
    let last = lines.len() - 1;
    for (n, (export, words)) in [
        (String::new(), "not a Towline export"),
        (without(0), "not a Towline export"),
        (without(last), "incomplete"),
        (without(last - 1), "6 items were exported, but 3 queues, 5 items were read"),
        (whole.replacen("\"export\":1", "\"export\":99", 1), "use a newer towline"),
        (format!("{}\nnonsense", lines[0]), "line 2"),
        (whole.replacen("\"blob\":\"", "\"blob\":\"!", 1), "base64"),
        (format!("{}\n{}\n{}", lines[0], lines[last - 1], lines[last]), "line 2"),
    ]
    .into_iter()
    .enumerate()
    {
        let refused = import(&export, &targets.path().join(n.to_string()));
        assert_eq!(refused.code, Some(1), "{words}: {refused:?}");
        assert!(refused.stderr.contains(words), "{words}: {refused:?}");
    }
}

#[test]
fn import_needs_an_empty_store_and_export_needs_a_store() {
    let mut from = busy();
    let data = from.directory().join("data");
    let in_use = export(&data);
    assert_eq!(in_use.code, Some(1), "{in_use:?}");
    assert!(in_use.stderr.contains("in use"), "{in_use:?}");
    from.stop();
    let whole = export(&data).ok(&["export"]);
    let refused = import(&whole, &data);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("import into an empty store"), "{refused:?}");
    let nowhere = export(&data.join("nowhere"));
    assert_eq!(nowhere.code, Some(1), "{nowhere:?}");
    assert!(nowhere.stderr.contains("--data"), "{nowhere:?}");
    assert!(!data.join("nowhere").exists());
}

/// Sends an export to a running server.
fn send(export: &str, to: &Server, token: &str) -> Run {
    let file = to.directory().join("export.jsonl");
    std::fs::write(&file, export).unwrap();
    let input = std::fs::File::open(&file).unwrap();
    Run::of(to.command(&["import"]).env("TOWLINE_TOKEN", token).stdin(Stdio::from(input)))
}

#[test]
fn an_import_goes_to_the_running_server() {
    let from = busy();
    let before = shown(&from);
    let whole = from.ok(&["export"]);
    let to = Server::start();
    let elsewhere = tempfile::tempdir().unwrap();
    let file = elsewhere.path().join("export.jsonl");
    std::fs::write(&file, format!("{whole}\n")).unwrap();
    let input = std::fs::File::open(&file).unwrap();
    let mut command = to.command(&["import"]);
    let imported = Run::of(command.current_dir(elsewhere.path()).stdin(Stdio::from(input)));
    assert_eq!((imported.code, imported.stderr.trim_end()), (Some(0), "towline: imported 3 queues, 6 items"));
    assert_eq!(shown(&to), before);
    assert_eq!(std::fs::read_dir(elsewhere.path()).unwrap().count(), 1, "no store appears beside the export");
    // The server works on as usual.
    to.ok(&["queue", "resume", "jobs"]);
    to.receive(&["jobs"]);
    let again = send(&whole, &to, "");
    assert!(again.code == Some(1) && again.stderr.contains("already has queues"), "{again:?}");
    let misplaced = Run::of(&mut to.command(&["import", "--buffers", "somewhere"]));
    assert!(misplaced.code == Some(2) && misplaced.stderr.contains("--data"), "{misplaced:?}");
}

#[test]
fn a_server_refuses_an_import_that_is_cut_or_not_permitted() {
    let from = busy();
    let whole = from.ok(&["export"]);
    for (cut, words) in [
        (String::new(), "not a Towline export"),
        (whole.lines().take(4).map(|line| format!("{line}\n")).collect(), "incomplete"),
        (whole.replacen("\"blob\":\"", "\"blob\":\"!", 1), "base64"),
    ] {
        let refused = send(&cut, &Server::start(), "");
        assert!(refused.code == Some(1) && refused.stderr.contains(words), "{words}: {refused:?}");
    }
    let (server, admin) = Server::start_asking(|_| Vec::new());
    let reader = ["token", "create", "reader", "--scope", "queue:*:read"];
    let reader = Run::of(server.command(&reader).env("TOWLINE_TOKEN", &admin)).ok(&reader);
    let refused = send(&whole, &server, &reader);
    assert!(refused.code == Some(1) && refused.stderr.contains("admin"), "{refused:?}");
    send(&whole, &server, &admin).ok(&["import"]);
}

#[test]
fn a_running_server_starts_imported_schedules_groups_and_dependencies() {
    let (from, last) = with_records();
    from.ok(&["schedule", "create", "often", "--queue", "ticks", "--every", "1s"]);
    from.ok(&["queue", "create", "ticks"]);
    let before = records(&from);
    let whole = from.ok(&["export"]);
    let to = Server::start();
    send(&whole, &to, "").ok(&["import"]);
    assert_eq!(records(&to), before);
    let ticks = || to.json(&["queue", "item", "list", "ticks"]).as_array().unwrap().len();
    let imported = ticks();
    until("the schedule submits items", || ticks() > imported);
    let (id, lease) = to.receive(&["jobs"]);
    to.ok(&["item", "commit", &id, "--lease", &lease]);
    until("the dependency is resolved", || to.state(&last) == "pending");
}

/// A payload that is offloaded.
fn large() -> String {
    (0..40_000).map(|n| format!("{:x}", n * 7919)).collect()
}

#[test]
fn offloaded_payloads_go_along_to_a_new_place() {
    let mut from = Server::start();
    from.ok(&["queue", "create", "jobs"]);
    let file = from.directory().join("payload");
    std::fs::write(&file, large()).unwrap();
    let id =
        from.ok(&["queue", "submit", "jobs", "--payload-file", file.to_str().unwrap()]).trim().to_owned();
    let before = from.json(&["item", "show", &id, "-o", "json"]);
    from.stop();
    let data = from.directory().join("data");
    let whole = export(&data).ok(&["export"]);
    assert!(whole.len() > large().len(), "the payload is in the export");

    let mut to = Server::start();
    to.stop();
    let target = to.directory().join("data");
    import(&whole, &target).ok(&["import"]);
    // The old place is not needed any more.
    std::fs::remove_dir_all(&data).unwrap();
    let kept = std::fs::read_dir(target.join("buffers/fields")).unwrap().count();
    assert_eq!(kept, 1, "the new store has offloaded it again");
    to.restart();
    assert_eq!(to.json(&["item", "show", &id, "-o", "json"]), before);
    to.receive(&["jobs"]);
}

#[test]
fn an_export_whose_payload_is_gone_and_an_import_into_a_foreign_place_are_refused() {
    let mut from = Server::start();
    from.ok(&["queue", "create", "jobs"]);
    let file = from.directory().join("payload");
    std::fs::write(&file, large()).unwrap();
    let id =
        from.ok(&["queue", "submit", "jobs", "--payload-file", file.to_str().unwrap()]).trim().to_owned();
    from.stop();
    let (data, target) = (from.directory().join("data"), from.directory().join("target"));
    let whole = export(&data).ok(&["export"]);
    let place = data.join("buffers");

    let import_to = |more: &[&str]| {
        let file = from.directory().join("export");
        std::fs::write(&file, &whole).unwrap();
        let mut command = towline(&["import", "--data"]);
        command.arg(&target).arg("--buffers").arg(&place).args(more);
        Run::of(command.stdin(Stdio::from(std::fs::File::open(&file).unwrap())))
    };
    let refused = import_to(&[]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("--adopt-buffers"), "{refused:?}");
    import_to(&["--adopt-buffers"]).ok(&["import"]);

    std::fs::remove_dir_all(place.join("fields")).unwrap();
    let refused = export(&data);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    for words in [id.as_str(), "--buffers", "delete the item"] {
        assert!(refused.stderr.contains(words), "{words}: {refused:?}");
    }
}

/// A server with a schedule, records, and a group that an item waits for. Returns the item that waits.
fn with_records() -> (Server, String) {
    let server = Server::start();
    server.ok(&["queue", "create", "jobs"]);
    let every = ["schedule", "create", "hourly", "--queue", "jobs", "--every", "1h", "--payload", "tick"];
    server.ok(&every);
    server.ok(&["kv", "set", "plain", "value"]);
    server.ok(&["kv", "set", "brief", "value", "--ttl", "1h"]);
    server.ok(&["kv", "increment", "counter", "--once", "first", "--ttl", "1h"]);
    server.ok(&["queue", "submit", "jobs", "--group", "g", "--payload", "member"]);
    let after = ["queue", "submit", "jobs", "--after-group", "g", "--payload", "last"];
    let last = server.ok(&after);
    (server, last)
}

fn records(server: &Server) -> Vec<serde_json::Value> {
    let shown = server.json(&["kv", "list", "-o", "json"]);
    let schedule = server.json(&["schedule", "show", "hourly", "-o", "json"]);
    let group = server.json(&["group", "show", "g", "-o", "json"]);
    vec![shown, schedule, group]
}

#[test]
fn schedules_records_groups_and_dependencies_go_along() {
    let (mut from, last) = with_records();
    let before = records(&from);
    let online = from.run(&["export"]);
    assert_eq!(online.code, Some(0), "{online:?}");
    assert_eq!(online.stderr.trim_end(), "towline: exported 1 queue, 2 items, 1 schedule, 3 records");
    assert!(!online.stdout.contains("towline/token"), "{}", online.stdout);
    from.stop();
    let offline = export(&from.directory().join("data")).ok(&["export"]);
    let sorted = |export: &str| {
        let mut lines: Vec<String> = export.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(&online.stdout), sorted(&offline), "a quiet server exports what its store exports");

    let mut to = Server::start();
    to.stop();
    let target = to.directory().join("data");
    import(&online.stdout, &target).ok(&["import"]);
    let again = import(&online.stdout, &target);
    assert!(again.code == Some(1) && again.stderr.contains("already has queues"), "{again:?}");
    to.restart();
    assert_eq!(records(&to), before);
    // What was counted once is not counted again.
    assert_eq!(to.ok(&["kv", "increment", "counter", "--once", "first", "--ttl", "1h"]), "1");
    let (id, lease) = to.receive(&["jobs"]);
    assert_ne!(id, last);
    to.ok(&["item", "commit", &id, "--lease", &lease]);
    until("the dependency is resolved", || to.state(&last) == "pending");
}

#[test]
fn tokens_go_along_only_when_asked() {
    let (server, admin) = Server::start_asking(|_| Vec::new());
    let run = |args: &[&str], token: &str| Run::of(server.command(args).env("TOWLINE_TOKEN", token));
    let worker = run(&["token", "create", "worker", "--scope", "queue:*:read"], &admin).ok(&["token"]);
    let refused = run(&["export"], &worker);
    assert!(refused.code == Some(1) && refused.stderr.contains("admin"), "{refused:?}");
    let without = run(&["export"], &admin).ok(&["export"]);
    assert!(!without.contains("towline/token"), "{without}");
    let with = run(&["export", "--with-tokens"], &admin);
    assert!(with.stderr.contains("2 tokens"), "{with:?}");
    let with = with.ok(&["export"]);
    assert!(!with.contains(&admin) && !with.contains(&worker), "hashes alone");

    let (mut to, own) = Server::start_asking(|_| Vec::new());
    to.stop();
    let refused = import(&with, &to.directory().join("data"));
    assert!(refused.code == Some(1) && refused.stderr.contains("already has tokens"), "{refused:?}");
    to.restart();
    let own = Run::of(to.command(&["whoami"]).env("TOWLINE_TOKEN", &own)).ok(&["whoami"]);
    assert!(own.contains("ops"), "{own}");
    let new = Server::start_prepared(|directory| {
        import(&with, &directory.join("data")).ok(&["import"]);
        vec![("TOWLINE_REQUIRE_TOKENS".to_owned(), "true".to_owned())]
    });
    let shown = Run::of(new.command(&["whoami"]).env("TOWLINE_TOKEN", &worker)).ok(&["whoami"]);
    assert!(shown.contains("worker"), "{shown}");
}

#[test]
fn an_online_export_that_is_cut_is_not_taken_for_a_whole_one() {
    let mut from = busy();
    let file = from.directory().join("payload");
    std::fs::write(&file, large()).unwrap();
    let id = from.ok(&["queue", "submit", "dead", "--payload-file", file.to_str().unwrap()]);
    let cut = FaultyProxy::to(from.address(), |_| End::Cut(100_000));
    let run = Run::of(&mut towline(&["export", "--url", cut.url()]));
    assert!(run.code != Some(0) && !run.stdout.is_empty(), "{run:?}");
    // A payload that is gone ends the export, with the reason in its last line.
    std::fs::remove_dir_all(from.directory().join("data/buffers/fields")).unwrap();
    let failed = from.run(&["export"]);
    assert_eq!(failed.code, Some(1), "{failed:?}");
    assert!(failed.stderr.contains("is not complete") && failed.stderr.contains(&id), "{failed:?}");
    from.stop();
    let refused = import(&failed.stdout, &from.directory().join("new"));
    assert!(refused.code == Some(1) && refused.stderr.contains("the export failed"), "{refused:?}");
}
