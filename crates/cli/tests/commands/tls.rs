//! A server with TLS, and clients that trust it or not.

use crate::rig::{Run, Server, piped, signal, until};
use rustix::process::Signal;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Writes a new self-signed certificate for this machine, and its key.
fn write_certificate(directory: &Path) {
    let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
    let made = rcgen::generate_simple_self_signed(names).unwrap();
    std::fs::write(directory.join("cert.pem"), made.cert.pem()).unwrap();
    std::fs::write(directory.join("key.pem"), made.signing_key.serialize_pem()).unwrap();
}

fn start() -> Server {
    Server::start_prepared(|directory| {
        write_certificate(directory);
        let path = |name: &str| directory.join(name).to_str().unwrap().to_owned();
        vec![
            ("TOWLINE_TLS_CERT".to_owned(), path("cert.pem")),
            ("TOWLINE_TLS_KEY".to_owned(), path("key.pem")),
        ]
    })
}

fn trusting(server: &Server, authority: &Path, args: &[&str]) -> Command {
    let mut command = server.command(args);
    command.env("TOWLINE_CA_FILE", authority);
    command
}

/// A copy of the current certificate, which a reload does not change.
fn authority(server: &Server, name: &str) -> PathBuf {
    let copy = server.directory().join(name);
    std::fs::copy(server.directory().join("cert.pem"), &copy).unwrap();
    copy
}

#[test]
fn only_clients_that_trust_the_certificate_are_served() {
    let server = start();
    assert!(server.url().starts_with("https://"), "{}", server.url());
    let authority = authority(&server, "authority.pem");
    let run = |args: &[&str]| Run::of(&mut trusting(&server, &authority, args));
    run(&["queue", "create", "jobs"]).ok(&["create"]);
    let id = run(&["queue", "submit", "jobs", "--payload", "hello"]).ok(&["submit"]);
    assert!(run(&["queue", "receive", "jobs"]).ok(&["receive"]).contains(&id));
    let args = ["queue", "list", "--ca-file", authority.to_str().unwrap()];
    assert!(server.ok(&args).contains("jobs"));

    let distrusted = server.run(&["queue", "list"]);
    assert_eq!(distrusted.code, Some(1), "{distrusted:?}");
    assert!(distrusted.stderr.contains("not trusted") && distrusted.stderr.contains("--ca-file"));
    // The right certificate under a wrong host name.
    let url = server.url().replace("127.0.0.1", "127.0.0.2");
    let misnamed = Run::of(trusting(&server, &authority, &["queue", "list"]).env("TOWLINE_URL", url));
    assert!(misnamed.code == Some(1) && misnamed.stderr.contains("not trusted") || misnamed.code == Some(3));
    // A request without encryption gets no answer.
    let url = server.url().replace("https://", "http://");
    let plain = Run::of(server.command(&["queue", "list"]).env("TOWLINE_URL", url));
    assert_eq!(plain.code, Some(3), "{plain:?}");
    let nonsense =
        server.run(&["queue", "list", "--ca-file", server.directory().join("key.pem").to_str().unwrap()]);
    assert_eq!(nonsense.code, Some(2), "{nonsense:?}");
}

#[test]
fn sighup_reloads_the_certificate_without_ending_calls() {
    let server = start();
    let old = authority(&server, "old.pem");
    let list = |authority: &Path| Run::of(&mut trusting(&server, authority, &["queue", "list"])).code;
    Run::of(&mut trusting(&server, &old, &["queue", "create", "jobs"])).ok(&["create"]);
    until("no connection is open", || connections(server.address()) == 0);
    let mut waiting = trusting(&server, &old, &["queue", "receive", "jobs", "--wait", "5m"]);
    let waiting = piped(&mut waiting).spawn().unwrap();
    until("a connection is open", || connections(server.address()) > 0);

    // Only one of the two files is new: the server keeps the old ones and says so.
    std::fs::write(server.directory().join("cert.pem"), "garbage").unwrap();
    signal(server.pid(), Signal::HUP);
    until("the bad certificate is reported", || server.log().contains("the old one stays in use"));
    assert!(server.log().contains("cert.pem"), "{}", server.log());
    assert_eq!(list(&old), Some(0));

    write_certificate(server.directory());
    let new = authority(&server, "new.pem");
    assert_eq!(list(&old), Some(0), "not before the signal");
    signal(server.pid(), Signal::HUP);
    until("the new certificate is shown", || list(&new) == Some(0));
    assert_eq!(list(&old), Some(1));

    // A receive that waited during the reloads gets the item.
    let args = ["queue", "submit", "jobs", "--payload", "late"];
    let id = Run::of(&mut trusting(&server, &new, &args)).ok(&args);
    assert!(Run::end(waiting).ok(&["receive"]).contains(&id));
}

/// Open connections of the server at this address.
fn connections(address: &str) -> usize {
    let port: u16 = address.rsplit(':').next().unwrap().parse().unwrap();
    let (local, established) = (format!(":{port:04X}"), "01");
    let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    let rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    rows.filter(|row| row.len() > 3 && row[1].ends_with(&local) && row[3] == established).count()
}

#[test]
fn garbage_and_silent_connections_do_not_block_the_server() {
    let server = start();
    let authority = authority(&server, "authority.pem");
    let silent: Vec<TcpStream> = (0..50).map(|_| TcpStream::connect(server.address()).unwrap()).collect();
    for garbage in
        [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0x16, 3, 1, 0xff, 0xff, 1, 2, 3], &[0; 1000], &[0xff; 70_000]]
    {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        // The server may close the connection while the test is still writing.
        let _ = stream.write_all(garbage);
        stream.shutdown(std::net::Shutdown::Write).ok();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    }
    assert_eq!(Run::of(&mut trusting(&server, &authority, &["queue", "list"])).code, Some(0));
    drop(silent);
}

#[test]
fn unusable_certificate_files_are_reported_at_the_start() {
    let directory = tempfile::tempdir().unwrap();
    write_certificate(directory.path());
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (cert, key, data) = (path("cert.pem"), path("key.pem"), path("data"));
    let serve = |args: &[&str]| {
        let common = ["serve", "--listen", "127.0.0.1:0", "--data", &data];
        Run::of(&mut crate::rig::towline(&[&common[..], args].concat()))
    };
    for (args, named) in [
        (&["--tls-cert", &cert][..], "tls_key"),
        (&["--tls-cert", "/does/not/exist", "--tls-key", &key], "/does/not/exist"),
        (&["--tls-cert", &key, "--tls-key", &key], "key.pem"),
    ] {
        let run = serve(args);
        assert_eq!(run.code, Some(1), "{run:?}");
        assert!(run.stderr.contains(named), "{run:?}");
    }
}
