//! The server holds only a small part of a large buffer in memory.

use crate::rig::{Run, Server};

const MOST_KB: u64 = 300 << 10;

/// Peak memory of the server in KiB.
fn peak_kb(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn a_gibibyte_is_transferred_in_little_memory() {
    let server = Server::start();
    let before = peak_kb(&server);
    let mut script = server.script(
        "set -euo pipefail; id=$(towline buffer create)
         towline buffer read $id | cksum > read &
         { yes 'a line of text' || true; } | head -c 1073741824 | tee >(cksum >&2) | towline buffer write $id
         wait; towline buffer delete $id",
    );
    let run = Run::of(script.current_dir(server.directory()));
    assert_eq!(run.code, Some(0), "{run:?}");
    let read = std::fs::read_to_string(server.directory().join("read")).unwrap();
    assert_eq!(read, run.stderr, "what was read is not what was written");
    let after = peak_kb(&server);
    println!("peak of the server's memory: {} MiB, {} MiB at the start", after >> 10, before >> 10);
    assert!(after < MOST_KB, "{after} KiB");
}
