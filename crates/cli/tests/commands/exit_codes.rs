//! Exit codes: 0 success, 1 refused or failed, 2 usage error, 3 no server answered or TLS failed, 4 timeout.

use crate::rig::{Run, Server, towline};

/// No server listens here.
const NOWHERE: &str = "http://127.0.0.1:1";

fn run(args: &[&str]) -> Run {
    Run::of(&mut towline(args))
}

#[test]
fn a_usage_error_exits_with_2_and_names_the_value() {
    for (args, words) in [
        (&["queue", "receive", "q", "--wait", "30"][..], &["30s", "--wait"][..]),
        (&["queue", "create", "q", "--item-ttl", "7"], &["7d"]),
        (&["queue", "create", "q", "--backoff", "tigre"], &["tyger"]),
        (&["queue", "create", "q", "--order", "lifo"], &["fifo"]),
        (&["queue", "submit", "q", "--input", "slot"], &["name=value"]),
        (&["queue", "submit", "q", "--input-param", "a:={"], &["JSON"]),
        (&["queue", "submit", "q", "--input-param", "a=1", "--input-param", "a=2"], &["twice"]),
        (&["queue", "submit", "q", "--at", "tomorrow"], &["2030-01-31T08:00:00Z"]),
        (&["queue", "submit", "q", "--delay", "1s", "--at", "2030-01-31T08:00:00Z"], &["--delay"]),
        (&["queue", "update", "q"], &["nothing to change"]),
        (&["queue", "item", "show", "abc"], &["abc", "UUID"]),
        (&["queue", "items", "purge", "q"], &["--state"]),
        (&["queue", "frobnicate"], &["frobnicate"]),
        (&["buffer", "read", "b", "--range", "9-5"], &["--range", "9-5"]),
        (&["buffer", "read", "b", "--resume"], &["--output"]),
        (&["buffer", "write", "b", "--resume"], &["--input"]),
        (&["buffer", "create", "--ttl", "7"], &["7d"]),
        (&["queue", "list", "--url", "ftp://x"], &["ftp://x"]),
        (&["queue", "list", "--token-file", "/does/not/exist"], &["/does/not/exist"]),
    ] {
        let run = run(args);
        assert_eq!(run.code, Some(2), "{args:?}: {run:?}");
        assert!(run.stderr.starts_with("towline: "), "{run:?}");
        assert!(words.iter().all(|word| run.stderr.contains(word)), "{args:?}: {run:?}");
        assert_eq!(run.stdout, "", "{args:?}");
    }
}

#[test]
fn a_wrong_flag_of_a_compute_command_exits_with_2_and_names_it() {
    for command in ["service", "trigger", "codespec", "run"] {
        let run = run(&[command, "create", "--whatever", "x"]);
        assert_eq!(run.code, Some(2), "{run:?}");
        assert!(run.stderr.contains("--whatever") && run.stderr.contains(command), "{run:?}");
    }
}

#[test]
fn no_server_exits_with_3_and_says_how_to_start_one() {
    for args in [
        &["queue", "list"][..],
        &["queue", "submit", "q"],
        &["queue", "submit", "q", "--bulk"],
        &["queue", "receive", "q"],
        &["item", "show", "0199aa3d-98e9-7000-8000-0d81c4c5fb00"],
        &["buffer", "create"],
        &["buffer", "write", "b"],
        &["buffer", "read", "b"],
    ] {
        let run = run(&[args, &["--url", NOWHERE]].concat());
        assert_eq!(run.code, Some(3), "{args:?}: {run:?}");
        assert!(run.stderr.contains("towline serve") && run.stderr.contains(NOWHERE), "{run:?}");
    }
}

#[test]
fn a_refusal_exits_with_1_and_the_message_of_the_server() {
    let server = Server::start();
    server.ok(&["queue", "create", "jobs", "--input-param", "size"]);
    for (args, words) in [
        (&["queue", "show", "nope"][..], "nope"),
        (&["queue", "submit", "jobs", "--input-param", "width=3"], "width"),
        (&["queue", "create", "jobs", "--max-retries", "9"], "jobs"),
        (&["queue", "receive", "jobs", "--fields", "blub"], "blub"),
        (&["queue", "submit", "jobs", "--input-param", "size=3", "--input", "data=nothing"], "nothing"),
        (&["item", "show", "0199aa3d-98e9-7000-8000-0d81c4c5fb00"], "0199aa3d"),
    ] {
        let run = server.run(args);
        assert_eq!(run.code, Some(1), "{args:?}: {run:?}");
        assert!(run.stderr.starts_with("towline: ") && run.stderr.contains(words), "{run:?}");
        assert_eq!(run.stdout, "", "{args:?}");
    }
}

#[test]
fn a_token_comes_from_a_file_or_the_environment_and_no_flag() {
    let server = Server::start();
    let file = server.directory().join("token");
    std::fs::write(&file, "secret\n").unwrap();
    server.ok(&["queue", "list", "--token-file", file.to_str().unwrap()]);
    assert_eq!(Run::of(server.command(&["queue", "list"]).env("TOWLINE_TOKEN", "secret")).code, Some(0));
    assert_eq!(server.run(&["queue", "list", "--token", "secret"]).code, Some(2));
    std::fs::write(&file, "").unwrap();
    assert_eq!(server.run(&["queue", "list", "--token-file", file.to_str().unwrap()]).code, Some(2));
}
