//! Runs: jobs that read and write buffers.

use crate::rig::until;
use crate::{job, server, text, until_shown};

#[test]
fn a_run_reads_its_input_and_writes_its_output_and_its_log() {
    let server = server();
    job(
        &server,
        "upper",
        &["--input", "in", "--output", "out"],
        "tr a-z A-Z < $IN_PIPE > $OUT_PIPE; echo worked >&2",
    );
    let input = format!("in={}", server.buffer("hello"));
    let id = server.ok(&["run", "create", "--codespec", "upper", "--buffer", &input, "--tag", "team=a"]);
    server.ok(&["run", "wait", &id]);
    let run = server.json(&["run", "show", &id]);
    assert_eq!(
        (text(&run, "state"), &run["exit_code"], text(&run, "codespec")),
        ("succeeded", &0.into(), "upper@1")
    );
    assert!(
        run["node"].is_string() && run["started_at"].is_string() && run["finished_at"].is_string(),
        "{run}"
    );
    assert_eq!(server.ok(&["buffer", "read", text(&run["buffers"], "out")]), "HELLO");
    assert_eq!(server.ok(&["run", "logs", &id]), "worked");
    let stamped = server.ok(&["run", "logs", &id, "--timestamps"]);
    assert!(stamped.ends_with("Z worked") && stamped.starts_with("20"), "{stamped}");
    let listed = |args: &[&str]| server.json(&[&["run", "list"], args].concat()).as_array().unwrap().len();
    assert_eq!([listed(&[]), listed(&["--tag", "team=a"]), listed(&["--tag", "team=b"])], [1, 1, 0]);
    assert_eq!([listed(&["--state", "succeeded"]), listed(&["--state", "Failed"])], [1, 0]);
    assert_eq!([listed(&["--codespec", "upper"]), listed(&["--codespec", "upper@2"])], [1, 0]);
}

#[test]
fn run_exec_is_like_the_program_itself() {
    let server = server();
    job(&server, "sort", &["--input", "in", "--output", "out"], "sort $IN_PIPE > $OUT_PIPE; echo sorted >&2");
    let sorted = server.feed(&["run", "exec", "--codespec", "sort"], "b\na\n");
    assert_eq!((sorted.code, sorted.stdout.as_str()), (Some(0), "a\nb\n"), "{}", sorted.stderr);
    assert!(sorted.stderr.contains("sorted"), "{}", sorted.stderr);
    job(&server, "fails", &[], "echo 'no such luck'; exit 7");
    let failed = server.run(&["run", "exec", "--codespec", "fails"]);
    assert_eq!(failed.code, Some(7), "{}", failed.stderr);
    assert!(failed.stderr.contains("no such luck") && failed.stderr.contains("code 7"), "{}", failed.stderr);
}

#[test]
fn an_output_that_was_never_opened_is_empty_and_one_of_a_failed_run_fails() {
    let server = server();
    job(&server, "silent", &["--output", "out"], "true");
    let id = server.ok(&["run", "create", "--codespec", "silent"]);
    server.ok(&["run", "wait", &id]);
    let out = text(&server.json(&["run", "show", &id])["buffers"], "out").to_owned();
    let buffer = server.json(&["buffer", "show", &out]);
    assert_eq!((text(&buffer, "state"), &buffer["bytes"]), ("complete", &0.into()));
    job(&server, "half", &["--output", "out"], "echo half > $OUT_PIPE; exit 1");
    let id = server.ok(&["run", "create", "--codespec", "half"]);
    assert_eq!(server.run(&["run", "wait", &id]).code, Some(1));
    let out = text(&server.json(&["run", "show", &id])["buffers"], "out").to_owned();
    assert_eq!(text(&server.json(&["buffer", "show", &out]), "state"), "failed");
}

#[test]
fn parameters_and_variables_reach_the_program() {
    let server = server();
    let script = "echo \"$PARAM_MY_NAME|$PARAM_NUMBER|$GREETING|$1|$LD_PRELOAD|$TOWLINE_SECRET\"";
    let create = ["codespec", "create", "echo", "--env", "GREETING=hi $(PARAM_MY_NAME)", "--command", "--"];
    server.ok(&[&create[..], &["sh", "-c", script, "x", "$(GREETING) $$(GREETING)"]].concat());
    let params = ["--param", "my-name=ann", "--param", "number:=[1,2]"];
    let echoed = server.run(&[&["run", "exec", "--codespec", "echo"], &params[..]].concat());
    assert!(echoed.stderr.contains("ann|[1,2]|hi ann|hi ann $(GREETING)||\n"), "{}", echoed.stderr);
}

#[test]
fn a_run_is_canceled_while_it_waits_and_while_it_runs() {
    let server = server();
    job(&server, "sleep", &[], "trap 'echo stopping; exit 0' TERM; while true; do sleep 0.05; done");
    let waits = server.ok(&["run", "create", "--codespec", "sleep", "--pool", "nowhere"]);
    let shown = server.json(&["run", "show", &waits]);
    assert!(text(&shown, "reason").contains("no node serves pool \"nowhere\""), "{shown}");
    server.ok(&["run", "cancel", &waits, "--reason", "not needed"]);
    let shown = server.json(&["run", "show", &waits]);
    assert_eq!((text(&shown, "state"), text(&shown, "reason")), ("canceled", "not needed"));
    let runs = server.ok(&["run", "create", "--codespec", "sleep"]);
    until_shown(&server, &["run", "show", &runs], |run| run["state"] == "running");
    let canceling = server.json(&["-o", "json", "run", "cancel", &runs]);
    assert!(["canceling", "canceled"].contains(&text(&canceling, "state")), "{canceling}");
    let run = until_shown(&server, &["run", "show", &runs], |run| run["state"] == "canceled");
    assert!(run["finished_at"].is_string(), "{run}");
    assert_eq!(server.run(&["run", "cancel", &runs]).code, Some(1), "it has ended");
    assert!(server.ok(&["run", "logs", &runs]).contains("stopping"));
}

#[test]
fn a_run_that_exceeds_its_timeout_fails() {
    let server = server();
    job(&server, "sleep", &[], "sleep 600");
    let id = server.ok(&["run", "create", "--codespec", "sleep", "--timeout", "1s"]);
    let waited = server.run(&["run", "wait", &id]);
    assert!(waited.code == Some(1) && waited.stderr.contains("timeout of 1s"), "{}", waited.stderr);
    assert_eq!(text(&server.json(&["run", "show", &id]), "state"), "failed");
}

#[test]
fn a_log_can_be_followed_while_the_run_writes_it() {
    let server = server();
    let gate = server.directory().join("gate");
    job(
        &server,
        "talk",
        &[],
        &format!("echo one; while [ ! -e {} ]; do sleep 0.05; done; echo two", gate.display()),
    );
    let id = server.ok(&["run", "create", "--codespec", "talk"]);
    until("it is so", || server.run(&["run", "logs", &id]).stdout == "one\n");
    let follower = server
        .command(&["run", "logs", &id, "--follow"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    std::fs::write(gate, "").unwrap();
    let followed = follower.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(followed.stdout).unwrap(), "one\ntwo\n");
    assert_eq!(server.ok(&["run", "logs", &id, "--tail", "1"]), "two");
}

#[test]
fn the_same_idempotency_key_is_the_same_run() {
    let server = server();
    job(&server, "quick", &["--output", "out"], "true");
    let create = |key: &str| server.ok(&["run", "create", "--codespec", "quick", "--idempotency-key", key]);
    let first = create("k");
    assert_eq!(create("k"), first);
    assert_ne!(create("l"), first);
    let other = ["run", "create", "--codespec", "quick", "--idempotency-key", "k", "--env", "A=1"];
    assert!(server.run(&other).stderr.contains(&first));
}

#[test]
fn a_run_from_a_file_with_its_codespec() {
    let server = server();
    let file = server.directory().join("run.yml");
    let yaml = "codespec:\n  command: [sh, -c, 'echo $WORD > $OUT_PIPE']\n  buffers:\n    outputs: [out]\nenv:\n  WORD: deed\n";
    std::fs::write(&file, yaml).unwrap();
    let run = server.feed(&["run", "exec", "-f", file.to_str().unwrap()], "");
    assert_eq!((run.code, run.stdout.as_str()), (Some(0), "deed\n"), "{}", run.stderr);
}
