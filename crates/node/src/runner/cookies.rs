//! Cookies: environment variables by which the processes of a node and of a launch are found in `/proc`.
//!
//! A child that leaves the process group and the session of its launch keeps the cookie. A child that also clears its environment
//! is found while its parent lives.

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::time::Duration;
use std::{fs, io, thread};

/// Names the runner's instance.
pub(super) const INSTANCE_COOKIE: &str = "TOWLINE_NODE_INSTANCE";
/// Names the launch.
pub(super) const LAUNCH_COOKIE: &str = "TOWLINE_LAUNCH";

/// Between two looks at `/proc` while killed processes go away.
const KILL_PAUSE: Duration = Duration::from_millis(2);

/// Kills every process that `chosen` picks by its environment, with its children, until none is left.
///
/// Gives up after `rounds`: a process in an uninterruptible wait does not die. Returns how many processes were left then.
pub(super) fn kill_all(chosen: impl Fn(&Environ) -> bool, rounds: u32) -> usize {
    let mut left = 0;
    for _ in 0..rounds {
        left = kill_once(&chosen);
        if left == 0 {
            break;
        }
        thread::sleep(KILL_PAUSE);
    }
    left
}

/// Sends SIGKILL to the chosen processes and their descendants. Returns how many there were.
fn kill_once(chosen: &impl Fn(&Environ) -> bool) -> usize {
    let mut processes = all_processes();
    // A parent has not always the smaller process id, so descendants are looked for until no more are found.
    let mut found = BTreeSet::new();
    loop {
        let before = found.len();
        for process in &processes {
            if found.contains(&process.parent) || chosen(&process.environ) {
                found.insert(process.pid);
            }
        }
        if found.len() == before {
            break;
        }
    }
    processes.retain(|process| found.contains(&process.pid));
    for process in &processes {
        // A process that has just ended needs no signal.
        let _ = pidfd_send_signal(&process.descriptor, Signal::KILL);
    }
    processes.len()
}

/// A process other than this one.
#[derive(Debug)]
struct Process {
    pid: i32,
    parent: i32,
    environ: Environ,
    /// Opened before the environment was read: when the process id has a new owner, a signal through it reaches nobody.
    descriptor: OwnedFd,
}

/// The environment with which a process was started. A zombie has none.
#[derive(Debug, Default)]
pub(super) struct Environ(Vec<u8>);

impl Environ {
    pub(super) fn get(&self, name: &str) -> Option<&[u8]> {
        self.0
            .split(|&byte| byte == 0)
            .find_map(|entry| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
    }

    pub(super) fn has(&self, name: &str, value: &str) -> bool {
        self.get(name) == Some(value.as_bytes())
    }
}

fn all_processes() -> Vec<Process> {
    let own = rustix::process::getpid().as_raw_nonzero().get();
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|&pid| pid != own).filter_map(|pid| read_process(pid).ok()?).collect()
}

/// `None` for a zombie, and for a process whose environment this user may not read: it is not of this node.
fn read_process(pid: i32) -> io::Result<Option<Process>> {
    let Some(id) = Pid::from_raw(pid) else { return Ok(None) };
    let descriptor = pidfd_open(id, PidfdFlags::empty())?;
    let environ = Environ(fs::read(format!("/proc/{pid}/environ"))?);
    if environ.0.is_empty() {
        // Kernel threads and zombies have no program. A program started with an empty environment has one.
        let is_program = fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty());
        if !is_program {
            return Ok(None);
        }
    }
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    Ok(parent_in(&stat).map(|parent| Process { pid, parent, environ, descriptor }))
}

/// The parent in `/proc/PID/stat`. The name of the program, in brackets, may itself have brackets and blanks.
fn parent_in(stat: &str) -> Option<i32> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_a_whole_variable() {
        let environ = Environ(b"A=1\0TOWLINE_LAUNCH=run-1\0XTOWLINE_LAUNCH=run-2".to_vec());
        assert!(environ.has(LAUNCH_COOKIE, "run-1"));
        assert!(!environ.has(LAUNCH_COOKIE, "run-"));
        assert!(!environ.has(LAUNCH_COOKIE, "run-2"));
        assert_eq!(Environ::default().get("A"), None);
    }

    #[test]
    fn the_parent_is_found_behind_an_odd_program_name() {
        assert_eq!(parent_in("12 (a) b) S 7 12 12 0"), Some(7));
        assert_eq!(parent_in("12"), None);
    }
}
