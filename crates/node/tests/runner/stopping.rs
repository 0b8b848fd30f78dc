//! The end of a command: by itself, by a stop, or because nobody wants it any more.

use crate::fixture::{Fixture, bytes_of, eventually, finish, first_line};
use std::fs;
use std::time::Duration;
use towline_node::runner::{Exit, Launch};

/// A container answers 128 and the number of the signal.
fn is_ended_by(exit: Exit, signal: i32) -> bool {
    exit.signal == Some(signal) || exit.code == Some(128 + signal)
}

pub async fn stop_lets_the_command_finish(fixture: &Fixture) {
    let script = "trap 'echo bye; exit 3' TERM; echo ready; sleep 1000 & wait";
    let mut running = fixture.start(fixture.script(script)).await;
    assert_eq!(first_line(&mut running).await, "ready\n");
    running.handle.stop();
    let ended = finish(running, &[]).await;
    assert_eq!((ended.exit.code, ended.stdout.as_str()), (Some(3), "bye\n"));
    assert!(!fixture.has_processes());
}

pub async fn stop_kills_after_the_grace_time(fixture: &Fixture) {
    let script = fixture.script("trap '' TERM; echo ready; while :; do sleep 1000; done");
    let mut running = fixture.start(Launch { stop_grace: Duration::from_millis(300), ..script }).await;
    assert_eq!(first_line(&mut running).await, "ready\n");
    running.handle.stop();
    assert!(is_ended_by(running.handle.wait().await, 9));
    assert!(!fixture.has_processes());
}

pub async fn kill_needs_no_grace(fixture: &Fixture) {
    let mut running =
        fixture.start(fixture.script("trap '' TERM; echo ready; while :; do sleep 1000; done")).await;
    assert_eq!(first_line(&mut running).await, "ready\n");
    running.handle.stop();
    running.handle.kill();
    assert!(is_ended_by(running.handle.wait().await, 9));
    assert!(!fixture.has_processes());
}

pub async fn dropping_the_handle_kills(fixture: &Fixture) {
    let mut running = fixture.start(fixture.script("echo ready; sleep 1000")).await;
    assert_eq!(first_line(&mut running).await, "ready\n");
    let stdout = running.stdout;
    drop(running.handle);
    assert_eq!(bytes_of(stdout).await, b"");
    eventually("the command is gone", || !fixture.has_processes()).await;
}

pub async fn dropping_the_start_kills(fixture: &Fixture) {
    for delay_us in [0, 50, 200, 500, 1000, 2000, 5000] {
        let launch = fixture.script("sleep 1000");
        let id = launch.id.clone();
        let start = fixture.runner.start(launch);
        // The point at which it is dropped differs; the end must not.
        let _ = tokio::time::timeout(Duration::from_micros(delay_us), start).await;
        let directory = fixture.directory().join(id);
        eventually("nothing is left", || !fixture.has_processes() && !fs::exists(&directory).unwrap()).await;
    }
}

pub async fn stop_reaches_processes_that_left_the_group(fixture: &Fixture) {
    let script = "trap 'exit 0' TERM; env -i PATH=\"$PATH\" sleep 1000 & setsid sh -c 'trap \"\" TERM; echo ready; while :; do sleep 1000; done' & sleep 1000 & wait";
    let mut running = fixture.start(fixture.script(script)).await;
    assert_eq!(first_line(&mut running).await, "ready\n");
    running.handle.stop();
    running.handle.wait().await;
    assert!(!fixture.has_processes());
}

pub async fn the_end_of_a_command_ends_its_children(fixture: &Fixture) {
    let script = "sleep 1000 & setsid sleep 1000 < /dev/null > /dev/null 2>&1 & exit 0";
    let ended = fixture.run(fixture.script(script)).await;
    assert!(ended.exit.is_success());
    eventually("its children are gone", || !fixture.has_processes()).await;
}

pub async fn a_child_that_holds_the_output_does_not_delay_the_end(fixture: &Fixture) {
    let script = "setsid sh -c 'echo started; while :; do sleep 1000; done' & echo done";
    let ended = fixture.run(fixture.script(script)).await;
    assert!(ended.exit.is_success());
    assert!(ended.stdout.contains("done\n"), "{ended:?}");
}

pub async fn many_launches_at_once_leave_nothing(fixture: &Fixture) {
    let count = if fixture.is_container() { 4 } else { 100 };
    let launches = (0..count).map(|n| {
        let launch = fixture.script(&format!("cat \"$IN_PIPE\" > \"$OUT_PIPE\"; exit {n}"));
        let launch = Launch { inputs: vec!["in".to_owned()], outputs: vec!["out".to_owned()], ..launch };
        async move { (n, fixture.run_with(launch, &[("in", n.to_string().as_bytes())]).await) }
    });
    for (n, ended) in futures::future::join_all(launches).await {
        assert_eq!(ended.exit.code, Some(n));
        assert_eq!(ended.outputs["out"], n.to_string().as_bytes());
    }
    let descriptors = fs::read_dir("/proc/self/fd").unwrap().count();
    assert!(descriptors < 200, "{descriptors} descriptors are open");
    assert!(!fixture.has_processes());
}
