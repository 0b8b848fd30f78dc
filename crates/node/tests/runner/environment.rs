//! What a command finds when it starts, and what is left when it has ended.

use crate::fixture::Fixture;
use std::collections::BTreeMap;
use towline_node::runner::{Limits, PrivateFile};

pub async fn exit_codes_are_reported(fixture: &Fixture) {
    // 126 and 127 are also what a shell answers for a command that cannot be started.
    for code in [0, 1, 7, 126, 127, 255] {
        let ended = fixture.run(fixture.script(&format!("exit {code}"))).await;
        assert_eq!((ended.exit.code, ended.exit.signal), (Some(code), None));
        assert_eq!(ended.exit.is_success(), code == 0);
    }
    let mut launch = fixture.launch(&["/bin/sh", "-c"]);
    launch.args = vec!["exit $1".to_owned(), "sh".to_owned(), "9".to_owned()];
    assert_eq!(fixture.run(launch).await.exit.code, Some(9));
}

async fn environment_of(fixture: &Fixture, given: &[(&str, &str)]) -> BTreeMap<String, String> {
    let mut launch = fixture.launch(&["env"]);
    launch.inputs = vec!["left-half".to_owned()];
    launch.outputs = vec!["result".to_owned()];
    launch.environment = given.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
    let ended = fixture.run(launch).await;
    assert!(ended.exit.is_success(), "{ended:?}");
    ended
        .stdout
        .lines()
        .filter_map(|line| line.split_once('='))
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .collect()
}

pub async fn the_environment_is_as_given(fixture: &Fixture) {
    let given =
        [("GREETING", "hello  world=1"), ("EMPTY", ""), ("PATH", "/usr/bin:/bin"), ("HOME", "/nowhere")];
    let found = environment_of(fixture, &given).await;
    for (name, value) in given {
        assert_eq!(found.get(name).map(String::as_str), Some(value), "{name}");
    }
    assert!(found["LEFT_HALF_PIPE"].ends_with("/left-half.pipe"));
    assert!(found["RESULT_PIPE"].ends_with("/result.pipe"));
    if !fixture.is_container() {
        let names: Vec<&str> = found.keys().map(String::as_str).collect();
        let expected = [
            "EMPTY",
            "GREETING",
            "HOME",
            "LEFT_HALF_PIPE",
            "PATH",
            "RESULT_PIPE",
            "TMPDIR",
            "TOWLINE_LAUNCH",
            "TOWLINE_NODE_INSTANCE",
        ];
        assert_eq!(names, expected);
    }
}

pub async fn nothing_of_the_nodes_environment_is_inherited(fixture: &Fixture) {
    // Cargo sets these for the test, which is the node here.
    let own: Vec<String> =
        std::env::vars().map(|(name, _)| name).filter(|name| name.starts_with("CARGO")).collect();
    assert!(!own.is_empty());
    let found = environment_of(fixture, &[]).await;
    for name in own {
        assert!(!found.contains_key(&name), "{name} is inherited");
    }
    assert!(found.contains_key("PATH") && found.contains_key("HOME"));
}

pub async fn private_files_are_in_reach_and_private(fixture: &Fixture) {
    let mut launch = fixture.script("cat \"$TOKEN_FILE\"; stat -c %a \"$TOKEN_FILE\" >&2");
    let contents = b"secret\n".to_vec();
    launch.files =
        vec![PrivateFile { name: "token".to_owned(), contents, variable: "TOKEN_FILE".to_owned() }];
    let ended = fixture.run(launch).await;
    assert_eq!(ended.stdout, "secret\n");
    if !fixture.is_container() {
        assert_eq!(ended.stderr, "600\n");
    }
}

pub async fn a_large_environment_arrives_whole(fixture: &Fixture) {
    let mut launch = fixture.script("printf %s \"$V0$V1$V2$V3$V4$V5$V6$V7\" | wc -c");
    // More than a socket holds. One variable may have 128 KiB.
    launch.environment = (0..8).map(|n| (format!("V{n}"), "x".repeat(100_000))).collect();
    assert_eq!(fixture.run(launch).await.stdout.trim(), "800000");
}

pub async fn limits_hold(fixture: &Fixture) {
    let mut launch = fixture.script("ulimit -n; ulimit -c");
    launch.limits = Limits { open_files: Some(77), ..Limits::default() };
    assert_eq!(fixture.run(launch).await.stdout, "77\n0\n");

    // Needs 256 MiB.
    let script = "awk 'BEGIN { s = \"x\"; for (i = 0; i < 28; i++) s = s s; print length(s) }'";
    let mut launch = fixture.script(script);
    launch.limits = Limits { memory_bytes: Some(64 << 20), ..Limits::default() };
    let ended = fixture.run(launch).await;
    assert!(!ended.exit.is_success(), "{ended:?}");
    assert_eq!(ended.stdout, "");
    let unlimited = fixture.run(fixture.script(script)).await;
    assert_eq!(unlimited.stdout.trim(), (1 << 28).to_string());
}

pub async fn the_directory_is_removed_with_closed_directories(fixture: &Fixture) {
    let mut launch = fixture.script(
        "cd \"$(dirname \"$OUT_PIPE\")/work\" 2> /dev/null || exit 0; mkdir -p a/b && echo x > a/b/file && ln -s / link && chmod 500 a/b && chmod 0 a",
    );
    launch.outputs = vec!["out".to_owned()];
    let id = launch.id.clone();
    let ended = fixture.run(launch).await;
    assert!(ended.exit.is_success(), "{ended:?}");
    assert!(fixture.directory().exists());
    assert!(!fixture.directory().join(id).exists());
}
