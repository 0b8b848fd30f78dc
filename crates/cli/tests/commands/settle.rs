//! The verbs of a lease holder and of an operator.

use crate::rig::Server;

fn server() -> Server {
    let server = Server::start();
    server.ok(&["queue", "create", "jobs"]);
    server
}

fn held(server: &Server) -> (String, String) {
    server.ok(&["queue", "submit", "jobs", "--payload", "work"]);
    server.receive(&["jobs"])
}

#[test]
fn each_verb_leaves_the_item_where_it_says_and_prints_nothing() {
    let server = server();
    let output = format!("a={}", server.buffer("result"));
    for (verb, args, state) in [
        ("heartbeat", &["--visibility-timeout", "10m"][..], "processing"),
        ("edit", &["--set", "payload=other"], "processing"),
        ("commit", &["--output", &output, "--output-param", "score:=0.5"], "completed"),
        ("fail", &["--reason", "cannot"], "failed"),
        ("retry", &["--error", "not yet", "--delay", "1h"], "scheduled"),
        ("release", &[], "pending"),
        ("release", &["--delay", "1h"], "scheduled"),
        ("defer", &["--until", "2040-01-01T00:00:00Z"], "scheduled"),
        ("defer", &["--delay", "1h", "--priority", "-3"], "scheduled"),
    ] {
        let (id, lease) = held(&server);
        let run = server.run(&[&["queue", "item", verb, &id, "--lease", &lease][..], args].concat());
        assert_eq!((run.code, run.stdout.as_str(), run.stderr.as_str()), (Some(0), "", ""), "{verb}");
        assert_eq!(server.state(&id), state, "{verb}");
        server.ok(&["item", "delete", &id, "--force"]);
    }
}

#[test]
fn json_output_prints_the_answer() {
    let server = server();
    let (id, lease) = held(&server);
    let beat = server.json(&["item", "heartbeat", &id, "--lease", &lease, "-o", "json"]);
    assert!(beat["lease_expires_at"].is_string());
    assert_eq!(server.json(&["item", "commit", &id, "--lease", &lease, "-o", "json"])["state"], "completed");
}

#[test]
fn a_commit_submits_the_items_of_a_file_and_prints_their_ids() {
    let server = server();
    server.ok(&["queue", "create", "next"]);
    let file = server.directory().join("next.json");
    let path = file.to_str().unwrap();
    let (id, lease) = held(&server);
    for (wrong, words) in [
        (r#"[{"queue": "next"}, {"queue": "missing"}]"#, "then_submit[1]: no queue named \"missing\""),
        (r#"{"queue": "next", "itme": {}}"#, "itme"),
        ("next", "--then-submit"),
    ] {
        std::fs::write(&file, wrong).unwrap();
        let run = server.run(&["item", "commit", &id, "--lease", &lease, "--then-submit", path]);
        assert_ne!(run.code, Some(0), "{wrong}: {run:?}");
        assert!(run.stderr.contains(words), "{wrong}: {run:?}");
        assert_eq!(server.state(&id), "processing");
    }
    std::fs::write(&file, r#"[{"queue": "next", "item": {"params": {"n": 1}}}, {"queue": "next"}]"#).unwrap();
    let ids = server.ok(&["item", "commit", &id, "--lease", &lease, "--then-submit", path]);
    let ids: Vec<&str> = ids.lines().collect();
    assert_eq!(ids.len(), 2, "{ids:?}");
    assert_eq!(server.json(&["item", "show", ids[0]])["parent"], id);
    // One item from standard input.
    let (id, lease) = held(&server);
    let args = ["item", "commit", &id, "--lease", &lease, "--then-submit", "-", "-o", "json"];
    let run = server.feed(&args, r#"{"queue": "next"}"#);
    let answer: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(answer["handed_off"].as_array().map(Vec::len), Some(1), "{run:?}");
}

#[test]
fn a_lease_holder_changes_fields_and_moves_the_item() {
    let server = server();
    server.ok(&["queue", "create", "slow"]);
    let (id, lease) = held(&server);
    let file = server.directory().join("state");
    std::fs::write(&file, "step 2").unwrap();
    let set = format!("state_blob=@{}", file.display());
    let args = [
        "item",
        "release",
        &id,
        "--lease",
        &lease,
        "--set",
        &set,
        "--set",
        "metadata=@-",
        "--unset",
        "payload",
    ];
    let run = server.feed(&[&args[..], &["--queue", "slow", "--priority", "9"]].concat(), "from a pipe");
    assert_eq!(run.code, Some(0), "{run:?}");
    let shown = server.json(&["item", "show", &id]);
    assert_eq!((&shown["queue"], &shown["priority"]), (&"slow".into(), &9.into()));
    assert_eq!((&shown["state_blob"], &shown["metadata"]), (&"c3RlcCAy".into(), &"ZnJvbSBhIHBpcGU=".into()));
    assert_eq!(shown.get("payload"), None);
}

#[test]
fn a_foreign_lease_is_refused() {
    let server = server();
    let (id, lease) = held(&server);
    for wrong in ["0123456789abcdef0123456789abcdef", "nonsense"] {
        let run = server.run(&["item", "commit", &id, "--lease", wrong]);
        assert_eq!(run.code, Some(1), "{run:?}");
    }
    server.ok(&["item", "commit", &id, "--lease", &lease]);
    server.ok(&["item", "commit", &id, "--lease", &lease]);
    assert_eq!(server.run(&["item", "fail", &id, "--lease", &lease]).code, Some(1));
}

#[test]
fn a_commit_waits_for_a_server_that_restarts() {
    let mut server = server();
    let (id, lease) = held(&server);
    server.kill();
    let commit = server.command(&["item", "commit", &id, "--lease", &lease]).spawn().unwrap();
    server.restart();
    assert_eq!(crate::rig::Run::end(commit).code, Some(0));
    assert_eq!(server.state(&id), "completed");
}

#[test]
fn an_operator_cancels_pauses_resumes_redrives_and_deletes() {
    let server = server();
    let (first, second) = (server.ok(&["queue", "submit", "jobs"]), server.ok(&["queue", "submit", "jobs"]));
    let states = || (server.state(&first), server.state(&second));
    let both = |verb: &str| server.run(&["item", verb, &first, &second]);
    for (verb, state) in
        [("pause", "paused"), ("resume", "pending"), ("cancel", "failed"), ("redrive", "pending")]
    {
        let run = both(verb);
        assert_eq!((run.code, run.stdout.as_str()), (Some(0), ""), "{verb}: {run:?}");
        assert_eq!(states(), (state.to_owned(), state.to_owned()), "{verb}");
    }
    server.ok(&["item", "delete", &first]);
    let run = both("delete");
    assert_eq!(run.code, Some(1), "one item was removed: {run:?}");
    assert!(run.stderr.contains(&first), "{run:?}");
    assert_eq!(server.run(&["item", "show", &second]).code, Some(1), "the other item was deleted");
}
