//! The death of a node, also by `kill -9`: its processes and its files go within two seconds.

use crate::fixture::{config, eventually, harness, has_processes, processes_with, unique};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use towline_node::runner::ProcessRunner;

/// Commands that are hard to find: in another session, without output, deaf to signals, without an environment. All of them sleep for
/// a time by which the test knows them.
const SCRIPTS: [&str; 4] = [
    "echo ready; sleep TIME",
    "setsid sleep TIME < /dev/null > /dev/null 2>&1 & trap '' TERM HUP INT; echo ready; while :; do sleep TIME; done",
    "(setsid sh -c 'setsid sleep TIME & echo ready; wait' &) ; sleep TIME",
    "env -i sleep TIME & echo ready; wait",
];

/// A node in a process of its own, with commands.
struct Node {
    process: Child,
    instance: String,
    /// The argument of the commands' `sleep`.
    time: String,
}

impl Node {
    fn start(root: &Path) -> Node {
        let instance = unique("killed");
        let digits: String = instance.bytes().map(|byte| char::from(b'0' + byte % 10)).collect();
        let time = format!("1000.{digits}");
        let mut command = Command::new(harness());
        command
            .arg("node")
            .arg(root)
            .arg(&instance)
            .args(SCRIPTS.map(|script| script.replace("TIME", &time)));
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        let node = Node { process, instance, time };
        assert!(node.has_processes());
        node
    }

    fn has_processes(&self) -> bool {
        has_processes(&self.instance) || !processes_with(&format!("sleep\0{}", self.time)).is_empty()
    }

    fn guardian(&self) -> Option<i32> {
        let own = self.process.id().cast_signed();
        processes_with(&self.instance).into_iter().find(|&pid| {
            pid != own
                && std::fs::read(format!("/proc/{pid}/cmdline"))
                    .is_ok_and(|line| line.starts_with(b"/proc/self/exe\0guardian"))
        })
    }

    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    async fn leaves_nothing(&self, root: &Path) {
        let killed = now();
        let directory = root.join(&self.instance);
        eventually("nothing is left of the node", || !self.has_processes() && !directory.exists()).await;
        let took = now() - killed;
        assert!(took < Duration::from_secs(2), "the clean-up took {took:?}");
        eventually("the guardian ends too", || self.guardian().is_none()).await;
    }
}

fn signal(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

#[expect(clippy::disallowed_methods, reason = "the promise is in seconds of the machine")]
fn now() -> Instant {
    Instant::now()
}

#[tokio::test]
async fn a_killed_node_leaves_nothing() {
    let root = tempfile::tempdir().unwrap();
    for _ in 0..5 {
        let mut node = Node::start(root.path());
        node.kill();
        node.leaves_nothing(root.path()).await;
    }
}

#[tokio::test]
async fn a_guardian_that_dies_is_replaced() {
    let root = tempfile::tempdir().unwrap();
    let mut node = Node::start(root.path());
    let first = node.guardian().unwrap();
    signal(first, Signal::KILL);
    eventually("another guardian watches", || node.guardian().is_some_and(|next| next != first)).await;
    node.kill();
    node.leaves_nothing(root.path()).await;
}

#[tokio::test]
async fn the_next_node_cleans_up_when_the_guardian_died_too() {
    let root = tempfile::tempdir().unwrap();
    let mut node = Node::start(root.path());
    let guardian = node.guardian().unwrap();
    // A guardian that is stopped cannot clean up, and its node does not replace it.
    signal(guardian, Signal::STOP);
    node.kill();
    signal(guardian, Signal::KILL);
    assert!(node.has_processes());
    // A directory that is not of a node stays.
    std::fs::create_dir(root.path().join("foreign")).unwrap();

    let runner = ProcessRunner::new(config(root.path(), &unique("next"))).unwrap();
    assert!(!has_processes(&node.instance));
    assert!(!root.path().join(&node.instance).exists());
    assert!(root.path().join("foreign").exists());
    drop(runner);
    // Only a guardian knows the sessions, so the command without an environment is left.
    for pid in processes_with(&node.time) {
        signal(pid, Signal::KILL);
    }
}
