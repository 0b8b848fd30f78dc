//! A schedule runs every second while servers are killed at random. Each occurrence must make exactly one
//! item.

use crate::plan::Plan;
use crate::postgres::Own;
use crate::random::Random;
use crate::rig::{Server, until};
use std::collections::BTreeMap;
use std::time::Duration;

const KILLS: u64 = 12;

#[test]
fn each_occurrence_makes_one_item_however_often_the_server_is_killed() {
    kill_at_random(vec![Server::start()]);
}

#[test]
fn each_occurrence_makes_one_item_with_two_servers() {
    let database = Own::start();
    let place = database.directory().to_str().unwrap().replace('/', "%2F");
    let store = format!("postgres://towline@{place}/postgres");
    let start = || Server::start_with(&[("TOWLINE_STORE", &store)]);
    kill_at_random(vec![start(), start()]);
}

fn kill_at_random(mut servers: Vec<Server>) {
    let mut random = Random::new(Plan::new().seed, 77);
    servers[0].ok(&["queue", "create", "jobs"]);
    let every_second = ["--every", "1s", "--catch-up", "all", "--catch-up-max", "1000"];
    servers[0].ok(&[&["schedule", "create", "tick", "--queue", "jobs"], &every_second[..]].concat());
    let created = servers[0].json(&["schedule", "show", "tick"]);
    for _ in 0..KILLS {
        let victim = usize::try_from(random.below(servers.len() as u64)).unwrap();
        // Kill at any point of a second: before, during or after the submit.
        std::thread::sleep(Duration::from_millis(random.below(1200)));
        servers[victim].kill();
        std::thread::sleep(Duration::from_millis(random.below(1200)));
        servers[victim].restart();
    }
    let show = |servers: &[Server]| servers[0].json(&["schedule", "show", "tick"]);
    let before = show(&servers)["submitted"].as_u64().unwrap();
    until("the schedule continues", || show(&servers)["submitted"].as_u64().unwrap() >= before + 3);
    servers[0].ok(&["schedule", "pause", "tick"]);
    let shown = show(&servers);
    let items = servers[0].json(&["queue", "item", "list", "jobs", "--limit", "10000"]);
    let mut made: BTreeMap<String, usize> = BTreeMap::new();
    for item in items.as_array().unwrap() {
        assert_eq!(item["tags"]["schedule"], "tick");
        *made.entry(item["tags"]["scheduled_for"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    // Every second from the first occurrence to the last must have one item.
    let first = time(&created["next_at"]);
    let last = time(&shown["last_at"]);
    let mut expected = BTreeMap::new();
    let mut at = first;
    while at <= last {
        expected.insert(format!("{at:.3}"), 1);
        at += jiff::SignedDuration::from_secs(1);
    }
    assert_eq!(made, expected);
    assert_eq!(shown["submitted"], expected.len());
    assert_eq!(shown["missed"], 0);
    for server in &servers {
        assert!(!server.log().contains("panicked"), "{}", server.log());
    }
}

fn time(value: &serde_json::Value) -> jiff::Timestamp {
    value.as_str().unwrap().parse().unwrap()
}
