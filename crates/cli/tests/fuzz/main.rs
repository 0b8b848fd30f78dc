//! The server refuses malformed bodies with a proper error, and keeps running.
//!
//! The test mutates valid calls for every route, as JSON and as MessagePack, from a seed (`TOWLINE_SEED`
//! changes it), and sends them over open connections. Schemathesis makes further calls from the served
//! description.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "tests")]

mod calls;
mod connection;
mod decode_memory;
mod mutate;
#[path = "../crash/random.rs"]
mod random;
#[path = "../rig/mod.rs"]
mod rig;
mod schemathesis;
mod verdict;

use calls::Caller;
use connection::Connection;
use random::Random;
use rig::Server;
use std::sync::{Arc, Mutex};
use verdict::{Tally, Verdict};

const THREADS: u64 = 4;
/// The first round warms up.
const ROUNDS: u64 = 5;

fn requests() -> u64 {
    if std::env::var_os("TOWLINE_SOAK").is_some() { 1_000_000 } else { 50_000 }
}

fn seed() -> u64 {
    std::env::var("TOWLINE_SEED").map_or(1, |text| text.parse().expect("a number"))
}

#[test]
fn no_body_causes_an_internal_error() {
    // One heap: the caches of several heaps would look like leaks.
    let server = Server::start_with(&[("MALLOC_ARENA_MAX", "1")]);
    let mut tally = Tally::default();
    let mut resident = Vec::new();
    for round in 0..ROUNDS {
        tally.add(bombard(&server, seed() + 1000 * round, requests() / ROUNDS));
        resident.push(resident_after_cleaning(&server) >> 20);
    }
    println!("{tally}resident after each round: {resident:?} MiB");
    let log = server.log();
    assert!(!log.contains("panicked"), "{log}");
    assert_eq!(tally.faults(), "", "the log says:\n{log}");
    // The answers must include successes, not only refusals.
    for code in [
        "malformed_body",
        "invalid",
        "queue_not_found",
        "item_not_found",
        "lease_lost",
        "unsupported_media_type",
    ] {
        assert!(tally.count(code) > 0, "no answer was {code}\n{tally}");
    }
    assert!(tally.count("200") > requests() / 20, "hardly anything was carried out\n{tally}");
    // A leak grows with the number of calls.
    let (warm, last) = (resident[0], resident[resident.len() - 1]);
    assert!(last < warm + warm / 2 + 64, "resident after each round: {resident:?} MiB");
    still_serves(&server);
}

fn bombard(server: &Server, seed: u64, requests: u64) -> Tally {
    let known = Arc::new(Mutex::new(calls::Known::default()));
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (address, known) = (server.address().to_owned(), Arc::clone(&known));
                scope.spawn(move || {
                    let mut caller = Caller::new(Random::new(seed, thread), known);
                    let mut connection = Connection::new(&address);
                    let mut tally = Tally::default();
                    // The call before may have broken this connection.
                    let mut before = String::new();
                    for _ in 0..requests / THREADS {
                        let call = caller.next();
                        let answer = connection.exchange(&call);
                        caller.learn(&answer);
                        tally.note(&call, &before, Verdict::of(&call, &answer));
                        before = format!("{}\n  {answer:?}", call.reproduction());
                    }
                    tally
                })
            })
            .collect();
        let mut all = Tally::default();
        threads.into_iter().for_each(|thread| all.add(thread.join().unwrap()));
        all
    })
}

/// Deletes all queues and so all items. What stays resident is the server's own memory.
fn resident_after_cleaning(server: &Server) -> u64 {
    let mut connection = Connection::new(server.address());
    loop {
        let page = connection.json("GET", "/v1/queues?limit=1000", "");
        let queues: Vec<String> = page["queues"]
            .as_array()
            .unwrap()
            .iter()
            .map(|queue| queue["name"].as_str().unwrap().to_owned())
            .collect();
        if queues.is_empty() {
            return status_bytes(server.pid(), "VmRSS:");
        }
        for queue in queues {
            connection.json("DELETE", &format!("/v1/queues/{queue}?force=true"), "");
        }
    }
}

/// A number of bytes from the status of a process.
fn status_bytes(pid: u32, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

fn still_serves(server: &Server) {
    let mut connection = Connection::new(server.address());
    connection.json("PUT", "/v1/queues/after", "{}");
    let payload = r#"{"items":[{"payload":"aGVsbG8="}]}"#;
    connection.json("POST", "/v1/queues/after/items", payload);
    let received = connection.json("POST", "/v1/queues/after/receive", "{}");
    assert_eq!(received["items"][0]["payload"], "aGVsbG8=");
}

/// Bytes that are not HTTP are refused, and the server keeps running.
#[test]
fn garbage_on_the_wire_does_not_harm_the_server() {
    let server = Server::start();
    let mut random = Random::new(seed(), 77);
    for _ in 0..500 {
        let length = 1 + random.below(400);
        let garbage = match random.below(4) {
            0 => random.bytes(length),
            1 => [
                b"POST /v1/queues/a/items HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99\r\n\r\n".to_vec(),
                random.bytes(length),
            ]
            .concat(),
            2 => {
                [b"GET /v1/queues HTTP/1.1\r\n".to_vec(), random.bytes(length), b"\r\n\r\n".to_vec()].concat()
            }
            _ => [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), random.bytes(length)].concat(),
        };
        connection::throw(server.address(), &garbage);
    }
    assert!(!server.log().contains("panicked"), "{}", server.log());
    still_serves(&server);
}
