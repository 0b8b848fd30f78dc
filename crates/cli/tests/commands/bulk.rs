//! Bulk submits: ids in the order of the lines, and a bad line fails alone.

use crate::rig::{Run, Server, piped};
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

fn server() -> Server {
    let server = Server::start();
    server.ok(&["queue", "create", "jobs", "--order", "fifo"]);
    server
}

#[test]
fn ids_and_items_come_in_the_order_of_the_lines() {
    let server = server();
    let lines: String = (0..3500).map(|n| format!("{{\"params\":{{\"n\":{n}}}}}\n")).collect();
    let file = server.directory().join("items.ndjson");
    std::fs::write(&file, &lines).unwrap();
    let ids = server.ok(&["queue", "submit", "jobs", "--from-file", file.to_str().unwrap()]);
    let received = server.json(&["queue", "receive", "jobs", "--max", "10000"]);
    let received = received["items"].as_array().unwrap();
    assert_eq!(received.len(), 3500);
    for ((n, id), item) in ids.lines().enumerate().zip(received) {
        assert_eq!((&item["params"]["n"], item["id"].as_str().unwrap()), (&n.into(), id));
    }
}

#[test]
fn a_bad_line_is_reported_and_the_rest_is_submitted() {
    let server = server();
    let lines = "{\"params\":{\"n\":1}}\n\n{\"delay\":\"5 parsecs\"}\nnot json\n{\"prioritee\":1}\n{\"priority\":70000}\n{}";
    let run = server.feed(&["queue", "submit", "jobs", "--bulk"], lines);
    assert_eq!((run.code, run.stdout.lines().count()), (Some(1), 2), "{run:?}");
    for words in
        ["line 3: ", "5 parsecs", "line 4: ", "not json", "line 5: ", "prioritee", "line 6: ", "70000"]
    {
        assert!(run.stderr.contains(words), "{words}: {run:?}");
    }
    let run = server.feed(&["queue", "submit", "jobs", "--bulk", "-o", "ndjson"], lines);
    let results: Vec<serde_json::Value> =
        run.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let numbers: Vec<u64> = results.iter().map(|result| result["line"].as_u64().unwrap()).collect();
    assert_eq!(numbers, [1, 3, 4, 5, 6, 7]);
    assert!(results[0]["id"].is_string() && results[5]["id"].is_string());
    assert_eq!(results[2]["error"]["code"], "malformed_body");
    assert_eq!(server.json(&["queue", "counts", "jobs"])["pending"], 4);
}

#[test]
fn a_refused_item_is_reported_with_its_line() {
    let server = Server::start();
    server.ok(&["queue", "create", "jobs", "--input-param", "n"]);
    let run = server
        .feed(&["queue", "submit", "jobs", "--bulk"], "{\"params\":{\"n\":1}}\n{\"params\":{\"m\":1}}\n");
    assert_eq!((run.code, run.stdout.lines().count()), (Some(1), 1), "{run:?}");
    assert!(run.stderr.contains("line 2: ") && run.stderr.contains("\"m\""), "{run:?}");
}

#[test]
fn a_missing_queue_is_reported_before_reading() {
    let server = Server::start();
    let run = server.feed(&["queue", "submit", "nope", "--bulk"], "{}\n");
    assert_eq!((run.code, run.stdout.as_str()), (Some(1), ""), "{run:?}");
    let run = server.run(&["queue", "submit", "nope", "--from-file", "/does/not/exist"]);
    assert_eq!(run.code, Some(1), "{run:?}");
}

#[test]
fn an_empty_file_submits_nothing() {
    let server = server();
    assert_eq!(server.feed(&["queue", "submit", "jobs", "--bulk"], "").stdout, "");
    assert_eq!(server.feed(&["queue", "submit", "jobs", "--bulk", "-o", "json"], "").stdout, "[]\n");
}

#[test]
fn a_slow_source_is_answered_line_by_line() {
    let server = server();
    let mut bulk = server.command(&["queue", "submit", "jobs", "--bulk"]);
    let mut child = piped(&mut bulk).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut ids = BufReader::new(child.stdout.take().unwrap()).lines();
    for _ in 0..3 {
        stdin.write_all(b"{}\n").unwrap();
        assert_eq!(ids.next().unwrap().unwrap().len(), 36);
    }
    drop(stdin);
    assert_eq!(Run::end(child).code, Some(0));
}

#[test]
fn items_with_keys_survive_a_kill_during_a_bulk_submit() {
    let mut server = server();
    let mut bulk = server.command(&["queue", "submit", "jobs", "--bulk"]);
    let mut child = piped(&mut bulk).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut ids = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut put = |n: u32| stdin.write_all(format!("{{\"idempotency_key\":\"k{n}\"}}\n").as_bytes()).unwrap();
    put(0);
    let first = ids.next().unwrap().unwrap();
    server.kill();
    for n in 1..2000 {
        put(n);
    }
    put(0);
    drop(stdin);
    server.restart();
    let rest: Vec<String> = ids.map(Result::unwrap).collect();
    assert_eq!((Run::end(child).code, rest.len()), (Some(0), 2000));
    assert_eq!(rest.last(), Some(&first), "the same key is the same item");
    assert_eq!(server.json(&["queue", "counts", "jobs"])["pending"], 2000);
}
