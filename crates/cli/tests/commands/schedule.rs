//! `towline schedule`, from its creation to its items.

use crate::rig::{Server, until};

fn with_queue() -> Server {
    let server = Server::start();
    server.ok(&["queue", "create", "jobs"]);
    server
}

#[test]
fn a_schedule_is_created_shown_changed_and_deleted() {
    let server = with_queue();
    let create = [
        "schedule",
        "create",
        "nightly",
        "--queue",
        "jobs",
        "--cron",
        "0 3 * * *",
        "--time-zone",
        "Europe/Vienna",
    ];
    let item = [
        "--payload",
        "work",
        "--input-param",
        "depth:=3",
        "--tag",
        "team=a",
        "--priority",
        "-2",
        "--overlap",
        "skip",
    ];
    assert_eq!(server.ok(&[&create[..], &item].concat()), "nightly");
    let shown = server.json(&["schedule", "show", "nightly"]);
    for (name, value) in
        [("cron", "0 3 * * *"), ("time_zone", "Europe/Vienna"), ("overlap", "skip"), ("catch_up", "one")]
    {
        assert_eq!(shown[name], value);
    }
    assert_eq!(shown["item"]["priority"], -2);
    assert_eq!(shown["item"]["params"]["depth"], 3);
    assert_eq!(shown["item"]["tags"]["team"], "a");
    assert!(shown["next_at"].is_string());
    // An identical schedule changes nothing. A change is named.
    let same = server.json(&[&["-o", "json"], &create[..], &item].concat());
    assert_eq!((&same["created"], &same["changed"]), (&false.into(), &serde_json::json!([])));
    let refused = server.run(&[&create[..], &["--jitter", "5m"]].concat());
    assert!(
        refused.code == Some(1) && refused.stderr.contains("another jitter, overlap, item"),
        "{}",
        refused.stderr
    );
    let apply = [&["-o", "json", "schedule", "apply"], &create[2..], &["--jitter", "5m"]].concat();
    let planned = server.json(&[&apply[..], &["--dry-run"]].concat());
    assert_eq!(server.json(&["schedule", "show", "nightly"]), shown);
    let changed = server.json(&apply);
    assert_eq!(planned["changed"], changed["changed"]);
    let settings = changed["changed"].as_array().unwrap().iter().map(|change| &change["setting"]);
    let expected = ["jitter", "overlap", "item.params", "item.payload", "item.priority", "item.tags"];
    assert_eq!(settings.collect::<Vec<_>>(), expected);
    assert_eq!(
        changed["changed"][1],
        serde_json::json!({"setting": "overlap", "before": "skip", "after": "allow"})
    );
    assert_eq!(changed["schedule"]["next_at"], shown["next_at"]);
    let listed = server.json(&["schedule", "list"]);
    assert_eq!(listed.as_array().unwrap().len(), 1);
    let table = server.ok(&["-o", "table", "schedule", "list"]);
    assert!(table.contains("0 3 * * * Europe/Vienna"), "{table}");
    server.ok(&["schedule", "delete", "nightly"]);
    let gone = server.run(&["schedule", "show", "nightly"]);
    assert_eq!(gone.code, Some(1));
    assert!(gone.stderr.contains("no schedule named \"nightly\""), "{}", gone.stderr);
}

#[test]
fn a_schedule_submits_items_on_time_and_on_request() {
    let server = with_queue();
    server.ok(&["schedule", "create", "tick", "--queue", "jobs", "--every", "1s", "--payload", "work"]);
    let (first, _) = server.receive(&["jobs", "--wait", "60s"]);
    let shown = server.json(&["item", "show", &first]);
    assert_eq!(shown["tags"]["schedule"], "tick");
    assert!(shown["tags"]["scheduled_for"].is_string());
    server.ok(&["schedule", "pause", "tick"]);
    let paused = server.json(&["schedule", "show", "tick"]);
    assert_eq!((&paused["paused"], &paused["next_at"]), (&true.into(), &serde_json::Value::Null));
    let run = server.ok(&["schedule", "run", "tick"]);
    assert_eq!(server.state(&run), "pending");
    assert_eq!(server.json(&["schedule", "show", "tick"])["last_item"], run.as_str());
    let next = server.json(&["schedule", "next", "tick", "-n", "3"]);
    assert_eq!(next.as_array().unwrap().len(), 3);
    server.ok(&["schedule", "resume", "tick"]);
    let submitted = || server.json(&["schedule", "show", "tick"])["submitted"].as_u64().unwrap();
    let before = submitted();
    until("the schedule continues", || submitted() > before);
}

#[test]
fn a_schedule_continues_after_a_restart() {
    let mut server = with_queue();
    server.ok(&["schedule", "create", "tick", "--queue", "jobs", "--every", "1s", "--catch-up", "all"]);
    server.kill();
    server.restart();
    let submitted = || server.json(&["schedule", "show", "tick"])["submitted"].as_u64().unwrap();
    until("the schedule continues", || submitted() >= 2);
}

#[test]
fn a_bad_schedule_is_refused_with_the_cause() {
    let server = with_queue();
    let refused = |args: &[&str]| {
        let run = server.run(&[&["schedule", "create", "s", "--queue", "jobs"], args].concat());
        assert_eq!(run.code, Some(1), "{run:?}");
        run.stderr
    };
    assert!(refused(&["--cron", "61 * * * *"]).contains("minute \"61\""));
    assert!(refused(&["--cron", "0 0 30 2 *"]).contains("never comes"));
    assert!(refused(&["--cron", "0 3 * * *", "--time-zone", "Europe/Wien"]).contains("IANA"));
    assert!(refused(&["--every", "10ms"]).contains("too often"));
    assert!(refused(&["--every", "1m", "--tag", "schedule=x"]).contains("set by the schedule"));
    for usage in [&["--every", "5"][..], &["--every", "1m", "--cron", "* * * * *"], &[]] {
        let run = server.run(&[&["schedule", "create", "s", "--queue", "jobs"], usage].concat());
        assert_eq!(run.code, Some(2), "{run:?}");
    }
    assert_eq!(server.json(&["schedule", "list"]), serde_json::json!([]));
}

#[test]
fn a_schedule_without_its_queue_says_so() {
    let server = with_queue();
    server.ok(&["schedule", "create", "tick", "--queue", "jobs", "--every", "1s"]);
    server.ok(&["queue", "delete", "jobs", "--force"]);
    let error = || server.json(&["schedule", "show", "tick"])["error"]["code"].clone();
    until("it shows its error", || error() == "queue_not_found");
    server.ok(&["queue", "create", "jobs"]);
    until("the schedule continues", || error().is_null());
}
