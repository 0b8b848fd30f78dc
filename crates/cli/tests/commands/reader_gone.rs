//! The reader of the output may close the pipe: no panic, no message, and no item stays leased.

use crate::rig::{Run, Server};

fn bash(server: &Server, script: &str) -> Run {
    Run::of(&mut server.script(&format!("set -o pipefail; {script}")))
}

#[test]
fn a_list_into_head_ends_quietly() {
    let server = Server::start();
    server.ok(&["queue", "create", "jobs"]);
    server.feed(
        &["queue", "submit", "jobs", "--bulk"],
        &"{\"params\":{\"a\":\"bbbbbbbbbbbb\"}}\n".repeat(5000),
    );
    for format in ["json", "ndjson", "table"] {
        let run = bash(&server, &format!("towline queue items list jobs -o {format} | head -1"));
        assert_eq!((run.code, run.stdout.lines().count(), run.stderr.as_str()), (Some(0), 1, ""), "{format}");
    }
    for command in ["queue list", "completions bash", "man", "queue --help"] {
        let run = bash(&server, &format!("towline {command} | true"));
        assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{command}");
    }
}

#[test]
fn all_lines_are_submitted_after_the_reader_closed_the_pipe() {
    let server = Server::start();
    server.ok(&["queue", "create", "jobs"]);
    let file = server.directory().join("items");
    std::fs::write(&file, "{}\n".repeat(5000)).unwrap();
    let run = bash(&server, &format!("towline queue submit jobs --bulk < {} | head -1", file.display()));
    assert_eq!((run.code, run.stdout.lines().count(), run.stderr.as_str()), (Some(0), 1, ""));
    assert_eq!(server.json(&["queue", "counts", "jobs"])["pending"], 5000);
}

#[test]
fn watch_ends_with_its_reader_and_returns_its_items() {
    let server = Server::start();
    server.ok(&["queue", "create", "jobs"]);
    for _ in 0..10 {
        server.ok(&["queue", "submit", "jobs"]);
    }
    let run = bash(&server, "towline queue watch jobs | head -2");
    assert_eq!((run.code, run.stdout.lines().count(), run.stderr.as_str()), (Some(0), 2, ""));
    let counts = server.json(&["queue", "counts", "jobs"]);
    // One more item may have been on its way when the reader closed the pipe.
    let processing = counts["processing"].as_u64().unwrap();
    assert!((2..=3).contains(&processing), "{counts}");
}
