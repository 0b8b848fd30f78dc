//! Standard output and standard error as a log.

use crate::fixture::{Fixture, first_line};
use jiff::Timestamp;
use towline_node::runner::{LogCap, Logs};

pub async fn both_streams_are_in_the_log(fixture: &Fixture) {
    let running = fixture.start(fixture.script("echo one; echo two >&2; printf three")).await;
    let mut logs = Logs::new(running.stdout, running.stderr, LogCap::default(), || Timestamp::UNIX_EPOCH);
    let mut text = Vec::new();
    while let Some(chunk) = logs.next_chunk().await {
        assert!(chunk.ends_with(b"\n"));
        text.extend(chunk);
    }
    let text = String::from_utf8(text).unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    // The two streams have no order between them.
    lines.sort_unstable();
    let time = "1970-01-01T00:00:00.000Z";
    assert_eq!(lines, [format!("{time} e two"), format!("{time} o one"), format!("{time} o three")]);
    assert!(running.handle.wait().await.is_success());
}

pub async fn a_log_is_given_out_while_the_command_runs(fixture: &Fixture) {
    let mut running =
        fixture.start(fixture.script("echo ready; seq 1 20000; echo waiting; sleep 1000")).await;
    assert_eq!(first_line(&mut running).await, "ready\n");
    let mut logs = Logs::new(running.stdout, running.stderr, LogCap::default(), || Timestamp::UNIX_EPOCH);
    let mut chunks: Vec<Vec<u8>> = Vec::new();
    while !chunks.concat().ends_with(b" o waiting\n") {
        chunks.push(logs.next_chunk().await.unwrap());
    }
    // 20,000 lines with times are more than 500 KB.
    assert!(chunks.len() >= 2, "{} chunks", chunks.len());
    running.handle.kill();
    assert_eq!(logs.next_chunk().await, None);
    running.handle.wait().await;
}
