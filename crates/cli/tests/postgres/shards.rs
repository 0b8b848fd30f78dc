//! One server with several databases as shards.

use crate::migrate::url;
use crate::postgres::Own;
use crate::rig::{Run, Server, towline, until};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;

/// The server's answer at a path that no command calls.
fn get(server: &Server, path: &str) -> serde_json::Value {
    serde_json::from_str(&text(server, path)).unwrap()
}

fn text(server: &Server, path: &str) -> String {
    let mut connection = TcpStream::connect(server.address()).unwrap();
    write!(connection, "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    answer.split_once("\r\n\r\n").unwrap().1.to_owned()
}

#[test]
fn losing_one_shard_leaves_the_rest_working() {
    let mut databases = [Own::start(), Own::start()];
    let stores = databases.each_ref().map(url).join(" ");
    let server = Server::start_with(&[("TOWLINE_STORE", &stores)]);
    server.ok(&["queue", "create", "jobs"]);
    let submit = ["queue", "submit", "jobs", "--payload", "work"];
    let ids: BTreeSet<String> = (0..10).map(|_| server.ok(&submit)).collect();
    let taken = |server: &Server, max: &str| {
        let answer = server.json(&["queue", "receive", "jobs", "--max", max, "-o", "json"]);
        let items = answer["items"].as_array().unwrap().clone();
        let text = |item: &serde_json::Value, name: &str| item[name].as_str().unwrap().to_owned();
        items.iter().map(|item| (text(item, "id"), text(item, "lease"))).collect::<Vec<_>>()
    };
    let held = taken(&server, "100");
    assert_eq!(held.iter().map(|(id, _)| id.clone()).collect::<BTreeSet<_>>(), ids);

    // Each database holds half of the items.
    let shard_items = || {
        let metrics = text(&server, "/metrics");
        let of_shards = metrics.lines().filter(|line| line.starts_with("towline_shard_items{"));
        let processing: Vec<String> = of_shards
            .filter(|line| line.contains("\"processing\""))
            .map(|line| line.rsplit(' ').next().unwrap().to_owned())
            .collect();
        assert!(metrics.contains("towline_shard_up{"), "{metrics}");
        processing
    };
    assert_eq!(shard_items(), ["5", "5"]);
    let ready = || get(&server, "/readyz");
    assert_eq!(ready(), serde_json::json!({"status": "ok", "shards": 2, "shards_up": 2}));
    databases[1].kill();
    until("the database is known to be down", || shard_items() == ["5"]);
    let commit = |(id, lease): &(String, String)| server.run(&["item", "commit", id, "--lease", lease]);
    let ended: Vec<Run> = held.iter().map(commit).collect();
    let done = ended.iter().filter(|run| run.code == Some(0)).count();
    assert_eq!(done, 5, "each database had its share: {ended:?}");
    // New items go to the shards that work.
    let more: BTreeSet<String> = (0..4).map(|_| server.ok(&submit)).collect();
    let again = taken(&server, "100");
    assert_eq!(again.iter().map(|(id, _)| id.clone()).collect::<BTreeSet<_>>(), more);
    assert_eq!(ready(), serde_json::json!({"status": "degraded", "shards": 2, "shards_up": 1}));
    let refused = server.run(&["queue", "create", "more"]);
    assert_ne!(refused.code, Some(0), "{refused:?}");

    databases[1].start_again();
    let lost: Vec<_> = held.iter().zip(&ended).filter(|(_, run)| run.code != Some(0)).collect();
    until("the database is back", || server.run(&["queue", "create", "more"]).code == Some(0));
    for (held, _) in lost {
        let run = commit(held);
        assert_eq!(run.code, Some(0), "{run:?}");
    }
    assert_eq!(server.json(&["queue", "counts", "jobs", "-o", "json"])["completed"], 10);
}

#[test]
fn every_shard_is_migrated() {
    let databases = [Own::start(), Own::start()];
    let [first, second] = databases.each_ref().map(url);
    let migrate = Run::of(&mut towline(&["migrate", "--store", &first, "--store", &second]));
    assert_eq!((migrate.code, migrate.stdout.lines().count()), (Some(0), 2), "{migrate:?}");
    let twice = Run::of(&mut towline(&["serve", "--store", &first, "--store", &first]));
    assert_eq!(twice.code, Some(1), "{twice:?}");
    assert!(twice.stderr.contains("twice"), "{twice:?}");
}
