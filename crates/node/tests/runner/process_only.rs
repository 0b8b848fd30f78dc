//! What only the process runner does.

use crate::fixture::{Fixture, config, eventually, first_line, unique};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use towline_node::runner::{InstanceError, Launch, ProcessRunner, StartError};

#[tokio::test]
async fn a_signal_is_told_from_an_exit_code() {
    let fixture = Fixture::process();
    for (script, signal) in [("kill -SEGV $$", 11), ("kill -KILL $$", 9), ("kill -PIPE $$", 13)] {
        let ended = fixture.run(fixture.script(script)).await;
        assert_eq!((ended.exit.code, ended.exit.signal), (None, Some(signal)));
    }
}

#[tokio::test]
async fn errors_of_an_execution_are_told_apart() {
    let fixture = Fixture::process();
    let file = fixture.root().join("program");
    let path = file.to_str().unwrap();
    let write = |contents: &str, mode: u32| {
        // A new file each time: a file that is open to write cannot be executed.
        let _ = fs::remove_file(&file);
        fs::write(&file, contents).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
    };
    write("#!/no/such/interpreter\n", 0o700);
    let error = fixture.refused(fixture.launch(&[path])).await;
    assert!(
        matches!(&error, StartError::NotExecutable { why, .. } if why.contains("interpreter")),
        "{error:?}"
    );
    write("#!/bin/sh\n", 0o600);
    let error = fixture.refused(fixture.launch(&[path])).await;
    assert!(matches!(&error, StartError::NotExecutable { why, .. } if why.contains("chmod +x")), "{error:?}");
    let error = fixture.refused(fixture.launch(&["/etc"])).await;
    assert!(
        matches!(&error, StartError::NotExecutable { why, .. } if why.contains("directory")),
        "{error:?}"
    );
    let error = fixture.refused(fixture.launch(&["no-such"])).await;
    assert!(matches!(&error, StartError::CommandNotFound { .. }), "{error:?}");
    let mut launch = fixture.launch(&["true"]);
    launch.args = vec!["x".repeat(100_000); 40];
    let error = fixture.refused(launch).await;
    assert!(matches!(&error, StartError::Invalid(what) if what.contains("too large")), "{error:?}");
    // The environment of the command must not reach the shim.
    let mut launch = fixture.script("exit 5");
    launch.environment.insert("LD_PRELOAD".to_owned(), "/no/such/library".to_owned());
    assert_eq!(fixture.run(launch).await.exit.code, Some(5));
}

#[tokio::test]
async fn the_end_of_the_runner_ends_its_commands() {
    let fixture = Fixture::process();
    let mut running = fixture.start(fixture.script("setsid sleep 1000 & echo ready; sleep 1000")).await;
    assert_eq!(first_line(&mut running).await, "ready\n");
    let (directory, instance) = (fixture.directory(), fixture.instance.clone());
    let root = fixture.into_root();
    eventually("nothing is left", || !crate::fixture::has_processes(&instance) && !directory.exists()).await;
    assert_eq!(running.handle.wait().await.signal, Some(9));
    drop(root);
}

#[tokio::test]
async fn a_pipe_that_the_command_replaces_harms_nothing() {
    let fixture = Fixture::process();
    let victim = fixture.root().join("victim");
    fs::write(&victim, b"untouched").unwrap();
    let script = format!(
        "rm \"$IN_PIPE\" \"$OUT_PIPE\" && ln -s {0} \"$IN_PIPE\" && ln -s {0} \"$OUT_PIPE\"",
        victim.display()
    );
    let launch =
        Launch { inputs: vec!["in".to_owned()], outputs: vec!["out".to_owned()], ..fixture.script(&script) };
    let ended = fixture.run_with(launch, &[("in", b"overwritten")]).await;
    assert!(ended.exit.is_success(), "{ended:?}");
    assert_eq!(fs::read(&victim).unwrap(), b"untouched");
    assert_eq!(ended.outputs["out"], b"");
}

#[tokio::test]
async fn an_instance_is_used_once() {
    let root = tempfile::tempdir().unwrap();
    let name = unique("once");
    let runner = ProcessRunner::new(config(root.path(), &name)).unwrap();
    let error = ProcessRunner::new(config(root.path(), &name)).unwrap_err();
    assert!(matches!(error, InstanceError::Used(_)), "{error}");
    // Another one beside it leaves it alone.
    let other = ProcessRunner::new(config(root.path(), &unique("other"))).unwrap();
    assert!(root.path().join(&name).exists());
    drop((runner, other));
    let error = ProcessRunner::new(config(root.path(), "a/b")).unwrap_err();
    assert!(matches!(error, InstanceError::Name(_)), "{error}");
}
