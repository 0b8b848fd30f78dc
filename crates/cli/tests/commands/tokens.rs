//! Tokens on the command line: how to create the first one and more, and where commands read them.

use crate::rig::{Run, Server, first_token, signal, towline, until};
use rustix::process::Signal;

/// A server that requires tokens, and an admin token.
fn start() -> (Server, String) {
    Server::start_asking(|directory| {
        let audit = directory.join("audit").to_str().unwrap().to_owned();
        vec![("TOWLINE_AUDIT_LOG".to_owned(), audit)]
    })
}

fn run(server: &Server, token: &str, args: &[&str]) -> Run {
    Run::of(server.command(args).env("TOWLINE_TOKEN", token))
}

#[test]
fn the_first_token_is_created_in_the_store_and_creates_more() {
    let (server, admin) = start();
    let refused = server.run(&["queue", "list"]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("TOWLINE_TOKEN"), "{refused:?}");
    run(&server, &admin, &["queue", "create", "jobs"]).ok(&["create"]);
    let create = ["token", "create", "worker", "--scope", "queue:jobs:receive", "--expires-in", "1d"];
    let worker = run(&server, &admin, &create).ok(&create);
    assert!(worker.starts_with("tow_2_"), "{worker}");
    run(&server, &worker, &["queue", "receive", "jobs"]).ok(&["receive"]);
    let refused = run(&server, &worker, &["queue", "submit", "jobs"]);
    assert!(refused.code == Some(1) && refused.stderr.contains("queue:jobs:submit"), "{refused:?}");
    let whoami = run(&server, &worker, &["whoami"]).ok(&["whoami"]);
    let whoami: serde_json::Value = serde_json::from_str(&whoami).unwrap();
    assert_eq!((&whoami["token"]["name"], &whoami["tokens_required"]), (&"worker".into(), &true.into()));

    let table = run(&server, &admin, &["token", "list", "-o", "table"]).ok(&["list"]);
    assert!(table.contains("ops") && table.contains("queue:jobs:receive"), "{table}");
    assert!(!table.contains("tow_"), "{table}");
    assert_eq!(run(&server, &admin, &["token", "revoke", "2"]).ok(&["revoke"]), "");
    let refused = run(&server, &worker, &["whoami"]);
    assert!(refused.code == Some(1) && refused.stderr.contains("revoked"), "{refused:?}");
    assert_eq!(run(&server, &admin, &["token", "revoke", "77"]).code, Some(1));
}

#[test]
fn a_token_comes_from_a_file_standard_input_or_the_environment() {
    let (server, token) = start();
    let file = server.directory().join("token");
    std::fs::write(&file, format!("{token}\n")).unwrap();
    let path = file.to_str().unwrap();
    server.ok(&["whoami", "--token-file", path]);
    Run::of(server.command(&["whoami"]).env("TOWLINE_TOKEN_FILE", path)).ok(&["whoami"]);
    server.feed(&["whoami", "--token-file", "-"], &format!("{token}\n")).ok(&["whoami"]);
}

#[test]
fn tokens_are_created_only_in_a_store_that_is_not_in_use() {
    let (mut server, admin) = start();
    let data = server.directory().join("data");
    let args = ["token", "create", "x", "--scope", "admin", "--data", data.to_str().unwrap()];
    let busy = Run::of(&mut towline(&args));
    assert_eq!((busy.code, busy.stdout.as_str()), (Some(1), ""), "{busy:?}");
    server.stop();
    let list = ["token", "list", "--data", data.to_str().unwrap(), "-o", "json"];
    let listed = Run::of(&mut towline(&list)).ok(&list);
    assert!(listed.contains("ops"), "{listed}");
    let second = first_token(&data, "queue:*:read");
    let revoke = ["token", "revoke", "1", "--data", data.to_str().unwrap()];
    Run::of(&mut towline(&revoke)).ok(&revoke);
    server.restart();
    run(&server, &second, &["queue", "list"]).ok(&["list"]);
    assert_eq!(run(&server, &admin, &["queue", "list"]).code, Some(1));
}

#[test]
fn a_public_address_needs_a_certificate_and_tokens() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let serve = |args: &[&str]| {
        let common = ["serve", "--listen", "0.0.0.0:0", "--data", data.to_str().unwrap()];
        Run::of(&mut towline(&[&common[..], args].concat()))
    };
    let open = serve(&[]);
    assert_eq!(open.code, Some(1), "{open:?}");
    for word in ["--tls-cert", "--insecure", "127.0.0.1"] {
        assert!(open.stderr.contains(word), "{open:?}");
    }
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (cert, key) = (directory.path().join("cert.pem"), directory.path().join("key.pem"));
    std::fs::write(&cert, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let none = serve(&["--tls-cert", cert.to_str().unwrap(), "--tls-key", key.to_str().unwrap()]);
    assert!(none.code == Some(1) && none.stderr.contains("towline token create"), "{none:?}");
}

#[test]
fn the_audit_log_continues_in_a_new_file_after_sighup() {
    let (server, admin) = start();
    let (log, old) = (server.directory().join("audit"), server.directory().join("audit.1"));
    let create = |name: &str| run(&server, &admin, &["queue", "create", name]).ok(&["create"]);
    create("before");
    std::fs::rename(&log, &old).unwrap();
    signal(server.pid(), Signal::HUP);
    until("the file is there again", || log.exists());
    create("after");
    assert!(std::fs::read_to_string(&old).unwrap().contains("/v1/queues/before"));
    let new = std::fs::read_to_string(&log).unwrap();
    assert!(new.contains("/v1/queues/after") && !new.contains("before"), "{new}");
}

#[test]
fn a_token_goes_into_a_new_private_file_and_only_if_there_is_none() {
    let directory = tempfile::tempdir().unwrap();
    let (data, file) = (directory.path().join("data"), directory.path().join("token"));
    let (data, path) = (data.to_str().unwrap(), file.to_str().unwrap());
    let create = ["token", "create", "ops", "--scope", "admin", "--data", data, "--out", path];
    assert_eq!(Run::of(&mut towline(&create)).ok(&create), "1", "the id");
    let token = std::fs::read_to_string(&file).unwrap();
    assert!(token.starts_with("tow_1_") && token.ends_with('\n'), "{token}");
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&file).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    let refused = Run::of(&mut towline(&create));
    assert!(refused.code == Some(1) && refused.stderr.contains("exists"), "{refused:?}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), token);
    let again = [&create[..], &["--if-none"]].concat();
    assert_eq!(Run::of(&mut towline(&again)).ok(&again), "");
    let list = ["token", "list", "--data", data, "-o", "json"];
    let listed: serde_json::Value = serde_json::from_str(&Run::of(&mut towline(&list)).ok(&list)).unwrap();
    assert_eq!(listed.as_array().unwrap().len(), 1, "{listed}");
    // A revoked token does not count.
    let revoke = ["token", "revoke", "1", "--data", data];
    Run::of(&mut towline(&revoke)).ok(&revoke);
    std::fs::remove_file(&file).unwrap();
    assert_eq!(Run::of(&mut towline(&again)).ok(&again), "2");
    // A token that is not created leaves no file.
    let other = directory.path().join("other");
    let bad = ["token", "create", "x", "--scope", "root", "--data", data, "--out", other.to_str().unwrap()];
    assert_eq!(Run::of(&mut towline(&bad)).code, Some(1));
    assert!(!other.exists());
}

#[test]
fn a_token_sent_without_tls_to_another_machine_gets_a_warning() {
    let warned = |url: &str| {
        let run = Run::of(towline(&["whoami", "--url", url]).env("TOWLINE_TOKEN", "tow_1_00"));
        assert_ne!(run.code, Some(0));
        run.stderr.contains("without TLS")
    };
    // A name that does not exist, so nothing is sent.
    assert!(warned("http://towline.invalid:7420"));
    for url in ["https://towline.invalid:7420", "http://localhost:1", "http://127.0.0.1:1", "http://[::1]:1"]
    {
        assert!(!warned(url), "{url}");
    }
}

#[test]
fn a_server_listens_on_a_unix_socket() {
    let directory = tempfile::tempdir().unwrap();
    let (data, socket) = (directory.path().join("data"), directory.path().join("socket"));
    let url = format!("unix:{}", socket.display());
    let serve = ["serve", "--listen", &url, "--data", data.to_str().unwrap()];
    let mut server = towline(&serve).stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut first = String::new();
    let mut output = std::io::BufReader::new(server.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut output, &mut first).unwrap();
    assert_eq!(first, format!("listening on {url}\n"));
    let ok = |args: &[&str]| Run::of(towline(args).env("TOWLINE_URL", &url)).ok(args);
    ok(&["queue", "create", "jobs"]);
    ok(&["queue", "submit", "jobs", "--payload", "hello"]);
    assert!(ok(&["queue", "receive", "jobs"]).contains("lease"));
    let second = Run::of(&mut towline(&["serve", "--listen", &url, "--data", "elsewhere"]));
    assert!(second.code != Some(0) && second.stderr.contains("a program listens on it"), "{second:?}");
    signal(server.id(), Signal::TERM);
    assert!(server.wait().unwrap().success());
    assert!(!socket.exists());
    let gone = Run::of(towline(&["queue", "list"]).env("TOWLINE_URL", &url));
    assert_eq!(gone.code, Some(3), "{gone:?}");
}
