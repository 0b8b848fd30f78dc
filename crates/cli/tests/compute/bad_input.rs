//! What is wrong gets a clear message, and nothing is stuck.

use crate::rig::Server;
use crate::{server, text};

#[test]
fn a_file_with_an_unknown_key_is_refused_with_its_place() {
    let server = Server::start();
    let refused = |yaml: &str| {
        let file = server.directory().join("spec.yml");
        std::fs::write(&file, yaml).unwrap();
        let run = server.run(&["service", "create", "s", "-f", file.to_str().unwrap()]);
        assert_eq!(run.code, Some(2), "{}", run.stderr);
        run.stderr
    };
    for (yaml, part) in [
        ("replica: 2", "replica"),
        ("codespec:\n  comand: [x]", "comand"),
        ("codespec: {command: [x]}\nreplicas: many", "replicas"),
        ("- a\n- b", "does not describe an object"),
        ("codespec: {command: [x]}\nkind: job", "is not service"),
        (": : :", "spec.yml"),
    ] {
        let message = refused(yaml);
        assert!(message.contains(part), "{yaml:?}: {message}");
    }
}

#[test]
fn a_missing_variable_is_refused_when_the_run_is_created() {
    let server = Server::start();
    server.ok(&["codespec", "create", "c", "--command", "--", "echo", "$(MISSING)"]);
    let refused = server.run(&["run", "create", "--codespec", "c"]);
    assert!(refused.code == Some(1) && refused.stderr.contains("$(MISSING)"), "{}", refused.stderr);
    server.ok(&["run", "create", "--codespec", "c", "--env", "MISSING=here"]);
}

#[test]
fn a_command_that_cannot_be_executed_fails_its_run_with_the_reason() {
    let server = server();
    server.ok(&["codespec", "create", "c", "--command", "--", "no-such-program"]);
    let failed = server.run(&["run", "exec", "--codespec", "c"]);
    assert!(failed.code == Some(1) && failed.stderr.contains("no-such-program"), "{}", failed.stderr);
}

#[test]
fn buffers_that_do_not_fit_are_refused() {
    let server = Server::start();
    server.ok(&["codespec", "create", "c", "--input", "in", "--output", "out", "--command", "--", "true"]);
    let written = server.buffer("x");
    let refused = |args: &[&str]| {
        let run = server.run(&[&["run", "create", "--codespec", "c"], args].concat());
        assert_eq!(run.code, Some(1), "{args:?}");
        run.stderr
    };
    let (input, output) = (format!("in={written}"), format!("out={written}"));
    for (args, part) in [
        (&[][..], "no buffer for input \"in\""),
        (&["--buffer", "in=absent"], "absent"),
        (&["--buffer", &input, "--buffer", "other=x"], "unknown buffer parameter \"other\""),
        (&["--buffer", &input, "--buffer", &output], "written once"),
    ] {
        let message = refused(args);
        assert!(message.contains(part), "{args:?}: {message}");
    }
    assert!(server.run(&["run", "create", "--codespec", "absent"]).stderr.contains("no codespec \"absent\""));
}

#[test]
fn a_run_whose_input_fails_fails_with_that_reason() {
    let server = server();
    server.ok(&[
        "codespec",
        "create",
        "c",
        "--input",
        "in",
        "--command",
        "--",
        "sh",
        "-c",
        "cat $IN_PIPE; sleep 600",
    ]);
    let buffer = server.ok(&["buffer", "create"]);
    let mut writer = server.command(&["buffer", "write", &buffer]);
    let mut writer = writer.stdin(std::process::Stdio::piped()).spawn().unwrap();
    let id = server.ok(&["run", "create", "--codespec", "c", "--buffer", &format!("in={buffer}")]);
    crate::until_shown(&server, &["run", "show", &id], |run| run["state"] == "running");
    // As ctrl-C: the writer fails its buffer.
    crate::rig::signal(writer.id(), rustix::process::Signal::INT);
    writer.wait().unwrap();
    let waited = server.run(&["run", "wait", &id]);
    assert!(waited.code == Some(1) && waited.stderr.contains("input \"in\""), "{}", waited.stderr);
    assert_eq!(text(&server.json(&["run", "show", &id]), "state"), "failed");
}

#[test]
fn names_of_the_server_are_refused() {
    let server = Server::start();
    let refused = server.run(&["queue", "create", "towline:pool:x"]);
    assert!(refused.code == Some(1) && refused.stderr.contains("towline:"), "{}", refused.stderr);
    server.ok(&["codespec", "create", "c", "--command", "--", "true"]);
    let refused = server.run(&["run", "create", "--codespec", "c", "--tag", "towline.kind=slot"]);
    assert!(refused.code == Some(1) && refused.stderr.contains("towline."), "{}", refused.stderr);
}
