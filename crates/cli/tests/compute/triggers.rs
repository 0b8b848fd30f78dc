//! Triggers: a run for each item of a queue.

use crate::rig::Server;
use crate::{job, server, text, until_shown};

fn queues(server: &Server) {
    server.ok(&[
        "queue",
        "create",
        "requests",
        "--input",
        "raw_signal",
        "--output",
        "reconstructed",
        "--max-retries",
        "1",
        "--backoff",
        "none",
    ]);
    server.ok(&["queue", "create", "notifications", "--input", "data"]);
}

/// The command of the document.
fn trigger(server: &Server, more: &[&str]) {
    let create = [
        "trigger",
        "create",
        "my-trigger",
        "--codespec",
        "image-processor",
        "--input-queue",
        "requests",
        "--input-mapping",
        "raw_signal=input",
        "--output-mapping",
        "reconstructed=output",
        "--output-queue",
        "notifications:data=output",
    ];
    assert_eq!(server.ok(&[&create[..], more].concat()), "my-trigger");
}

fn submit(server: &Server, content: &str, more: &[&str]) -> String {
    let input = format!("raw_signal={}", server.buffer(content));
    server.ok(&[&["queue", "submit", "requests", "--input", &input], more].concat())
}

#[test]
fn each_item_is_run_and_its_outputs_go_to_the_item_and_to_the_output_queue() {
    let server = server();
    queues(&server);
    job(
        &server,
        "image-processor",
        &["--input", "input", "--output", "output"],
        "tr a-z A-Z < $INPUT_PIPE > $OUTPUT_PIPE; echo made >&2",
    );
    trigger(&server, &["--concurrency", "3"]);
    let items: Vec<String> = ["one", "two", "three"].map(|word| submit(&server, word, &[])).into();
    for (item, word) in items.iter().zip(["ONE", "TWO", "THREE"]) {
        server.ok(&["queue", "item", "wait", item]);
        let shown = server.json(&["queue", "item", "show", item]);
        assert_eq!(server.ok(&["buffer", "read", text(&shown["outputs"], "reconstructed")]), word);
        let run = server.json(&["run", "show", item]);
        assert_eq!((text(&run, "state"), text(&run, "trigger")), ("succeeded", "my-trigger"), "{run}");
        assert_eq!(server.ok(&["run", "logs", item]), "made");
    }
    let mut words = Vec::new();
    for item in server.json(&["queue", "items", "list", "notifications"]).as_array().unwrap() {
        assert!(items.iter().any(|parent| item["parent"] == **parent), "{item}");
        words.push(server.ok(&["buffer", "read", text(&item["inputs"], "data")]));
    }
    words.sort();
    assert_eq!(words, ["ONE", "THREE", "TWO"]);
    assert_eq!(server.json(&["run", "list", "--trigger", "my-trigger"]).as_array().unwrap().len(), 3);
}

#[test]
fn a_run_that_fails_is_a_counted_retry_with_its_error() {
    let server = server();
    queues(&server);
    job(&server, "image-processor", &["--input", "input", "--output", "output"], "exit 4");
    trigger(&server, &[]);
    let item = submit(&server, "x", &[]);
    assert_eq!(server.run(&["queue", "item", "wait", &item]).code, Some(1));
    let shown = server.json(&["queue", "item", "show", &item]);
    assert_eq!(
        (text(&shown, "failure"), shown["errors"].as_array().unwrap().len()),
        ("retries_exhausted", 2),
        "{shown}"
    );
    assert!(text(&shown["errors"][0], "message").contains("exited with code 4"), "{shown}");
    assert_eq!(server.json(&["queue", "counts", "notifications"])["pending"], 0);
}

#[test]
fn parameters_of_items_cannot_set_what_a_loader_or_a_shell_obeys() {
    let server = server();
    server.ok(&["queue", "create", "open"]);
    job(&server, "env", &["--output", "out"], "env > $OUT_PIPE");
    server.ok(&["trigger", "create", "t", "--codespec", "env", "--input-queue", "open"]);
    let params =
        ["--input-param", "LD_PRELOAD=/evil.so", "--input-param", "PATH=/evil", "--input-param", "n:=5"];
    let item = server.ok(&[&["queue", "submit", "open"], &params[..]].concat());
    server.ok(&["queue", "item", "wait", &item]);
    let shown = server.json(&["queue", "item", "show", &item]);
    let variables = server.ok(&["buffer", "read", text(&shown["outputs"], "out")]);
    let variables: Vec<&str> = variables.lines().collect();
    assert!(
        variables.contains(&"PARAM_LD_PRELOAD=/evil.so") && variables.contains(&"PARAM_N=5"),
        "{variables:?}"
    );
    assert!(
        !variables.iter().any(|line| line.starts_with("LD_PRELOAD=") || line.starts_with("PATH=/evil")),
        "{variables:?}"
    );
}

#[test]
fn a_trigger_with_concurrency_0_starts_nothing_until_it_is_scaled() {
    let server = server();
    queues(&server);
    job(&server, "image-processor", &["--input", "input", "--output", "output"], "true");
    trigger(&server, &["--concurrency", "0"]);
    let item = submit(&server, "x", &[]);
    let shown = server.json(&["trigger", "show", "my-trigger"]);
    assert_eq!((&shown["concurrency"], &shown["slots_held"]), (&0.into(), &0.into()));
    assert_eq!(server.state(&item), "pending");
    server.ok(&["trigger", "scale", "my-trigger", "--concurrency", "2"]);
    server.ok(&["queue", "item", "wait", &item]);
    until_shown(&server, &["trigger", "show", "my-trigger"], |shown| shown["slots_held"] == 2);
    server.ok(&["trigger", "delete", "my-trigger"]);
    assert_eq!(server.run(&["trigger", "show", "my-trigger"]).code, Some(1));
}

#[test]
fn what_cannot_fit_is_refused_at_creation() {
    let server = Server::start();
    queues(&server);
    server.ok(&["queue", "create", "scored", "--input", "data", "--output-param", "score"]);
    job(&server, "image-processor", &["--input", "input", "--output", "output"], "true");
    let refused = |args: &[&str]| {
        let run = server.run(&[&["trigger", "create", "t", "--codespec", "image-processor"], args].concat());
        assert_eq!(run.code, Some(1), "{args:?} {}", run.stdout);
        run.stderr
    };
    let fitting = [
        "--input-queue",
        "requests",
        "--input-mapping",
        "raw_signal=input",
        "--output-mapping",
        "output=reconstructed",
    ];
    for (args, part) in [
        (&["--input-queue", "absent"][..], "no queue named \"absent\""),
        (&["--input-queue", "requests"], "\"raw_signal\" of queue \"requests\" is required"),
        (&["--input-queue", "requests", "--input-mapping", "nope=input"], "the slots raw_signal"),
        (&["--input-queue", "requests", "--input-mapping", "raw_signal=nope"], "the parameters input"),
        (&fitting[..4], "output slot \"reconstructed\""),
        (
            &["--input-queue", "scored", "--input-mapping", "data=input"],
            "requires the output parameter \"score\"",
        ),
        (
            &[&fitting[..], &["--output-queue", "notifications"]].concat(),
            "\"data\" of queue \"notifications\" is required",
        ),
    ] {
        let message = refused(args);
        assert!(message.contains(part), "{args:?}: {message}");
    }
    server.ok(&[&["trigger", "create", "first", "--codespec", "image-processor"], &fitting[..]].concat());
    let message = refused(&fitting);
    assert!(message.contains("has a trigger already: \"first\""), "{message}");
    // A consumer besides the trigger is a note, not an error.
    server.ok(&["codespec", "create", "loop", "--queue", "jobs", "--command", "--", "true"]);
    let made = server.run(&[
        "service",
        "create",
        "s",
        "--codespec",
        "loop",
        "--queue",
        "jobs=requests",
        "--replicas",
        "0",
    ]);
    assert!(
        made.code == Some(0) && made.stderr.contains("trigger \"first\" consumes queue \"requests\", too"),
        "{}",
        made.stderr
    );
}

#[test]
fn a_deleted_queue_ends_the_runs_of_its_trigger() {
    let server = server();
    queues(&server);
    let marker = server.directory().join("stopped");
    let script = format!("trap 'touch {}; exit 0' TERM; while true; do sleep 0.05; done", marker.display());
    job(&server, "image-processor", &["--input", "input", "--output", "output"], &script);
    trigger(&server, &[]);
    let item = submit(&server, "x", &[]);
    until_shown(&server, &["run", "show", &item], |run| run["state"] == "running");
    // A client cancels the run of one item.
    server.ok(&["run", "cancel", &item]);
    until_shown(&server, &["run", "show", &item], |run| run["state"] == "canceled");
    assert!(marker.exists());
    let second = submit(&server, "y", &[]);
    until_shown(&server, &["run", "show", &second], |run| run["state"] == "running");
    server.ok(&["queue", "delete", "requests", "--force"]);
    let shown = server.json(&["trigger", "show", "my-trigger"]);
    assert!(shown["notes"][0].as_str().unwrap().contains("does not exist"), "{shown}");
}
