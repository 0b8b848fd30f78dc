//! Runs the real binary: a server on a free port with its own data, and commands that call it.

#![allow(dead_code, reason = "each test binary uses what it needs")]
#![allow(clippy::print_stderr, reason = "says why a test failed")]

#[path = "../../../postgres/tests/store/reserved_port.rs"]
mod reserved_port;

use reserved_port::ReservedPort;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// Longer than any step takes. What has not happened by then never happens.
const NEVER: Duration = Duration::from_secs(120);

const LOG: &str = "stderr";

pub struct Server {
    directory: tempfile::TempDir,
    /// Kept, so that the server can be started again on its port.
    _port: ReservedPort,
    scheme: String,
    address: String,
    settings: Vec<(String, String)>,
    child: Child,
    /// Kept open while the server runs, because the server prints to it.
    stdout: BufReader<ChildStdout>,
}

impl Server {
    /// Starts a server and waits until it serves.
    pub fn start() -> Server {
        Server::start_with(&[])
    }

    /// Starts a server with settings from the environment.
    pub fn start_with(settings: &[(&str, &str)]) -> Server {
        let settings: Vec<(String, String)> =
            settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Server::start_in(tempfile::tempdir().unwrap(), settings)
    }

    fn start_in(directory: tempfile::TempDir, settings: Vec<(String, String)>) -> Server {
        let port = ReservedPort::new();
        let (child, stdout, url) = spawn(directory.path(), &port.address().to_string(), &settings);
        let (scheme, address) = url.split_once("://").unwrap();
        let (scheme, address) = (scheme.to_owned(), address.to_owned());
        Server { directory, _port: port, scheme, address, settings, child, stdout }
    }

    /// Starts a server in a directory that `prepare` fills, with the settings that it returns.
    pub fn start_prepared(prepare: impl FnOnce(&Path) -> Vec<(String, String)>) -> Server {
        let directory = tempfile::tempdir().unwrap();
        let settings = prepare(directory.path());
        Server::start_in(directory, settings)
    }

    /// Starts a server that requires tokens, and returns an admin token.
    pub fn start_asking(settings: impl FnOnce(&Path) -> Vec<(String, String)>) -> (Server, String) {
        let mut token = String::new();
        let server = Server::start_prepared(|directory| {
            token = first_token(&directory.join("data"), "admin");
            let asking = ("TOWLINE_REQUIRE_TOKENS".to_owned(), "true".to_owned());
            settings(directory).into_iter().chain([asking]).collect()
        });
        (server, token)
    }

    pub fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.address)
    }

    /// A directory that is deleted with the server.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What the server has printed to stderr since its first start.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join(LOG)).unwrap()
    }

    /// The commands that the server printed at its start. To be called once.
    pub fn hint(&mut self) -> String {
        let mut printed = String::new();
        while !printed.ends_with("queue receive jobs\n") {
            assert!(self.stdout.read_line(&mut printed).unwrap() > 0, "{printed}");
        }
        printed.split_once("try, in another terminal:\n").unwrap().1.to_owned()
    }

    /// Kills the server, as with `kill -9`.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Stops the server and waits until it has exited.
    pub fn stop(&mut self) -> ExitStatus {
        signal(self.child.id(), Signal::TERM);
        self.child.wait().unwrap()
    }

    /// Starts the server again after `kill` or `stop`, on the same port and data.
    pub fn restart(&mut self) {
        let (child, stdout, _) = spawn(self.directory.path(), &self.address, &self.settings);
        (self.child, self.stdout) = (child, stdout);
    }

    /// A command that calls this server.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = towline(args);
        command.env("TOWLINE_URL", self.url());
        command
    }

    pub fn run(&self, args: &[&str]) -> Run {
        Run::of(&mut self.command(args))
    }

    /// Runs a command that must succeed, and returns its output without the line end.
    pub fn ok(&self, args: &[&str]) -> String {
        self.run(args).ok(args)
    }

    pub fn json(&self, args: &[&str]) -> serde_json::Value {
        serde_json::from_str(&self.ok(args)).unwrap()
    }

    /// Runs a command with `input` on its standard input.
    pub fn feed(&self, args: &[&str], input: &str) -> Run {
        let mut child = piped(&mut self.command(args)).stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_owned();
        // In a thread, because the command prints while it reads.
        let feeder = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
        let run = Run::end(child);
        // A command that refuses early does not read everything.
        let _ = feeder.join().unwrap();
        run
    }

    /// Writes a buffer and returns its id.
    pub fn buffer(&self, content: &str) -> String {
        let id = self.ok(&["buffer", "create"]);
        let args = ["buffer", "write", &id];
        self.feed(&args, content).ok(&args);
        id
    }

    /// Runs a script in which `towline` is the binary.
    pub fn script(&self, script: &str) -> Command {
        let mut command = Command::new("bash");
        let bin = PathBuf::from(env!("CARGO_BIN_EXE_towline"));
        let path = format!("{}:{}", bin.parent().unwrap().display(), std::env::var("PATH").unwrap());
        command.args(["-c", script]).env("PATH", path).env("TOWLINE_URL", self.url());
        command
    }

    /// Receives one item and returns its id and its lease.
    pub fn receive(&self, args: &[&str]) -> (String, String) {
        let answer = self.json(&[&["queue", "receive"], args].concat());
        let text = |name: &str| answer["items"][0][name].as_str().unwrap().to_owned();
        (text("id"), text("lease"))
    }

    pub fn state(&self, id: &str) -> String {
        self.json(&["item", "show", id])["state"].as_str().unwrap().to_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            self.directory.disable_cleanup(true);
            eprintln!("the server's data and log are kept in {}", self.directory.path().display());
        }
    }
}

fn spawn(
    directory: &Path,
    listen: &str,
    settings: &[(String, String)],
) -> (Child, BufReader<ChildStdout>, String) {
    let log = File::options().create(true).append(true).open(directory.join(LOG)).unwrap();
    let mut child = towline(&["serve", "--listen", listen, "--log", "error", "--data"])
        .arg(directory.join("data"))
        // Tests of compute switch it on.
        .env("TOWLINE_COMPUTE", "off")
        .envs(settings.iter().cloned())
        .current_dir(directory)
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    let url = line.trim_end().strip_prefix("listening on ").unwrap_or_else(|| {
        let log = std::fs::read_to_string(directory.join(LOG)).unwrap_or_default();
        panic!("the server did not start: {line:?} {log}");
    });
    (child, stdout, url.to_owned())
}

/// Creates a token in a store that no server uses.
pub fn first_token(data: &Path, scope: &str) -> String {
    let args = ["token", "create", "ops", "--scope", scope, "--data", data.to_str().unwrap()];
    Run::of(&mut towline(&args)).ok(&args)
}

/// The binary, with an empty environment.
pub fn towline(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_towline"));
    command.args(args).stdin(Stdio::null());
    // Also without the variables of the tests, such as TOWLINE_SOAK: a server warns of unknown settings.
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("TOWLINE_") {
            command.env_remove(name);
        }
    }
    command
}

pub fn piped(command: &mut Command) -> &mut Command {
    command.stdout(Stdio::piped()).stderr(Stdio::piped())
}

pub fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid.try_into().unwrap()).unwrap(), signal).unwrap();
}

/// The exit code and the output of a command.
#[derive(Debug)]
pub struct Run {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Run {
    pub fn of(command: &mut Command) -> Run {
        Run::end(piped(command).spawn().unwrap())
    }

    pub fn end(child: Child) -> Run {
        let Output { status, stdout, stderr } =
            in_time("the command ends", || child.wait_with_output()).unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Run { code: status.code(), stdout: text(stdout), stderr: text(stderr) }
    }

    pub fn ok(self, args: &[&str]) -> String {
        assert_eq!(self.code, Some(0), "{args:?}: {self:?}");
        self.stdout.trim_end().to_owned()
    }
}

/// Waits for a child, and fails if it does not exit.
pub fn in_time<T: Send + 'static>(what: &str, wait: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || sender.send(wait()));
    receiver.recv_timeout(NEVER).unwrap_or_else(|_| panic!("never: {what}"))
}

/// Waits for a condition.
pub fn until(what: &str, mut so: impl FnMut() -> bool) {
    let pause = Duration::from_millis(50);
    for _ in 0..NEVER.as_millis() / pause.as_millis() {
        if so() {
            return;
        }
        std::thread::sleep(pause);
    }
    panic!("never: {what}");
}

/// The output of a child, line by line.
pub struct Lines(BufReader<Box<dyn Read + Send>>);

impl Lines {
    pub fn of(from: impl Read + Send + 'static) -> Lines {
        Lines(BufReader::new(Box::new(from)))
    }

    /// The next line with its line end. Empty at the end.
    pub fn read(self) -> (Lines, String) {
        let mut lines = self;
        in_time("a line is printed", move || {
            let mut line = String::new();
            lines.0.read_line(&mut line).unwrap();
            (lines, line)
        })
    }

    pub fn rest(mut self) -> String {
        in_time("the output ends", move || {
            let mut rest = String::new();
            self.0.read_to_string(&mut rest).unwrap();
            rest
        })
    }
}
