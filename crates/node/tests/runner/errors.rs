//! Commands that cannot be started: a clear error, and nothing left.

use crate::fixture::{Fixture, first_line};
use std::fs;
use towline_node::runner::{Launch, Limits, PrivateFile, StartError};

/// The message of the refusal, after a look at what is left.
async fn refusal(fixture: &Fixture, launch: Launch) -> String {
    let directory = fixture.directory().join(&launch.id);
    let error = fixture.refused(launch).await;
    assert!(!directory.exists());
    assert!(error.is_permanent(), "{error:?}");
    error.to_string()
}

pub async fn a_command_that_is_not_there(fixture: &Fixture) {
    let mut launch = fixture.launch(&["towline-no-such-command", "argument"]);
    launch.environment.insert("PATH".to_owned(), "/usr/bin:/bin".to_owned());
    launch.inputs = vec!["in".to_owned()];
    let message = refusal(fixture, launch).await;
    assert!(message.contains("\"towline-no-such-command\""), "{message}");
    if !fixture.is_container() {
        assert!(message.contains("not found in PATH \"/usr/bin:/bin\"; install it"), "{message}");
    }
    let message = refusal(fixture, fixture.launch(&["/no/such/file"])).await;
    assert!(message.contains("\"/no/such/file\"") && message.contains("does not exist"), "{message}");
}

pub async fn a_file_that_is_no_program(fixture: &Fixture) {
    let message = refusal(fixture, fixture.launch(&["/etc/passwd"])).await;
    assert!(message.contains("\"/etc/passwd\"") && message.contains("execut"), "{message}");
    let message = refusal(fixture, fixture.launch(&["/etc"])).await;
    assert!(message.contains("\"/etc\""), "{message}");
}

pub async fn a_launch_that_is_wrong(fixture: &Fixture) {
    let whole = || fixture.script("exit 0");
    let message = refusal(fixture, Launch { id: "../up".to_owned(), ..whole() }).await;
    assert!(message.contains("\"../up\" is not a valid name"), "{message}");
    let message = refusal(fixture, Launch { inputs: vec!["a/b".to_owned()], ..whole() }).await;
    assert!(message.contains("\"a/b\""), "{message}");
    let twice = vec!["a-b".to_owned(), "a_b".to_owned()];
    let message = refusal(fixture, Launch { outputs: twice, ..whole() }).await;
    assert!(message.contains("A_B_PIPE"), "{message}");
    let file = PrivateFile { name: "t".to_owned(), contents: Vec::new(), variable: "A_PIPE".to_owned() };
    let message =
        refusal(fixture, Launch { files: vec![file], inputs: vec!["a".to_owned()], ..whole() }).await;
    assert!(message.contains("A_PIPE"), "{message}");
    for (name, variable) in [("work", "T"), ("a.pipe", "T"), ("t", "A=B")] {
        let file = PrivateFile { name: name.to_owned(), contents: Vec::new(), variable: variable.to_owned() };
        let message = refusal(fixture, Launch { files: vec![file], ..whole() }).await;
        assert!(message.contains(name) || message.contains(variable), "{message}");
    }
    let limits = Limits { memory_bytes: Some(1000), ..Limits::default() };
    let message = refusal(fixture, Launch { limits, ..whole() }).await;
    assert!(message.contains("1000 bytes"), "{message}");
    let message = refusal(fixture, Launch { args: vec!["a\0b".to_owned()], ..whole() }).await;
    assert!(message.contains("NUL"), "{message}");

    let first = fixture.script("echo ready; sleep 1000");
    let mut running = fixture.start(Launch { id: "twice".to_owned(), ..first }).await;
    assert_eq!(first_line(&mut running).await, "ready\n");
    let error = fixture.refused(Launch { id: "twice".to_owned(), ..whole() }).await;
    assert!(matches!(error, StartError::Invalid(_)), "{error:?}");
    assert!(error.to_string().contains("\"twice\""), "{error}");
    // The refusal must not have disturbed the first.
    assert!(fixture.has_processes());
    assert!(fs::exists(fixture.directory().join("twice")).unwrap());
    running.handle.kill();
    running.handle.wait().await;
}
