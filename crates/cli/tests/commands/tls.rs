//! A server with TLS, and clients that trust it or not.

use crate::rig::{Run, Server, first_token, piped, signal, towline, until};
use rustix::process::Signal;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use towline_api::{Client, ClientError};

/// Writes a new self-signed certificate for this machine, and its key.
fn write_certificate(directory: &Path) {
    write_certificate_for(directory, &["localhost", "127.0.0.1"]);
}

fn write_certificate_for(directory: &Path, names: &[&str]) {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let made = rcgen::generate_simple_self_signed(names).unwrap();
    std::fs::write(directory.join("cert.pem"), made.cert.pem()).unwrap();
    std::fs::write(directory.join("key.pem"), made.signing_key.serialize_pem()).unwrap();
}

fn start() -> Server {
    Server::start_prepared(|directory| {
        write_certificate(directory);
        files(directory)
    })
}

/// The settings for a certificate in this directory.
fn files(directory: &Path) -> Vec<(String, String)> {
    let path = |name: &str| directory.join(name).to_str().unwrap().to_owned();
    vec![("TOWLINE_TLS_CERT".to_owned(), path("cert.pem")), ("TOWLINE_TLS_KEY".to_owned(), path("key.pem"))]
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
    assert_eq!(distrusted.code, Some(3), "{distrusted:?}");
    assert!(distrusted.stderr.contains("not trusted") && distrusted.stderr.contains("--ca-file"));
    let nonsense =
        server.run(&["queue", "list", "--ca-file", server.directory().join("key.pem").to_str().unwrap()]);
    assert_eq!(nonsense.code, Some(2), "{nonsense:?}");
}

/// The message and the exit code of the command line, and the error of the Rust client, for the same address.
fn refused(url: &str, authority: Option<&Path>, words: &[&str]) -> ClientError {
    let mut command = towline(&["queue", "list", "--url", url]);
    let mut client = Client::new(url).unwrap();
    if let Some(path) = authority {
        command.env("TOWLINE_CA_FILE", path);
        client = client.ca_file(path).unwrap();
    }
    let run = Run::of(&mut command);
    assert_eq!(run.code, Some(3), "{run:?}");
    assert!(words.iter().all(|word| run.stderr.contains(word)), "{words:?}: {run:?}");
    tokio::runtime::Runtime::new().unwrap().block_on(client.health()).unwrap_err()
}

#[test]
fn a_wrong_scheme_or_name_in_the_address_is_named_with_the_remedy() {
    let server = Server::start_prepared(|directory| {
        write_certificate_for(directory, &["queue.example", "localhost"]);
        files(directory)
    });
    let authority = authority(&server, "authority.pem");
    let address = server.address();
    let error = refused(
        &format!("https://{address}"),
        Some(&authority),
        &["queue.example, localhost", "certificate"],
    );
    assert!(matches!(error, ClientError::WrongName { .. }), "{error:?}");
    let plain = format!("http://{address}");
    let error = refused(&plain, None, &["only TLS", &format!("use https://{address}")]);
    assert!(matches!(error, ClientError::TlsRequired { .. }), "{error:?}");
    // Other clients get an answer too.
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"POST /v1/settle HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("tls_required"), "{answer}");

    let without = Server::start();
    let address = without.address();
    let words = ["does not use TLS", &format!("use http://{address}")];
    let error = refused(&format!("https://{address}"), None, &words);
    assert!(matches!(error, ClientError::NoTls { .. }), "{error:?}");
}

/// Runs the commands that `serve` prints at its start, as it prints them.
fn try_the_hint(server: &Server, hint: &str) {
    let output = Run::of(
        Command::new("bash")
            .args(["-euo", "pipefail", "-c", hint])
            .current_dir(server.directory())
            .env_clear()
            .env("PATH", "/usr/bin:/bin"),
    );
    assert!(output.code == Some(0) && output.stdout.contains("\"lease\""), "{hint}\n{output:?}");
}

#[test]
fn the_commands_that_serve_prints_work_as_they_are_printed() {
    let mut server = Server::start();
    let hint = server.hint();
    try_the_hint(&server, &hint);
    // The certificate is valid for a name, not for the address; the path has a space; tokens are required.
    let mut server = Server::start_prepared(|directory| {
        let token = first_token(&directory.join("data"), "admin");
        std::fs::write(directory.join("ops.token"), token).unwrap();
        let secret = directory.join("it's secret");
        std::fs::create_dir(&secret).unwrap();
        write_certificate_for(&secret, &["localhost"]);
        [files(&secret), vec![("TOWLINE_REQUIRE_TOKENS".to_owned(), "true".to_owned())]].concat()
    });
    let hint = server.hint();
    assert!(hint.contains("https://localhost:"), "{hint}");
    try_the_hint(&server, &hint);
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
    assert_eq!(list(&old), Some(3));

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
        [&b"get / http/1.1\r\n\r\n"[..], &[0x16, 3, 1, 0xff, 0xff, 1, 2, 3], &[0; 1000], &[0xff; 70_000]]
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
        Run::of(&mut towline(&[&common[..], args].concat()))
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
