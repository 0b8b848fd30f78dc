//! A node that dies leaves no process behind, and another node takes its work.

use crate::rig::{Server, until};
use crate::{job, text, until_shown};
use std::path::Path;
use std::process::Child;

fn node(server: &Server, name: &str) -> Child {
    let directory = server.directory().join("nodes");
    let args = ["node", "--name", name, "--directory", directory.to_str().unwrap()];
    server.command(&args).stderr(std::process::Stdio::null()).spawn().unwrap()
}

/// The processes whose arguments contain a text.
fn processes(mark: &str) -> usize {
    let is_of = |path: &Path| {
        std::fs::read(path.join("cmdline")).is_ok_and(|words| String::from_utf8_lossy(&words).contains(mark))
    };
    std::fs::read_dir("/proc").unwrap().filter(|entry| is_of(&entry.as_ref().unwrap().path())).count()
}

#[test]
fn a_killed_node_leaves_no_process_and_another_takes_over() {
    let server = Server::start();
    let mark = format!("mark-{}", server.address());
    server.ok(&["queue", "create", "requests"]);
    // The inner shell is a process that only the guardian can find.
    let script = format!("sh -c 'sleep 600 & wait # {mark}' & wait");
    server.ok(&["codespec", "create", "code", "--queue", "jobs", "--command", "--", "sh", "-c", &script]);
    server.ok(&[
        "service",
        "create",
        "s",
        "--codespec",
        "code",
        "--queue",
        "jobs=requests",
        "--replicas",
        "3",
    ]);
    let gate = server.directory().join("gate");
    job(
        &server,
        "waits",
        &["--output", "out"],
        &format!("while [ ! -e {} ]; do sleep 0.1; done; echo done > $OUT_PIPE", gate.display()),
    );
    let run = server.ok(&["run", "create", "--codespec", "waits"]);
    let mut first = node(&server, "first");
    until_shown(&server, &["service", "show", "s"], |shown| shown["running"] == 3);
    until_shown(&server, &["run", "show", &run], |run| run["state"] == "running");
    assert!(processes(&mark) >= 3);
    first.kill().unwrap();
    first.wait().unwrap();
    until("it is so", || processes(&mark) == 0);
    let mut second = node(&server, "second");
    let shown = until_shown(&server, &["service", "show", "s"], |shown| {
        shown["running"] == 3
            && shown["replica_list"].as_array().unwrap().iter().all(|one| one["node"] == "second")
    });
    assert_eq!(text(&shown, "state"), "running");
    std::fs::write(gate, "").unwrap();
    server.ok(&["run", "wait", &run]);
    let shown = server.json(&["run", "show", &run]);
    assert_eq!((text(&shown, "node"), &shown["attempt"]), ("second", &2.into()), "{shown}");
    assert_eq!(server.ok(&["buffer", "read", text(&shown["buffers"], "out")]), "done");
    // A node that gets SIGTERM gives its work back at once, and leaves no process either.
    crate::rig::signal(second.id(), rustix::process::Signal::TERM);
    second.wait().unwrap();
    until("it is so", || processes(&mark) == 0);
    let shown = server.json(&["service", "show", "s"]);
    assert!(shown["replica_list"].as_array().unwrap().iter().all(|one| one["state"] == "pending"), "{shown}");
    assert_eq!(
        server.json(&["node", "list"]).as_array().unwrap().len(),
        1,
        "the killed one is still listed for a while"
    );
}

#[test]
fn a_killed_server_with_its_own_node_continues_after_its_restart() {
    let mut server = crate::server();
    let mark = format!("mark-{}", server.address());
    let script = format!("sleep 600 # {mark}\n");
    server.ok(&["codespec", "create", "code", "--kind", "service", "--command", "--", "sh", "-c", &script]);
    server.ok(&["service", "create", "s", "--codespec", "code", "--replicas", "2"]);
    until_shown(&server, &["service", "show", "s"], |shown| shown["running"] == 2);
    server.kill();
    until("it is so", || processes(&mark) == 0);
    server.restart();
    until_shown(&server, &["service", "show", "s"], |shown| shown["running"] == 2);
    server.stop();
    until("it is so", || processes(&mark) == 0);
}
