//! `towline events` across restarts.

use crate::rig::{Lines, Run, Server, piped, towline};
use serde_json::Value;

fn event(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

fn server() -> Server {
    let server = Server::start();
    server.ok(&["queue", "create", "jobs"]);
    server
}

#[test]
fn events_are_printed_across_a_restart() {
    let mut server = server();
    let arguments = ["events", "--kind", "item.submitted", "--after", "oldest", "--limit", "3"];
    let mut child = piped(&mut server.command(&arguments)).spawn().unwrap();
    let first = server.ok(&["queue", "submit", "jobs"]);
    let (lines, line) = Lines::of(child.stdout.take().unwrap()).read();
    assert_eq!(event(&line)["item"], first.as_str());
    server.kill();
    server.restart();
    let rest = [server.ok(&["queue", "submit", "jobs"]), server.ok(&["queue", "submit", "jobs"])];
    let printed: Vec<String> =
        lines.rest().lines().map(|line| event(line)["item"].as_str().unwrap().to_owned()).collect();
    assert_eq!(printed, rest);
    assert_eq!(Run::end(child).code, Some(0));
}

#[test]
fn stored_events_are_printed_once() {
    let server = server();
    server.ok(&["queue", "create", "other"]);
    let id = server.ok(&["queue", "submit", "jobs"]);
    server.ok(&["queue", "submit", "other"]);
    server.ok(&["item", "cancel", &id, "--reason", "not\tneeded"]);
    let kinds = |arguments: &[&str]| -> Vec<String> {
        let printed = server.ok(&[&["events", "--once"], arguments].concat());
        printed.lines().map(|line| event(line)["kind"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(kinds(&["--item", &id]), ["item.submitted", "item.cancelled"]);
    assert_eq!(kinds(&["--queue", "jobs"]).len(), 3);
    assert_eq!(kinds(&["--queue", "jobs", "--queue", "other", "--kind", "queue.*"]).len(), 2);
    assert_eq!(kinds(&["--limit", "2"]).len(), 2);
    let first = event(server.ok(&["events", "--once", "--limit", "1"]).trim());
    assert_eq!(kinds(&["--after", first["id"].as_str().unwrap()]).len(), 4);
    // For people: one line per event, whatever the reason contains.
    let shown = server.ok(&["events", "--once", "--item", &id, "-o", "table"]);
    assert_eq!(shown.lines().count(), 2, "{shown}");
    assert!(shown.contains("item.cancelled") && shown.contains("(cancelled: not needed)"), "{shown}");
}

#[test]
fn the_exit_code_of_events_says_how_it_ended() {
    let server = server();
    for once in [&["--once"][..], &[]] {
        let gone = Run::of(&mut server.command(&[&["events", "--after", "00000000-1-0"], once].concat()));
        assert_eq!(gone.code, Some(1), "{gone:?}");
        assert!(gone.stderr.contains("no longer available"), "{gone:?}");
        let wrong = Run::of(&mut server.command(&[&["events", "--kind", "item.complete"], once].concat()));
        assert_eq!(wrong.code, Some(1), "{wrong:?}");
        assert!(wrong.stderr.contains("item.completed"), "{wrong:?}");
    }
    for absent in [&["events"][..], &["events", "--after", "oldest"], &["topic", "subscribe", "news"]] {
        let absent = Run::of(towline(absent).env("TOWLINE_URL", "http://127.0.0.1:1"));
        assert_eq!(absent.code, Some(3), "{absent:?}");
    }
    assert_eq!(Run::of(&mut towline(&["events", "--limit", "x"])).code, Some(2));
}
