//! A server of the benchmark: this program as `serve`, on a free port, in a temporary directory.

use anyhow::{Context, anyhow, bail};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

const START_MAX: Duration = Duration::from_secs(30);
const STOP_MAX: Duration = Duration::from_secs(20);
/// What the server prints before its address.
const GREETING: &str = "listening on ";
const LOG_SHOWN_BYTES: usize = 2000;

#[derive(Debug)]
pub struct OwnServer {
    child: Child,
    directory: Directory,
    pub url: String,
}

/// A directory that is deleted with everything in it.
#[derive(Debug)]
pub struct Directory(PathBuf);

impl Directory {
    pub fn new(parent: &Path, name: &str) -> anyhow::Result<Directory> {
        let path = parent.join(name);
        std::fs::create_dir_all(parent)
            .and_then(|()| std::fs::create_dir(&path))
            .with_context(|| format!("cannot create the directory {}", path.display()))?;
        Ok(Directory(path))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    fn log(&self) -> PathBuf {
        self.0.join("log")
    }

    /// The end of the server's log.
    fn last_words(&self) -> String {
        let log = std::fs::read(self.log()).unwrap_or_default();
        let from = log.len().saturating_sub(LOG_SHOWN_BYTES);
        String::from_utf8_lossy(&log[from..]).trim().to_owned()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl OwnServer {
    pub async fn start(directory: Directory, durability: Option<&str>) -> anyhow::Result<OwnServer> {
        let program = std::env::current_exe().context("cannot find this program to start it as a server")?;
        let mut command = Command::new(program);
        command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(directory.path().join("data"));
        if let Some(durability) = durability {
            command.args(["--durability", durability]);
        }
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(directory.log())?)
            // Ctrl-C must reach only the benchmark, which then stops the server.
            .process_group(0)
            .kill_on_drop(true);
        let mut child = command.spawn().context("cannot start a server")?;
        let stdout = child.stdout.take().context("the server has no output")?;
        let mut lines = BufReader::new(stdout).lines();
        let first = tokio::time::timeout(START_MAX, lines.next_line()).await;
        let url = match first {
            Ok(Ok(Some(line))) => line.strip_prefix(GREETING).map(|url| url.trim().to_owned()),
            _ => None,
        };
        let Some(url) = url else {
            bail!("the server did not start: {}", directory.last_words());
        };
        // Keep reading, so that the server never blocks on its output.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Ok(OwnServer { child, directory, url })
    }

    pub fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Adds the server's log to an error, if the server has exited.
    pub fn explain(&mut self, error: anyhow::Error) -> anyhow::Error {
        match self.child.try_wait() {
            Ok(Some(status)) => {
                error.context(format!("the server exited ({status}): {}", self.directory.last_words()))
            }
            _ => error,
        }
    }

    /// Stops the server, waits until it has exited, and deletes its data.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        if let Some(pid) = self.child.id().and_then(|pid| Pid::from_raw(pid.cast_signed())) {
            kill_process(pid, Signal::TERM).context("cannot stop the server")?;
        }
        let ended = tokio::time::timeout(STOP_MAX, self.child.wait()).await;
        let status = ended.map_err(|_| anyhow!("the server did not stop within {STOP_MAX:?}"))??;
        if !status.success() {
            bail!("the server failed ({status}): {}", self.directory.last_words());
        }
        Ok(())
    }
}
