//! Writers and servers that are killed, and connections that are cut: a reader never takes a part for the
//! whole, and no acknowledged byte is lost.

use crate::faulty_proxy::{End, FaultyProxy};
use crate::rig::{Lines, Run, Server, in_time, piped, signal, until};
use rustix::process::Signal;
use std::io::Write;
use std::process::{Child, ChildStdin, Stdio};

/// A writer that has written something and waits for more input.
fn writer(server: &Server, id: &str, words: &str) -> (Child, ChildStdin) {
    let mut writer =
        piped(&mut server.command(&["buffer", "write", id])).stdin(Stdio::piped()).spawn().unwrap();
    let mut input = writer.stdin.take().unwrap();
    input.write_all(words.as_bytes()).unwrap();
    until("what was written is there", || server.json(&["buffer", "show", id])["bytes"] == words.len());
    (writer, input)
}

#[test]
fn a_killed_writer_fails_its_readers() {
    let server = Server::start_with(&[("TOWLINE_BUFFER_WRITER_TIMEOUT", "2s")]);
    let id = server.ok(&["buffer", "create"]);
    let reader = piped(&mut server.command(&["buffer", "read", &id])).spawn().unwrap();
    let (mut writer, _input) = writer(&server, &id, "half of it");
    writer.kill().unwrap();
    writer.wait().unwrap();
    let run = Run::end(reader);
    assert_eq!((run.code, run.stdout.as_str()), (Some(1), "half of it"), "{run:?}");
    assert!(run.stderr.contains("vanished"), "{run:?}");
    // A later reader gets the same error, and the buffer cannot be written again.
    let run = server.run(&["buffer", "read", &id]);
    assert!(run.code == Some(1) && run.stderr.contains("vanished"), "{run:?}");
    assert_eq!(server.json(&["buffer", "show", &id])["state"], "failed");
    assert_eq!(server.feed(&["buffer", "write", &id], "again").code, Some(1));
}

#[test]
fn an_interrupted_writer_fails_its_readers() {
    for with in [Signal::INT, Signal::TERM] {
        let server = Server::start();
        let id = server.ok(&["buffer", "create"]);
        let reader = piped(&mut server.command(&["buffer", "read", &id])).spawn().unwrap();
        let (writer, _input) = writer(&server, &id, "half of it");
        signal(writer.id(), with);
        let run = Run::end(writer);
        assert_eq!(run.code, Some(1), "{run:?}");
        assert!(run.stderr.contains("interrupted") && run.stderr.contains(&id), "{run:?}");
        let run = Run::end(reader);
        assert_eq!((run.code, run.stdout.as_str()), (Some(1), "half of it"), "{run:?}");
        assert!(run.stderr.contains("interrupted"), "{run:?}");
    }
}

#[test]
fn a_killed_server_keeps_acknowledged_chunks() {
    let mut server = Server::start();
    let id = server.ok(&["buffer", "create"]);
    let mut reader = piped(&mut server.command(&["buffer", "read", &id])).spawn().unwrap();
    let (writer, mut input) = writer(&server, &id, "before\n");
    let (lines, read) = Lines::of(reader.stdout.take().unwrap()).read();
    assert_eq!(read, "before\n");
    let acknowledged = server.json(&["buffer", "show", &id]);
    server.kill();
    // Writer and reader both notice the outage.
    input.write_all(b"and after").unwrap();
    drop(input);
    server.restart();
    let run = Run::end(writer);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert_eq!(lines.rest(), "and after");
    assert_eq!(Run::end(reader).code, Some(0));
    let shown = server.json(&["buffer", "show", &id]);
    assert_eq!((&shown["state"], &shown["bytes"]), (&"complete".into(), &16.into()));
    assert_eq!((&acknowledged["bytes"], &acknowledged["chunks"]), (&7.into(), &1.into()));
    assert_eq!(server.ok(&["buffer", "read", &id]), "before\nand after");
}

#[test]
fn a_server_killed_under_load_loses_no_complete_buffer() {
    let mut server = Server::start();
    let file = server.directory().join("file");
    std::fs::write(&file, (0..20_000_000_u32).map(|n| (n / 7) as u8).collect::<Vec<u8>>()).unwrap();
    let mut complete = Vec::new();
    for _ in 0..3 {
        let id = server.ok(&["buffer", "create"]);
        server.ok(&["buffer", "write", &id, "--input", file.to_str().unwrap()]);
        // The next chunk is on its way when the server is killed.
        let next = server.ok(&["buffer", "create"]);
        let under_way =
            piped(&mut server.command(&["buffer", "write", &next, "--input", file.to_str().unwrap()]))
                .spawn()
                .unwrap();
        until("it began", || server.json(&["buffer", "show", &next])["state"] != "empty");
        server.kill();
        server.restart();
        let run = Run::end(under_way);
        assert_eq!(run.code, Some(0), "{run:?}");
        complete.extend([id, next]);
    }
    for id in complete {
        let read = server.directory().join("read");
        server.ok(&["buffer", "read", &id, "--output", read.to_str().unwrap()]);
        assert!(std::fs::read(&read).unwrap() == std::fs::read(&file).unwrap(), "{id}");
    }
}

#[test]
fn writer_and_reader_resume_broken_connections() {
    let server = Server::start();
    // The cut connections carry at most 62 MB, and the transfers need at least 80 MB. So uncut connections
    // must follow.
    let proxy = FaultyProxy::to(server.address(), |n| {
        if n < 20 { End::Cut(200_000 + n as u64 * 300_000) } else { End::Never }
    });
    let (sent, got) = (server.directory().join("sent"), server.directory().join("got"));
    std::fs::write(&sent, (0..40_000_000_u32).map(|n| (n / 7) as u8).collect::<Vec<u8>>()).unwrap();
    let id = server.ok(&["buffer", "create"]);
    let through = |args: &[&str]| {
        let mut command = server.command(args);
        command.env("TOWLINE_URL", proxy.url());
        piped(&mut command).spawn().unwrap()
    };
    let reader = through(&["buffer", "read", &id, "--output", got.to_str().unwrap()]);
    let writer = through(&["buffer", "write", &id, "--input", sent.to_str().unwrap()]);
    for child in [writer, reader] {
        let run = Run::end(child);
        assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{run:?}");
    }
    assert!(std::fs::read(&sent).unwrap() == std::fs::read(&got).unwrap());
    assert!(proxy.connections() > 20, "only {} connections: some were not cut", proxy.connections());
    // A range resumes where it broke off.
    let proxy = FaultyProxy::to(server.address(), |n| if n < 4 { End::Cut(3_000_000) } else { End::Never });
    let mut command = server.command(&["buffer", "read", &id, "--range", "1000-29999999"]);
    let child = piped(command.env("TOWLINE_URL", proxy.url())).spawn().unwrap();
    let output = in_time("the range is read", move || child.wait_with_output()).unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(output.stdout == std::fs::read(&sent).unwrap()[1000..30_000_000]);
    assert!(proxy.connections() > 4, "only {} connections: some were not cut", proxy.connections());
}
