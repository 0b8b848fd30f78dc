//! The progress bar on a terminal, and its absence elsewhere.

use crate::rig::{Server, in_time, towline, until};
use rustix::fs::{Mode, OFlags, open};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

const CHUNK: usize = 4 << 20;

/// A pseudo-terminal and what was written to it so far.
fn terminal() -> (OwnedFd, Arc<Mutex<String>>) {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let name = ptsname(&ours, Vec::new()).unwrap();
    let theirs =
        open(name.as_c_str(), OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty()).unwrap();
    let seen = Arc::new(Mutex::new(String::new()));
    let shown = Arc::clone(&seen);
    std::thread::spawn(move || {
        let (mut ours, mut some) = (File::from(ours), [0; 4096]);
        // Reading a terminal that no process has open fails.
        while let Ok(count @ 1..) = ours.read(&mut some) {
            shown.lock().unwrap().push_str(&String::from_utf8_lossy(&some[..count]));
        }
    });
    (theirs, seen)
}

fn at_a_terminal(command: &mut Command) -> Arc<Mutex<String>> {
    let (theirs, seen) = terminal();
    command.env("TERM", "xterm").stderr(Stdio::from(theirs));
    seen
}

#[test]
fn a_terminal_shows_the_progress_of_a_backup_a_restore_and_a_check() {
    let server = Server::start();
    server.ok(&["queue", "create", "jobs"]);
    let (out, data) = (server.directory().join("out"), server.directory().join("restored"));
    let mut backup = server.command(&["backup"]);
    let mut restore = towline(&["restore"]);
    let mut doctor = towline(&["doctor", "--data"]);
    for (command, words) in [
        (backup.arg(&out), "backed up"),
        (restore.arg(&out).arg("--data").arg(&data), "restored"),
        (doctor.arg(&data).stdout(Stdio::null()), ""),
    ] {
        let seen = at_a_terminal(command);
        let mut child = command.spawn().unwrap();
        assert!(in_time("the command ends", move || child.wait()).unwrap().success());
        until("the progress and the result are shown", || {
            let seen = seen.lock().unwrap();
            seen.contains("/s") && seen.contains(words)
        });
    }
}

#[test]
fn a_terminal_shows_a_progress_bar() {
    let server = Server::start();
    let id = server.ok(&["buffer", "create"]);
    let mut write = server.command(&["buffer", "write", &id]);
    let seen = at_a_terminal(write.stdin(Stdio::piped()));
    let mut writing = write.spawn().unwrap();
    drop(write);
    let mut input = writing.stdin.take().unwrap();
    input.write_all(&vec![7; CHUNK]).unwrap();
    // The length of a pipe is unknown.
    until("the first chunk is shown", || seen.lock().unwrap().contains("4.00 MiB"));
    input.write_all(&[7; 100]).unwrap();
    drop(input);
    assert!(in_time("the write ends", move || writing.wait()).unwrap().success());

    let mut read = server.command(&["buffer", "read", &id]);
    let seen = at_a_terminal(read.stdout(Stdio::null()));
    let mut reading = read.spawn().unwrap();
    drop(read);
    assert!(in_time("the read ends", move || reading.wait()).unwrap().success());
    until("the whole is shown", || seen.lock().unwrap().contains("/4.00 MiB"));
    // The next output starts on a clean line.
    until("the line is cleared", || seen.lock().unwrap().ends_with("\u{1b}[2K"));
}

#[test]
fn a_script_sees_no_progress_bar() {
    let server = Server::start();
    let id = server.buffer("content");
    let run = server.run(&["buffer", "read", &id]);
    assert_eq!((run.stdout.as_str(), run.stderr.as_str()), ("content", ""));
}

/// Runs a command on a terminal of this width, and returns what the terminal shows.
fn shown_on(columns: u16, command: &mut Command) -> String {
    let (theirs, seen) = terminal();
    let size = format!("stty cols {columns} && exec \"$@\"");
    let mut shell = Command::new("bash");
    shell.args(["-c", &size, "bash"]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs().filter_map(|(name, value)| Some((name, value?))) {
        shell.env(name, value);
    }
    shell.env("TERM", "xterm").stdin(theirs.try_clone().unwrap()).stdout(theirs);
    let mut child = shell.spawn().unwrap();
    drop(shell);
    assert!(in_time("the command ends", move || child.wait()).unwrap().success());
    let shown = || seen.lock().unwrap().clone();
    until("the table is shown", || shown().ends_with('\n'));
    shown()
}

#[test]
fn a_table_fits_the_terminal_and_has_colours_only_there() {
    let server = Server::start();
    server.ok(&["queue", "create", "jobs"]);
    let id = server.ok(&["queue", "submit", "jobs"]);
    server.ok(&["item", "cancel", &id, "--reason", &"no longer needed ".repeat(4)]);
    let list = ["item", "list", "jobs"];
    let wide = shown_on(200, &mut server.command(&list));
    assert!(wide.contains("PRIORITY") && wide.contains("\u{1b}["), "{wide:?}");
    let narrow = shown_on(80, server.command(&list).env("NO_COLOR", "1"));
    assert!(narrow.lines().all(|line| line.trim_end().chars().count() <= 80), "{narrow:?}");
    assert!(
        narrow.contains(&id) && narrow.contains("failed (cancelled)") && narrow.contains("no longer"),
        "{narrow:?}"
    );
    assert!(!narrow.contains('\u{1b}'), "{narrow:?}");

    let piped = server.ok(&["-o", "table", "item", "list", "jobs"]);
    assert!(piped.contains("PRIORITY") && !piped.contains('\u{1b}'), "{piped:?}");
    let forced = server.ok(&["-o", "table", "--color", "always", "item", "list", "jobs"]);
    assert!(forced.contains("\u{1b}["), "{forced:?}");
}

#[test]
fn a_finished_upload_prints_size_time_and_hash_and_the_list_shows_size_and_state() {
    let server = Server::start();
    let id = server.ok(&["buffer", "create"]);
    let empty = server.ok(&["buffer", "create"]);
    let file = server.directory().join("input");
    std::fs::write(&file, "content").unwrap();
    let mut write = server.command(&["buffer", "write", &id, "--input", file.to_str().unwrap()]);
    let seen = at_a_terminal(&mut write);
    let mut writing = write.spawn().unwrap();
    drop(write);
    assert!(in_time("the write ends", move || writing.wait()).unwrap().success());
    let buffer = server.json(&["buffer", "show", &id]);
    let chain = buffer["chain"].as_str().unwrap();
    let words = ["towline: wrote 7 bytes (7 B) in ", chain];
    until("the summary is shown", || words.iter().all(|words| seen.lock().unwrap().contains(words)));
    let listed = server.json(&["buffer", "list"]);
    let of = |id: &str| listed.as_array().unwrap().iter().find(|buffer| buffer["id"] == *id).unwrap().clone();
    assert_eq!((&of(&id)["state"], &of(&id)["bytes"]), (&"complete".into(), &7.into()));
    assert_eq!((&of(&empty)["state"], &of(&empty)["bytes"]), (&"empty".into(), &0.into()));
    assert!(server.ok(&["buffer", "list", "-o", "table"]).contains("complete  7 B"));
}
