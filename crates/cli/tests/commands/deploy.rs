//! The files in `deploy/` fit the binary: their flags, settings and paths start a server.
#![allow(clippy::print_stdout, reason = "a skipped check says why")]

use crate::rig::{Lines, Run, first_token, in_time, signal, towline};
use rustix::process::Signal;
use std::path::Path;
use std::process::{Command, Stdio};

const DEPLOY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy");

fn read(file: &str) -> String {
    std::fs::read_to_string(Path::new(DEPLOY).join(file)).unwrap()
}

/// The words of a list in the form that JSON and YAML share.
fn words(line: &str) -> Vec<String> {
    serde_json::from_str(line.trim()).unwrap_or_else(|error| panic!("{line}: {error}"))
}

/// Replaces the directories of the deployment, and listens on a free port.
fn here(words: &[String], directory: &Path) -> Vec<String> {
    let at = |path: &str| directory.join(path).to_str().unwrap().to_owned();
    let word = |word: &String| match word.as_str() {
        "/etc/towline/towline.toml" => at("towline.toml"),
        "/var/lib/towline" | "/data" | "/data/store" => at("data"),
        "/var/lib/towline/first-token" | "/data/first-token" => at("data/first-token"),
        "/var/log/towline/audit.jsonl" => at("audit.jsonl"),
        ":7420" => "127.0.0.1:0".to_owned(),
        word => {
            assert!(!word.starts_with('/'), "the test does not know {word}");
            word.to_owned()
        }
    };
    words.iter().map(word).collect()
}

/// Starts a server, asks for its health, and stops it as the deployment does.
fn serves(words: &[String], more: &[(&str, &str)], stop: Signal) {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("towline.toml"), read("towline.toml")).unwrap();
    first_token(&directory.path().join("data"), "admin");
    let args = here(words, directory.path());
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let mut command = towline(&args);
    command.envs(more.iter().copied()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let (stdout, line) = Lines::of(child.stdout.take().unwrap()).read();
    let url = line.trim_end().strip_prefix("listening on ").unwrap_or_else(|| panic!("{args:?}: {line:?}"));
    // The server requires tokens.
    let refused = Run::of(&mut towline(&["queue", "list", "--url", url]));
    assert!(refused.code == Some(1) && refused.stderr.contains("token"), "{refused:?}");
    signal(child.id(), stop);
    assert!(in_time("the server stops", move || child.wait()).unwrap().success());
    drop(stdout);
}

fn unit(key: &str) -> String {
    let prefix = format!("{key}=");
    read("towline.service").lines().find_map(|line| line.strip_prefix(&prefix).map(str::to_owned)).unwrap()
}

#[test]
fn the_command_of_the_unit_starts_a_server() {
    let command = unit("ExecStart");
    let (program, args) = command.split_once(' ').unwrap();
    assert!(program.ends_with("/towline"));
    let args: Vec<String> = args.split(' ').map(str::to_owned).collect();
    // The configuration names the default port. Another server may use it.
    serves(&args, &[("TOWLINE_LISTEN", "127.0.0.1:0")], Signal::TERM);
    for (directory, path) in
        [("StateDirectory", "/var/lib/towline"), ("LogsDirectory", "/var/log/towline/audit.jsonl")]
    {
        assert!(args.iter().any(|arg| arg == path) && path.contains(&unit(directory)), "{directory}");
    }
}

#[test]
fn systemd_accepts_the_unit() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("towline.service");
    let whole = read("towline.service").replace("/usr/local/bin/towline", env!("CARGO_BIN_EXE_towline"));
    let verify = |text: &str| {
        std::fs::write(&file, text).unwrap();
        Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&file).output()
    };
    let Ok(verified) = verify(&whole) else {
        println!("skipped: there is no systemd-analyze here");
        return;
    };
    let said = String::from_utf8_lossy(&verified.stderr).into_owned();
    let about = said.lines().filter(|line| line.contains("towline.service")).collect::<Vec<_>>();
    assert!(about.is_empty(), "{said}");
    let wrong = verify(&whole.replace("RestartSec=1s", "RestartSec=soon")).unwrap();
    assert!(
        String::from_utf8_lossy(&wrong.stderr).contains("towline.service"),
        "the check sees a wrong value"
    );
}

#[test]
fn the_command_of_the_image_starts_a_server() {
    let file = read("Containerfile");
    let line = |key: &str| file.lines().find_map(|line| line.strip_prefix(key)).unwrap().to_owned();
    assert_eq!(words(&line("ENTRYPOINT")), ["/usr/local/bin/towline"]);
    assert!(line("EXPOSE").contains("7420") && line("STOPSIGNAL").contains("SIGTERM"));
    serves(&words(&line("CMD")), &[], Signal::TERM);
}

#[test]
fn the_manifest_starts_a_server_beside_its_service() {
    let manifest = read("kubernetes.yaml");
    let args = manifest.lines().find_map(|line| line.trim().strip_prefix("args: [\"serve\"")).unwrap();
    // As Kubernetes sets them for a service of this name.
    let links = [
        ("TOWLINE_SERVICE_HOST", "10.0.0.1"),
        ("TOWLINE_SERVICE_PORT_HTTP", "7420"),
        ("TOWLINE_PORT", "tcp://10.0.0.1:7420"),
        ("TOWLINE_PORT_7420_TCP_ADDR", "10.0.0.1"),
    ];
    serves(&words(&format!("[\"serve\"{args}")), &links, Signal::TERM);
    for path in ["/readyz", "/healthz"] {
        assert!(manifest.contains(&format!("path: {path}")), "{path}");
    }
    let command = manifest.lines().find_map(|line| line.trim().strip_prefix("args: [\"token\"")).unwrap();
    creates_the_first_token_once(&words(&format!("[\"token\"{command}")));
}

/// Runs the command twice, and deletes the file in between, as an operator does.
fn creates_the_first_token_once(words: &[String]) {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("data/first-token");
    std::fs::create_dir(directory.path().join("data")).unwrap();
    let args = here(words, directory.path());
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    Run::of(&mut towline(&args)).ok(&args);
    assert!(std::fs::read_to_string(&out).unwrap().starts_with("tow_1_"), "{args:?}");
    Run::of(&mut towline(&args)).ok(&args);
    std::fs::remove_file(&out).unwrap();
    Run::of(&mut towline(&args)).ok(&args);
    assert!(!out.exists(), "the store has a token: {args:?}");
}

#[test]
fn the_commands_of_the_readme_create_the_first_token_once() {
    let readme = read("README.md");
    let commands: Vec<_> = readme.lines().filter_map(|line| line.split_once(" token create ")).collect();
    assert_eq!(commands.len(), 2, "systemd and container");
    for (_, rest) in commands {
        let words = ["token", "create"].into_iter().chain(rest.split(' ')).map(str::to_owned);
        creates_the_first_token_once(&words.collect::<Vec<_>>());
    }
}

#[test]
fn the_image_is_built_without_what_it_does_not_need() {
    let ignored = std::fs::read_to_string(Path::new(DEPLOY).join("../.containerignore")).unwrap();
    for name in [".git", "target", "towline-data"] {
        assert!(ignored.lines().any(|line| line == name), "{name}");
    }
}

#[test]
fn the_manifest_is_well_formed() {
    let check = "import sys, yaml\nprint([part['kind'] for part in yaml.safe_load_all(sys.stdin)])";
    let yaml = Command::new("python3").args(["-c", "import yaml"]).output();
    if !yaml.is_ok_and(|found| found.status.success()) {
        println!("skipped: python3 has no yaml here");
        return;
    }
    let input = std::fs::File::open(Path::new(DEPLOY).join("kubernetes.yaml")).unwrap();
    let parsed = Run::of(Command::new("python3").args(["-c", check]).stdin(input));
    assert_eq!(parsed.ok(&["python3"]), "['Service', 'StatefulSet']");
}
