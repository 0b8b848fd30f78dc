//! A directory to run scripts in, with a server, `tyger` on the path, and the programs that the scripts call.

use crate::rig::Server;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Mutex;
use std::time::Duration;

pub struct Sandbox {
    url: String,
    directory: PathBuf,
    server: Mutex<Server>,
}

impl Sandbox {
    pub fn new() -> Sandbox {
        Sandbox::with(Server::start())
    }

    pub fn with(server: Server) -> Sandbox {
        let bin = server.directory().join("bin");
        std::fs::create_dir(&bin).unwrap();
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_towline"), bin.join("tyger")).unwrap();
        Sandbox { url: server.url(), directory: server.directory().to_owned(), server: Mutex::new(server) }
    }

    /// Kills the server and starts it again.
    pub fn crash(&self) {
        let mut server = self.server.lock().unwrap();
        server.kill();
        server.restart();
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Puts a program on the path of the scripts.
    pub fn program(&self, name: &str, body: &str) {
        let source = self.path("program");
        std::fs::write(&source, format!("#!/bin/bash\nset -euo pipefail\n{body}\n")).unwrap();
        // Another process writes the file that is executed. A child that another test starts in this process may inherit
        // what this process has open for writing, and such a file cannot be executed.
        let install = Command::new("install").args(["-m", "755"]).args([source, self.path(name)]).status();
        assert!(install.unwrap().success());
    }

    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let old = std::env::var_os("PATH").unwrap_or_default();
        let mut path = self.path("bin").into_os_string();
        path.push(":");
        path.push(old);
        let mut command = Command::new(program);
        command.env("PATH", path).env("TOWLINE_URL", &self.url).current_dir(&self.directory);
        command
    }

    /// A script of the document.
    pub fn script(&self, name: &str) -> Command {
        let mut command = self.command("bash");
        command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tyger").join(name));
        command
    }

    pub fn tyger(&self, arguments: &[&str]) -> Command {
        let mut command = self.command(self.path("bin/tyger"));
        command.args(arguments);
        command
    }

    /// Runs a command that must succeed, and returns its output.
    #[track_caller]
    pub fn says(&self, arguments: &[&str]) -> String {
        let output = self.tyger(arguments).output().unwrap();
        well(&output);
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    }

    /// Writes a buffer as scripts do, and returns its id.
    #[track_caller]
    pub fn buffer(&self, content: &[u8]) -> String {
        let id = self.says(&["buffer", "create"]);
        let mut command = self.tyger(&["buffer", "write", &id]);
        let mut writing = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        std::io::Write::write_all(&mut writing.stdin.take().unwrap(), content).unwrap();
        well(&writing.wait_with_output().unwrap());
        id
    }

    #[track_caller]
    pub fn read(&self, id: &str) -> Vec<u8> {
        let output = self.tyger(&["buffer", "read", id]).output().unwrap();
        well(&output);
        output.stdout
    }

    #[track_caller]
    pub fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.says(arguments)).unwrap()
    }
}

#[track_caller]
pub fn well(output: &Output) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}\n{}\n{}", output.status, text(&output.stdout), text(&output.stderr));
}

pub fn start(mut command: Command) -> Child {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Waits for a condition, at most half a minute.
#[track_caller]
pub fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    for _ in 0..600 {
        if let Some(found) = look() {
            return found;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("timed out: {what}");
}
