//! Tokens of servers that share a store.

use crate::migrate::url;
use crate::postgres::Own;
use crate::rig::{Run, Server, piped, towline, until};

fn run(server: &Server, token: &str, args: &[&str]) -> Run {
    Run::of(server.command(args).env("TOWLINE_TOKEN", token))
}

/// One database and several shards behave the same.
fn a_token_holds_everywhere_and_its_end_too(databases: &[Own]) {
    let urls: Vec<String> = databases.iter().map(url).collect();
    let mut args = vec!["token", "create", "ops", "--scope", "admin"];
    for url in &urls {
        args.extend(["--store", url]);
    }
    // Create the first token before a server runs.
    let admin = Run::of(&mut towline(&args)).ok(&args);
    let stores = urls.join(" ");
    let start = || Server::start_with(&[("TOWLINE_STORE", &stores), ("TOWLINE_REQUIRE_TOKENS", "true")]);
    let (one, other) = (start(), start());
    run(&one, &admin, &["queue", "create", "jobs"]).ok(&["create"]);
    let create = ["token", "create", "worker", "--scope", "queue:jobs:receive"];
    let worker = run(&one, &admin, &create).ok(&create);
    run(&other, &worker, &["queue", "receive", "jobs"]).ok(&["receive"]);
    let mut waiting = other.command(&["queue", "receive", "jobs", "--wait", "5m"]);
    let waiting = piped(waiting.env("TOWLINE_TOKEN", &worker)).spawn().unwrap();

    let id = worker.split('_').nth(1).unwrap();
    run(&one, &admin, &["token", "revoke", id]).ok(&["revoke"]);
    assert_eq!(run(&one, &worker, &["whoami"]).code, Some(1), "at once at the server that revoked it");
    until("the other server refuses the token", || run(&other, &worker, &["whoami"]).code == Some(1));
    // Revoking the token also ends a waiting call at the other server.
    let ended = Run::end(waiting);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    run(&other, &admin, &["queue", "list"]).ok(&["list"]);
}

#[test]
fn on_one_database() {
    a_token_holds_everywhere_and_its_end_too(&[Own::start()]);
}

#[test]
fn on_several_databases() {
    a_token_holds_everywhere_and_its_end_too(&[Own::start(), Own::start()]);
}
