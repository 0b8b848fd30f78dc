//! Resuming transfers of an earlier process.

use crate::faulty_proxy::{End, FaultyProxy};
use crate::rig::{Server, piped, until};
use std::path::Path;
use std::process::Child;

const STALL: u64 = 10_000_000;

fn content() -> Vec<u8> {
    (0..60_000_000_u32).map(|n| (n / 7) as u8).collect()
}

/// A command over a connection that stalls after a while.
fn stalling(server: &Server, args: &[&str]) -> Child {
    let proxy = FaultyProxy::to(server.address(), |_| End::Stall(STALL));
    let mut command = server.command(args);
    piped(command.env("TOWLINE_URL", proxy.url())).spawn().unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn an_interrupted_upload_resumes() {
    let server = Server::start();
    let file = server.directory().join("file");
    std::fs::write(&file, content()).unwrap();
    let id = server.ok(&["buffer", "create"]);
    let write = ["buffer", "write", &id, "--resume", "--input", text(&file)];
    let mut first = stalling(&server, &write);
    until("two chunks are there", || server.json(&["buffer", "show", &id])["chunks"].as_u64() >= Some(2));
    first.kill().unwrap();
    first.wait().unwrap();
    // Another process, or another file, is another writer.
    let other = server.directory().join("other");
    std::fs::write(&other, content()).unwrap();
    for args in [
        &["buffer", "write", &id, "--input", text(&file)][..],
        &["buffer", "write", &id, "--resume", "--input", text(&other)],
    ] {
        let run = server.run(args);
        assert!(run.code == Some(1) && run.stderr.contains("overwrite refused"), "{run:?}");
    }
    server.ok(&write);
    let read = server.directory().join("read");
    server.ok(&["buffer", "read", &id, "--output", text(&read)]);
    assert!(std::fs::read(&read).unwrap() == content());
    assert_eq!(server.run(&write).code, Some(1), "it is complete");
}

#[test]
fn an_interrupted_download_resumes() {
    let server = Server::start();
    let (file, read) = (server.directory().join("file"), server.directory().join("read"));
    std::fs::write(&file, content()).unwrap();
    let id = server.ok(&["buffer", "create"]);
    server.ok(&["buffer", "write", &id, "--input", text(&file)]);
    let mut first = stalling(&server, &["buffer", "read", &id, "--output", text(&read)]);
    let length = || std::fs::metadata(&read).map_or(0, |about| about.len());
    until("two chunks are there", || length() >= 8 << 20);
    first.kill().unwrap();
    first.wait().unwrap();
    let there = length();
    assert!(there < content().len() as u64, "{there} bytes: the transfer was complete already");
    let resume = ["buffer", "read", &id, "--resume", "--output", text(&read)];
    server.ok(&resume);
    assert!(std::fs::read(&read).unwrap() == content());
    // Resuming a complete file changes nothing.
    server.ok(&resume);
    assert!(std::fs::read(&read).unwrap() == content());
}

#[test]
fn a_resumed_download_replaces_wrong_bytes() {
    let server = Server::start();
    let (file, read) = (server.directory().join("file"), server.directory().join("read"));
    std::fs::write(&file, content()).unwrap();
    let id = server.ok(&["buffer", "create"]);
    server.ok(&["buffer", "write", &id, "--input", text(&file)]);
    let resume = ["buffer", "read", &id, "--resume", "--output", text(&read)];
    let mut damaged = content();
    damaged[30_000_000] ^= 1;
    for partial in
        [&damaged[..], &damaged[..40_000_000], &b"nonsense"[..], &[&content()[..], b"more"].concat(), b""]
    {
        std::fs::write(&read, partial).unwrap();
        server.ok(&resume);
        assert!(std::fs::read(&read).unwrap() == content(), "{} bytes", partial.len());
    }
}
