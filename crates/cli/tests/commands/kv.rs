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
    let absent = server.run(&["kv", "delete", "a/b"]);
    assert!(absent.code == Some(1) && absent.stderr.contains("\"a/b\" does not exist"), "{absent:?}");
    assert_eq!(server.run(&["kv", "get", "a/b"]).code, Some(1));
    for key in [String::new(), "x".repeat(513)] {
        let refused = server.run(&["kv", "set", &key, "v"]);
        assert_eq!(refused.code, Some(1), "{refused:?}");
    }
}

#[test]
fn many_records_are_set_read_and_deleted_in_one_call() {
    let server = Server::start();
    server.ok(&["kv", "set", "b", "two words", "a", "-1"]);
    let listed = server.json(&["kv", "get", "b", "a"]);
    let values: Vec<&str> =
        listed.as_array().unwrap().iter().map(|one| one["value"].as_str().unwrap()).collect();
    assert_eq!(values, ["two words", "-1"], "in the order of the keys");
    let missing = server.run(&["kv", "get", "nothing", "a"]);
    assert!(missing.code == Some(1) && missing.stdout.contains("-1"), "{missing:?}");
    assert!(missing.stderr.contains("\"nothing\""), "{missing:?}");
    server.ok(&["kv", "set", "hyphen", "-x"]);
    server.ok(&["kv", "delete", "hyphen"]);
    let odd = server.run(&["kv", "set", "a", "1", "b"]);
    assert!(odd.code == Some(2) && odd.stderr.contains("\"b\" has no value"), "{odd:?}");
    let taken = server.run(&["kv", "set", "--if-absent", "a", "1", "c", "3"]);
    assert!(taken.code == Some(1) && taken.stderr.contains("\"a\" exists already"), "{taken:?}");
    assert_eq!(server.ok(&["kv", "get", "c"]), "3");
    let kept = server.run(&["kv", "delete", "a", "--if-value", "1"]);
    assert!(kept.code == Some(1) && kept.stderr.contains("does not have this value"), "{kept:?}");
    server.ok(&["kv", "delete", "a", "--if-value", "-1"]);
    let gone = server.run(&["kv", "delete", "a", "b", "c"]);
    assert!(gone.code == Some(1) && gone.stderr.contains("\"a\" does not exist"), "{gone:?}");
    assert_eq!(server.ok(&["kv", "list"]), "[]");
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
