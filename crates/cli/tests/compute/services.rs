//! Services: replicas that run until they are stopped.

use crate::rig::{Server, until};
use crate::{server, text, until_shown};

const LOOP: &str = "trap 'exit 0' TERM; echo started; while true; do sleep 0.05; done";

fn service(server: &Server, script: &str, replicas: &str) {
    server.ok(&["queue", "create", "requests"]);
    server.ok(&["codespec", "create", "code", "--queue", "jobs", "--command", "--", "sh", "-c", script]);
    server.ok(&[
        "service",
        "create",
        "s",
        "--codespec",
        "code",
        "--queue",
        "jobs=requests",
        "--replicas",
        replicas,
    ]);
}

fn running(count: usize) -> impl Fn(&serde_json::Value) -> bool {
    move |shown| shown["running"] == count
}

#[test]
fn a_service_is_scaled_restarted_stopped_and_deleted() {
    let server = server();
    service(&server, LOOP, "3");
    let shown = until_shown(&server, &["service", "show", "s"], running(3));
    assert_eq!(text(&shown, "state"), "running");
    let indexes: Vec<_> =
        shown["replica_list"].as_array().unwrap().iter().map(|one| one["index"].clone()).collect();
    assert_eq!(indexes, [0, 1, 2]);
    server.ok(&["service", "scale", "s", "--replicas", "1"]);
    until_shown(&server, &["service", "show", "s"], |shown| {
        shown["replica_list"].as_array().unwrap().iter().filter(|one| one["state"] != "completed").count()
            == 1
    });
    // A restart takes up the newest version, and a replica runs all the time.
    server.ok(&[
        "codespec",
        "create",
        "code",
        "--queue",
        "jobs",
        "--command",
        "--",
        "sh",
        "-c",
        &format!("true; {LOOP}"),
    ]);
    server.ok(&["service", "restart", "s"]);
    until_shown(&server, &["service", "show", "s"], |shown| {
        assert!(shown["running"].as_u64() >= Some(1), "{shown}");
        let replicas = shown["replica_list"].as_array().unwrap();
        replicas.iter().any(|one| one["codespec"] == "code@2" && one["state"] == "running")
            && replicas.iter().all(|one| one["codespec"] == "code@2" || one["state"] == "completed")
    });
    server.ok(&["service", "scale", "s", "--replicas", "0"]);
    let shown = until_shown(&server, &["service", "show", "s"], running(0));
    assert_eq!((text(&shown, "state"), text(&shown, "reason")), ("stopped", "it is scaled to 0 replicas"));
    let listed = |state: &str| server.json(&["service", "list", "--status", state]).as_array().unwrap().len();
    assert_eq!([listed("stopped"), listed("running"), listed("failed")], [1, 0, 0]);
    server.ok(&["service", "delete", "s"]);
    assert_eq!(server.run(&["service", "show", "s"]).code, Some(1));
}

#[test]
fn the_names_of_queues_reach_the_replica_and_its_log_is_shown() {
    let server = server();
    service(&server, "echo \"queue $JOBS_QUEUE_NAME\"; exec sleep 600", "1");
    until("it is so", || server.run(&["service", "logs", "s"]).stdout == "[0] queue requests\n");
    assert_eq!(server.ok(&["service", "logs", "s", "--replica", "0"]), "queue requests");
}

#[test]
fn a_replica_that_crashes_is_started_again_and_shows_how_it_ended() {
    let server = server();
    service(&server, "exit 5", "1");
    let shown = until_shown(&server, &["service", "show", "s"], |shown| {
        shown["replica_list"][0]["restarts"].as_u64() >= Some(2)
    });
    assert_eq!(text(&shown["replica_list"][0], "last_exit"), "it exited with code 5");
    assert_eq!(text(&shown, "state"), "running");
}

#[test]
fn a_program_that_cannot_be_started_fails_the_service_with_the_reason() {
    let server = server();
    server.ok(&["codespec", "create", "code", "--kind", "service", "--command", "--", "no-such-program"]);
    server.ok(&["service", "create", "s", "--codespec", "code"]);
    let shown = until_shown(&server, &["service", "show", "s"], |shown| shown["state"] == "failed");
    assert!(text(&shown, "reason").contains("no-such-program"), "{shown}");
    // A restart with a codespec that works starts it again.
    server.ok(&["codespec", "create", "code", "--kind", "service", "--command", "--", "sh", "-c", LOOP]);
    server.ok(&["service", "restart", "s"]);
    until_shown(&server, &["service", "show", "s"], |shown| {
        shown["state"] == "running" && shown["running"] == 1
    });
}

#[test]
fn a_service_whose_queues_are_completed_is_stopped() {
    let server = server();
    let script =
        "until towline queue receive $JOBS_QUEUE_NAME | grep -q '\"completed\"'; do sleep 0.05; done";
    service(&server, script, "2");
    server.ok(&["queue", "close", "requests"]);
    let shown = until_shown(&server, &["service", "show", "s"], |shown| shown["state"] == "stopped");
    assert_eq!(text(&shown, "reason"), "its queues are completed");
}

#[test]
fn an_unhealthy_replica_is_restarted() {
    let server = server();
    let file = server.directory().join("service.yml");
    let marker = server.directory().join("sick");
    let yaml = format!(
        "codespec:\n  kind: service\n  command: [sh, -c, \"{LOOP}\"]\n  health:\n    command: [sh, -c, 'test ! -e {}']\n    interval: 1s\n    threshold: 1\n",
        marker.display()
    );
    std::fs::write(&file, yaml).unwrap();
    server.ok(&["service", "create", "s", "-f", file.to_str().unwrap()]);
    until_shown(&server, &["service", "show", "s"], running(1));
    std::fs::write(&marker, "").unwrap();
    let shown = until_shown(&server, &["service", "show", "s"], |shown| {
        shown["replica_list"][0]["restarts"].as_u64() >= Some(1)
    });
    assert!(text(&shown["replica_list"][0], "last_exit").contains("health check"), "{shown}");
    std::fs::remove_file(&marker).unwrap();
    until_shown(&server, &["service", "show", "s"], running(1));
}

#[test]
fn a_range_of_replicas_follows_the_number_of_ready_items() {
    let server = server();
    server.ok(&["queue", "create", "requests"]);
    server.ok(&["codespec", "create", "code", "--queue", "jobs", "--command", "--", "sh", "-c", LOOP]);
    let range = ["--replicas", "1..3", "--per-replica", "10"];
    server
        .ok(&[&["service", "create", "s", "--codespec", "code", "--queue", "jobs=requests"], &range[..]]
            .concat());
    until_shown(&server, &["service", "show", "s"], running(1));
    for _ in 0..25 {
        server.ok(&["queue", "submit", "requests"]);
    }
    until_shown(&server, &["service", "show", "s"], running(3));
}
