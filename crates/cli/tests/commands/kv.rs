//! `towline kv` and `towline topic`.

use crate::rig::{Run, Server, piped, until};

#[test]
fn records_are_set_counted_listed_and_deleted() {
    let server = Server::start();
    assert_eq!(server.run(&["kv", "get", "a/b"]).code, Some(1));
    server.ok(&["kv", "set", "a/b", "two words"]);
    assert_eq!(server.ok(&["kv", "get", "a/b"]), "two words");
    server.ok(&["kv", "set", "a/c", "--if-absent", "mine", "--ttl", "1h"]);
    let taken = server.run(&["kv", "set", "a/c", "yours", "--if-absent"]);
    assert_eq!(taken.code, Some(1));
    assert!(taken.stderr.contains("exists already"), "{taken:?}");
    assert_eq!(server.ok(&["kv", "increment", "n"]), "1");
    assert_eq!(server.ok(&["kv", "increment", "n", "--by", "-5"]), "-4");
    for _ in 0..2 {
        let once = ["kv", "increment", "n", "--by", "10", "--once", "order 7", "--ttl", "1h"];
        assert_eq!(server.ok(&once), "6");
    }
    let forever = server.run(&["kv", "increment", "n", "--once", "x"]);
    assert_eq!(forever.code, Some(2), "{forever:?}");
    let listed = server.json(&["kv", "list", "a/"]);
    let keys: Vec<&str> = listed.as_array().unwrap().iter().map(|one| one["key"].as_str().unwrap()).collect();
    assert_eq!(keys, ["a/b", "a/c"]);
    assert!(listed[0].get("expires_at").is_none() && listed[1]["expires_at"].is_string());
    // Callers cannot see Towline's own records: marks of counted things, and tokens.
    assert_eq!(server.json(&["kv", "list"]).as_array().unwrap().len(), 3);
    let text = server.run(&["kv", "increment", "a/b"]);
    assert!(text.code == Some(1) && text.stderr.contains("not a number"), "{text:?}");
    server.ok(&["kv", "delete", "a/b"]);
    server.ok(&["kv", "delete", "a/b"]);
    assert_eq!(server.run(&["kv", "get", "a/b"]).code, Some(1));
    for key in [String::new(), "x".repeat(513)] {
        let refused = server.run(&["kv", "set", &key, "v"]);
        assert_eq!(refused.code, Some(1), "{refused:?}");
    }
}

#[test]
fn subscribers_get_published_messages() {
    let server = Server::start();
    let subscriber =
        piped(&mut server.command(&["topic", "subscribe", "news", "--count", "1"])).spawn().unwrap();
    until("a subscriber is there", || {
        server.json(&["-o", "json", "topic", "publish", "news", "two\nlines"])["subscribers"] == 1
    });
    let received = Run::end(subscriber);
    assert_eq!(
        (received.code, received.stdout.trim()),
        (Some(0), "{\"message\":\"two\\nlines\"}"),
        "{received:?}"
    );
    let long = server.run(&["topic", "publish", "news", &"x".repeat((16 << 10) + 1)]);
    assert!(long.code == Some(1) && long.stderr.contains("16384"), "{long:?}");
}
