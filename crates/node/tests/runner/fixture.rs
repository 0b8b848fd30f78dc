//! A runner in a directory of its own, and ways to use it.

use crate::podman::{IMAGE, Podman};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use towline_node::runner::{
    ContainerConfig, ContainerRunner, Exit, Launch, Limits, OutputPipe, ProcessConfig, ProcessRunner,
    PullPolicy, Runner, Running, StartError,
};

/// Time for what takes milliseconds on a machine that is not busy.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub struct Fixture {
    pub runner: Arc<dyn Runner>,
    pub instance: String,
    pub image: Option<String>,
    // After the runner: its guardian still needs the engine.
    podman: Option<Podman>,
    root: TempDir,
    serial: AtomicUsize,
}

/// What a command has left when it ended.
#[derive(Debug)]
pub struct Ended {
    pub exit: Exit,
    pub stdout: String,
    pub stderr: String,
    pub outputs: BTreeMap<String, Vec<u8>>,
    /// Whether each input was taken whole.
    pub inputs: BTreeMap<String, bool>,
}

impl Fixture {
    pub fn process() -> Fixture {
        let root = tempfile::tempdir().unwrap();
        let instance = unique("node");
        let runner = Arc::new(ProcessRunner::new(config(root.path(), &instance)).unwrap());
        Fixture { runner, instance, image: None, podman: None, root, serial: AtomicUsize::new(0) }
    }

    /// `None`, with a word on standard error, if this machine cannot run containers.
    pub async fn container() -> Option<Fixture> {
        let root = tempfile::tempdir().unwrap();
        let instance = unique("node");
        let podman = match Podman::start(root.path().join(&instance)) {
            Ok(podman) => podman,
            Err(reason) => {
                let _ = writeln!(std::io::stderr(), "SKIPPED: {reason}");
                return None;
            }
        };
        let runner =
            ContainerRunner::connect(container_config(root.path(), &instance, &podman)).await.unwrap();
        Some(Fixture {
            runner: Arc::new(runner),
            instance,
            image: Some(IMAGE.to_owned()),
            podman: Some(podman),
            root,
            serial: AtomicUsize::new(0),
        })
    }

    pub fn podman(&self) -> &Podman {
        self.podman.as_ref().unwrap()
    }

    pub fn is_container(&self) -> bool {
        self.image.is_some()
    }

    /// The directory of the instance.
    pub fn directory(&self) -> PathBuf {
        self.root.path().join(&self.instance)
    }

    pub fn root(&self) -> &Path {
        self.root.path()
    }

    /// A launch of this command.
    pub fn launch(&self, words: &[&str]) -> Launch {
        let serial = self.serial.fetch_add(1, Ordering::SeqCst);
        Launch {
            id: format!("launch-{serial}"),
            image: self.image.clone(),
            command: words.iter().map(|&word| word.to_owned()).collect(),
            args: Vec::new(),
            environment: BTreeMap::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            files: Vec::new(),
            limits: Limits::default(),
            pull: PullPolicy::Never,
            stop_grace: PATIENCE,
        }
    }

    /// A launch of a shell with this script.
    pub fn script(&self, script: &str) -> Launch {
        self.launch(&["/bin/sh", "-c", script])
    }

    pub async fn start(&self, launch: Launch) -> Running {
        self.runner.start(launch).await.unwrap()
    }

    pub async fn refused(&self, launch: Launch) -> StartError {
        self.runner.start(launch).await.unwrap_err()
    }

    /// Starts a command and reads what it writes to the end.
    pub async fn run(&self, launch: Launch) -> Ended {
        self.run_with(launch, &[]).await
    }

    /// The same with input.
    pub async fn run_with(&self, launch: Launch, inputs: &[(&str, &[u8])]) -> Ended {
        let running = self.start(launch).await;
        tokio::time::timeout(PATIENCE * 3, finish(running, inputs)).await.expect("the command does not end")
    }

    /// Drops the runner and keeps its root.
    pub fn into_root(self) -> TempDir {
        self.root
    }

    /// Whether processes of this runner live.
    pub fn has_processes(&self) -> bool {
        has_processes(&self.instance)
    }
}

/// Copies the inputs, reads everything and waits for the end.
pub async fn finish(running: Running, inputs: &[(&str, &[u8])]) -> Ended {
    let Running { inputs: writers, outputs: readers, stdout, stderr, handle } = running;
    let writing = writers.into_iter().map(|(name, mut pipe)| {
        let bytes = inputs.iter().find(|(of, _)| *of == name).map(|(_, bytes)| bytes.to_vec());
        tokio::spawn(async move { (name, pipe.write_all(&bytes.unwrap_or_default()).await.is_ok()) })
    });
    let writing: Vec<_> = writing.collect();
    let reading =
        readers.into_iter().map(|(name, pipe)| tokio::spawn(async { (name, bytes_of(pipe).await) }));
    let reading: Vec<_> = reading.collect();
    let (stdout, stderr, exit) = tokio::join!(bytes_of(stdout), bytes_of(stderr), handle.wait());
    let (mut outputs, mut inputs) = (BTreeMap::new(), BTreeMap::new());
    for task in reading {
        outputs.extend([task.await.unwrap()]);
    }
    for task in writing {
        inputs.extend([task.await.unwrap()]);
    }
    Ended { exit, stdout: text(stdout), stderr: text(stderr), outputs, inputs }
}

pub async fn bytes_of(mut pipe: OutputPipe) -> Vec<u8> {
    let mut bytes = Vec::new();
    pipe.read_to_end(&mut bytes).await.unwrap();
    bytes
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}

/// Waits for the first line that the command writes.
pub async fn first_line(running: &mut Running) -> String {
    let mut line = String::new();
    BufReader::with_capacity(1, &mut running.stdout).read_line(&mut line).await.unwrap();
    line
}

/// Waits for a condition that must come true.
pub async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let waited = tokio::time::timeout(PATIENCE, async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    });
    assert!(waited.await.is_ok(), "waited in vain: {what}");
}

pub fn config(root: &Path, instance: &str) -> ProcessConfig {
    let program = |role: &str| -> Vec<OsString> { vec![harness().into(), role.into()] };
    ProcessConfig {
        root: root.to_owned(),
        instance: instance.to_owned(),
        shim: program("shim"),
        guardian: program("guardian"),
    }
}

pub fn container_config(root: &Path, instance: &str, podman: &Podman) -> ContainerConfig {
    ContainerConfig {
        root: root.to_owned(),
        instance: instance.to_owned(),
        engine: Some(podman.address()),
        guardian: vec![harness().into(), "guardian".into()],
        network: Some("host".to_owned()),
        is_read_only: false,
        capabilities: Vec::new(),
        cli: None,
    }
}

pub fn harness() -> &'static str {
    env!("CARGO_BIN_EXE_towline-node-harness")
}

/// A name that no other test of this machine has.
pub fn unique(what: &str) -> String {
    let made = tempfile::Builder::new().prefix(&format!("{what}-")).rand_bytes(12).tempdir().unwrap();
    made.path().file_name().unwrap().to_str().unwrap().to_owned()
}

pub fn has_processes(instance: &str) -> bool {
    let cookie = format!("TOWLINE_NODE_INSTANCE={instance}");
    with_environ(|environ| environ.split(|&byte| byte == 0).any(|entry| entry == cookie.as_bytes()))
}

fn with_environ(chosen: impl Fn(&[u8]) -> bool) -> bool {
    fs::read_dir("/proc").unwrap().any(|entry| {
        let path = entry.unwrap().path().join("environ");
        fs::read(path).is_ok_and(|environ| chosen(&environ))
    })
}

/// The processes whose command line has this text.
pub fn processes_with(text: &str) -> Vec<i32> {
    let entries = fs::read_dir("/proc").unwrap();
    let pids = entries.filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    pids.filter(|pid| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(text)
    })
    .collect()
}
