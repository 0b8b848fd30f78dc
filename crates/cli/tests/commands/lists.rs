//! Lists as a JSON array, as one object per line and as a table; and purges.

use crate::rig::Server;

fn filled() -> Server {
    let server = Server::start();
    server.ok(&["queue", "create", "jobs"]);
    let lines: String = (0..2345).map(|n| format!("{{\"tags\":{{\"part\":\"{}\"}}}}\n", n % 5)).collect();
    assert_eq!(server.feed(&["queue", "submit", "jobs", "--bulk"], &lines).code, Some(0));
    server
}

#[test]
fn a_script_gets_one_array_over_all_pages() {
    let server = filled();
    let count = |args: &[&str]| {
        let all = server.json(&[&["queue", "items", "list", "jobs"], args].concat());
        all.as_array().unwrap().len()
    };
    assert_eq!(count(&[]), 2345);
    assert_eq!(count(&["--limit", "1500"]), 1500);
    assert_eq!(count(&["--limit", "0"]), 0);
    assert_eq!(count(&["--tag", "part=3"]), 469);
    assert_eq!(count(&["--status", "pending", "--tag", "part=3", "--limit", "7"]), 7);
    assert_eq!(count(&["--state", "failed"]), 0);
    assert_eq!(server.run(&["queue", "items", "list", "jobs", "--status", "sleepy"]).code, Some(1));
}

#[test]
fn lines_and_tables_have_every_element_once() {
    let server = filled();
    let ids = |format: &str, skip: usize, id: fn(&str) -> String| {
        let text = server.ok(&["queue", "items", "list", "jobs", "-o", format]);
        let mut ids: Vec<String> = text.lines().skip(skip).map(id).collect();
        ids.dedup();
        ids
    };
    let lines = ids("ndjson", 0, |line| {
        let item: serde_json::Value = serde_json::from_str(line).unwrap();
        item["id"].as_str().unwrap().to_owned()
    });
    assert_eq!(lines.len(), 2345);
    assert_eq!(ids("table", 1, |line| line.split_whitespace().next().unwrap().to_owned()), lines);
}

#[test]
fn a_table_of_queues() {
    let server = Server::start();
    server.ok(&["queue", "create", "a"]);
    server.ok(&["queue", "create", "long-name"]);
    server.ok(&["queue", "pause", "a"]);
    server.ok(&["queue", "submit", "long-name"]);
    let expected = "\
NAME       STATE         PENDING  SCHEDULED  PROCESSING  PAUSED  COMPLETED  FAILED
a          open, paused  0        0          0           0       0          0
long-name  open          1        0          0           0       0          0";
    assert_eq!(server.ok(&["queue", "list", "-o", "table"]), expected);
    let names = server.json(&["queue", "list"]);
    assert_eq!((&names[0]["name"], &names[1]["name"]), (&"a".into(), &"long-name".into()));
    assert_eq!(server.json(&["queue", "counts", "long-name"])["pending"], 1);
}

#[test]
fn an_empty_list_is_an_empty_array() {
    let server = Server::start();
    assert_eq!(server.run(&["queue", "list"]).stdout, "[]\n");
    assert_eq!(server.run(&["queue", "list", "-o", "ndjson"]).stdout, "");
}

#[test]
fn many_queues_are_listed_over_all_pages() {
    let server = Server::start();
    for n in 0..230 {
        server.ok(&["queue", "create", &format!("q{n}")]);
    }
    assert_eq!(server.json(&["queue", "list"]).as_array().unwrap().len(), 230);
}

#[test]
fn purge_prints_the_number_of_deleted_items() {
    let server = filled();
    let (_, lease) = server.receive(&["jobs"]);
    assert_eq!(server.ok(&["queue", "items", "purge", "jobs", "--status", "failed"]), "0");
    assert_eq!(
        server.ok(&["queue", "items", "purge", "jobs", "--status", "pending", "--tag", "part=3"]),
        "469"
    );
    assert_eq!(
        server.json(&["queue", "item", "purge", "jobs", "--status", "pending", "-o", "json"])["done"],
        1875
    );
    assert_eq!(server.json(&["queue", "counts", "jobs"])["processing"], 1, "{lease}");
    assert_eq!(server.ok(&["queue", "items", "purge", "jobs", "--status", "processing", "--force"]), "1");
}

#[test]
fn a_coloured_header_has_no_spaces_at_its_end() {
    let server = Server::start();
    server.ok(&["queue", "create", "jobs"]);
    let table = server.ok(&["queue", "list", "-o", "table", "--color", "always"]);
    let header = table.lines().next().unwrap();
    assert!(header.contains("\u{1b}[1m"), "{header:?}");
    let plain: String =
        header.split('\u{1b}').map(|part| part.split_once('m').map_or(part, |(_, text)| text)).collect();
    assert!(plain.ends_with("FAILED"), "{plain:?}");
}
