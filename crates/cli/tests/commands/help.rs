//! Snapshots of help texts. A review sees every changed name and flag.

use crate::rig::{Run, towline};

fn help(words: &[&str]) -> String {
    let run = Run::of(&mut towline(&[words, &["--help"]].concat()));
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{words:?}");
    run.stdout
}

#[test]
fn towline_alone_prints_help() {
    let bare = Run::of(&mut towline(&[]));
    assert_eq!((bare.code, bare.stdout.as_str()), (Some(2), ""), "{bare:?}");
    for words in ["Usage: towline", "serve", "queue"] {
        assert!(bare.stderr.contains(words), "{words}: {bare:?}");
    }
}

#[test]
fn help_of_the_groups() {
    insta::assert_snapshot!("queue", help(&["queue"]));
    insta::assert_snapshot!("queue_item", help(&["queue", "item"]));
    insta::assert_snapshot!("buffer", help(&["buffer"]));
    insta::assert_snapshot!("events", help(&["events"]));
    insta::assert_snapshot!("group", help(&["group"]));
    insta::assert_snapshot!("group_wait", help(&["group", "wait"]));
    insta::assert_snapshot!("schedule", help(&["schedule"]));
    insta::assert_snapshot!("kv", help(&["kv"]));
    for command in ["get", "set", "delete"] {
        insta::assert_snapshot!(format!("kv_{command}"), help(&["kv", command]));
    }
    for command in ["backup", "doctor", "export", "import", "restore"] {
        insta::assert_snapshot!(command, help(&[command]));
    }
    for command in ["create", "list", "revoke"] {
        insta::assert_snapshot!(format!("token_{command}"), help(&["token", command]));
    }
    for command in ["apply", "tail", "tally", "update"] {
        insta::assert_snapshot!(format!("queue_{command}"), help(&["queue", command]));
    }
    for command in ["show", "count", "cancel", "redrive"] {
        insta::assert_snapshot!(format!("queue_item_{command}"), help(&["queue", "item", command]));
    }
    insta::assert_snapshot!("kv_increment", help(&["kv", "increment"]));
    insta::assert_snapshot!("topic", help(&["topic"]));
    insta::assert_snapshot!("schedule_create", help(&["schedule", "create"]));
}

#[test]
fn help_of_compute() {
    for command in ["codespec", "run", "service", "trigger", "node"] {
        insta::assert_snapshot!(command, help(&[command]));
    }
    for (command, verbs) in [
        ("codespec", &["create"][..]),
        ("run", &["create", "exec", "list", "logs", "wait", "cancel"]),
        ("service", &["create", "scale", "logs"]),
        ("trigger", &["create", "scale"]),
    ] {
        for verb in verbs {
            insta::assert_snapshot!(format!("{command}_{verb}"), help(&[command, verb]));
        }
    }
}

#[test]
fn help_of_tygers_commands() {
    for command in ["create", "submit", "receive", "watch"] {
        insta::assert_snapshot!(format!("queue_{command}"), help(&["queue", command]));
    }
    for command in ["heartbeat", "commit", "fail", "retry", "release", "defer", "wait", "list", "purge"] {
        insta::assert_snapshot!(format!("queue_item_{command}"), help(&["queue", "item", command]));
    }
    for command in ["create", "write", "read"] {
        insta::assert_snapshot!(format!("buffer_{command}"), help(&["buffer", command]));
    }
}

#[test]
fn singular_and_plural_commands_have_the_same_help() {
    let singular = help(&["queue", "item", "commit"]);
    for words in [&["queues", "items", "commit"][..], &["item", "commit"], &["items", "commit"]] {
        let without_usage =
            |text: &str| text.lines().filter(|line| !line.starts_with("Usage")).collect::<String>();
        assert_eq!(without_usage(&help(words)), without_usage(&singular));
    }
}

#[test]
fn completions_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let run = Run::of(&mut towline(&["completions", shell]));
        assert_eq!(run.code, Some(0));
        assert!(run.stdout.contains("heartbeat") && run.stdout.contains("while-alive"), "{shell}");
    }
}

#[test]
fn manual_pages_of_every_command() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("man");
    let run = Run::of(&mut towline(&["man", "--out", out.to_str().unwrap()]));
    assert_eq!(run.code, Some(0), "{run:?}");
    for page in ["towline.1", "towline-serve.1", "towline-queue-submit.1", "towline-queue-item-heartbeat.1"] {
        assert!(out.join(page).exists(), "{page}");
    }
    assert!(Run::of(&mut towline(&["man"])).stdout.starts_with(".ie"));
}
