//! Inputs and outputs.

use crate::fixture::{Fixture, bytes_of, finish, first_line};
use std::fs;
use std::io::ErrorKind;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use towline_node::runner::Launch;

fn with_pipes(launch: Launch, inputs: &[&str], outputs: &[&str]) -> Launch {
    let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    Launch { inputs: owned(inputs), outputs: owned(outputs), ..launch }
}

pub async fn two_inputs_reach_two_outputs(fixture: &Fixture) {
    // In another order than that of the parameters.
    let script = "cat \"$B_PIPE\" > \"$Y_PIPE\"; tr a-z A-Z < \"$A_PIPE\" > \"$X_PIPE\"";
    let launch = with_pipes(fixture.script(script), &["a", "b"], &["x", "y"]);
    let ended = fixture.run_with(launch, &[("a", b"first"), ("b", &[0, 255, 10])]).await;
    assert!(ended.exit.is_success(), "{ended:?}");
    assert_eq!(ended.outputs["x"], b"FIRST");
    assert_eq!(ended.outputs["y"], [0, 255, 10]);
    assert!(ended.inputs["a"] && ended.inputs["b"]);
}

pub async fn an_output_that_is_never_opened_is_empty(fixture: &Fixture) {
    let launch = with_pipes(fixture.script("echo x > \"$X_PIPE\""), &[], &["x", "y"]);
    let ended = fixture.run(launch).await;
    assert_eq!((&ended.outputs["x"][..], &ended.outputs["y"][..]), (&b"x\n"[..], &b""[..]));
}

pub async fn an_input_that_is_closed_early_breaks(fixture: &Fixture) {
    // The command goes on after it has closed its input.
    let script = "head -c 3 \"$IN_PIPE\"; echo; read line < \"$GO_PIPE\"; echo \"$line\"";
    let mut running = fixture.start(with_pipes(fixture.script(script), &["in", "go"], &[])).await;
    let mut input = running.inputs.remove("in").unwrap();
    let error = loop {
        if let Err(error) = input.write_all(&[b'x'; 100_000]).await {
            break error;
        }
    };
    assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    let ended = finish(running, &[("go", b"still here\n")]).await;
    assert_eq!(ended.stdout, "xxx\nstill here\n");
    assert!(ended.exit.is_success());
}

pub async fn an_input_that_is_never_opened_breaks(fixture: &Fixture) {
    let launch = with_pipes(fixture.script("exit 4"), &["in"], &[]);
    let ended = fixture.run_with(launch, &[("in", b"unread")]).await;
    assert_eq!(ended.exit.code, Some(4));
    assert!(!ended.inputs["in"]);
}

pub async fn an_empty_input_ends(fixture: &Fixture) {
    let launch = with_pipes(fixture.script("wc -c < \"$IN_PIPE\""), &["in"], &[]);
    assert_eq!(fixture.run(launch).await.stdout.trim(), "0");
}

pub async fn writers_may_come_one_after_the_other(fixture: &Fixture) {
    let script = "for n in 1 2 3; do echo $n > \"$OUT_PIPE\"; done; (echo 4) > \"$OUT_PIPE\"";
    let launch = with_pipes(fixture.script(script), &[], &["out"]);
    assert_eq!(fixture.run(launch).await.outputs["out"], b"1\n2\n3\n4\n");
}

pub async fn much_data_needs_little_memory(fixture: &Fixture) {
    const BYTES: usize = 256 << 20;
    let launch = with_pipes(fixture.script("cat \"$IN_PIPE\" > \"$OUT_PIPE\""), &["in"], &["out"]);
    let mut running = fixture.start(launch).await;
    let mut input = running.inputs.remove("in").unwrap();
    let mut output = running.outputs.remove("out").unwrap();
    let before = memory_kib();
    let writing = tokio::spawn(async move {
        let piece = vec![7; 1 << 20];
        for _ in 0..BYTES >> 20 {
            input.write_all(&piece).await.unwrap();
        }
    });
    let (mut piece, mut total) = (vec![0; 256 << 10], 0);
    loop {
        let count = output.read(&mut piece).await.unwrap();
        if count == 0 {
            break;
        }
        assert!(piece[..count].iter().all(|&byte| byte == 7));
        total += count;
    }
    writing.await.unwrap();
    assert_eq!(total, BYTES);
    let grown = memory_kib().saturating_sub(before);
    assert!(grown < 32 << 10, "the node needed {grown} KiB more");
    assert!(finish(running, &[]).await.exit.is_success());
}

/// The largest memory that this process had.
fn memory_kib() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

pub async fn a_command_that_nobody_reads_waits(fixture: &Fixture) {
    let script = "echo ready; head -c 8388608 /dev/zero > \"$OUT_PIPE\"; echo done";
    let mut running = fixture.start(with_pipes(fixture.script(script), &[], &["out"])).await;
    assert_eq!(first_line(&mut running).await, "ready\n");
    let mut byte = [1];
    running.outputs.get_mut("out").unwrap().read_exact(&mut byte).await.unwrap();
    // The pipe is full, so no second line came; the rest comes once it is read.
    let out = running.outputs.remove("out").unwrap();
    let (rest, ended) = tokio::join!(bytes_of(out), finish(running, &[]));
    assert_eq!((byte, rest.len(), ended.stdout.as_str()), ([0], (8 << 20) - 1, "done\n"));
}
