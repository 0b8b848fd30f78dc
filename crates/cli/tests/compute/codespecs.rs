//! Codespecs never change.

use crate::rig::Server;

#[test]
fn an_identical_codespec_is_the_same_version_and_another_one_is_a_new_version() {
    let server = Server::start();
    let create =
        |word: &str| server.ok(&["codespec", "create", "c", "--env", "A=1", "--command", "--", "echo", word]);
    assert_eq!((create("one"), create("one"), create("two"), create("one")), {
        let version = |n| format!("c@{n}");
        (version(1), version(1), version(2), version(3))
    });
    let shown = |name: &str| server.json(&["codespec", "show", name]);
    assert_eq!(shown("c")["version"], 3);
    assert_eq!(shown("c@2")["codespec"]["command"][1], "two");
    assert_eq!(server.json(&["codespec", "list"]).as_array().unwrap().len(), 1);
    server.ok(&["codespec", "delete", "c"]);
    assert!(server.run(&["codespec", "show", "c@2"]).stderr.contains("no codespec"));
    assert_eq!(create("four"), "c@4", "numbers are never used again");
}

#[test]
fn a_codespec_in_use_is_not_deleted() {
    let server = Server::start();
    server.ok(&["codespec", "create", "loop", "--queue", "jobs", "--command", "--", "sleep", "600"]);
    server.ok(&["queue", "create", "q"]);
    server.ok(&["service", "create", "s", "--codespec", "loop", "--queue", "jobs=q", "--replicas", "0"]);
    let refused = server.run(&["codespec", "delete", "loop"]);
    assert!(refused.code == Some(1) && refused.stderr.contains("service \"s\""), "{}", refused.stderr);
}

#[test]
fn the_yaml_of_the_tyger_document_works_as_printed() {
    let server = Server::start();
    let file = server.directory().join("inference-service.yml");
    std::fs::write(&file, include_str!("inference-service.yml")).unwrap();
    let file = file.to_str().unwrap();
    let made = server.run(&["codespec", "create", "--kind", "service", "-f", file]);
    assert_eq!(made.stdout.trim_end(), "inference-service@1");
    assert!(made.stderr.contains("queues, replicas"), "{}", made.stderr);
    server.ok(&["queue", "create", "inference-requests"]);
    let referenced = ["service", "create", "my-inference-service", "--codespec", "inference-service"];
    server.ok(&[&referenced[..], &["--replicas", "2", "--queue", "requests=inference-requests"]].concat());
    let shown = server.json(&["service", "show", "my-inference-service"]);
    assert_eq!((&shown["codespec"], &shown["wanted"]), (&"inference-service@1".into(), &2.into()), "{shown}");
    // Inline: the codespec is created under the name of the service, and flags override the file.
    assert_eq!(server.ok(&["service", "create", "inline", "-f", file, "--replicas", "0"]), "inline");
    let shown = server.json(&["service", "show", "inline"]);
    assert_eq!((&shown["state"], &shown["codespec"]), (&"stopped".into(), &"inline@1".into()), "{shown}");
    assert_eq!(shown["queues"]["requests"], "inference-requests");
}
