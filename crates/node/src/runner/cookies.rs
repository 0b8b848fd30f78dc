//! Cookies: environment variables by which the processes of a node and of a launch are found in `/proc`.
//!
//! A child that leaves the session of its launch keeps the cookie. A child that clears its environment is found by its session, and
//! one that does both is found while its parent lives.

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::time::Duration;
use std::{fs, thread};

/// Names the runner's instance.
pub(super) const INSTANCE_COOKIE: &str = "TOWLINE_NODE_INSTANCE";
/// Names the launch.
pub(super) const LAUNCH_COOKIE: &str = "TOWLINE_LAUNCH";

/// Between two looks at `/proc` while killed processes go away.
const KILL_PAUSE: Duration = Duration::from_millis(2);

/// Kills every process that `chosen` picks, with its children, until none is left.
///
/// Gives up after `rounds`: a process in an uninterruptible wait does not die. Returns how many processes were left then.
pub(super) fn kill_all(chosen: impl Fn(&Process) -> bool, rounds: u32) -> usize {
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
fn kill_once(chosen: &impl Fn(&Process) -> bool) -> usize {
    let mut processes = all_processes();
    // A parent has not always the smaller process id, so descendants are looked for until no more are found.
    let mut found = BTreeSet::new();
    loop {
        let before = found.len();
        for process in &processes {
            if found.contains(&process.parent) || chosen(process) {
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

/// A process other than this one, and not a zombie.
#[derive(Debug)]
pub(super) struct Process {
    pid: i32,
    parent: i32,
    pub(super) session: i32,
    /// The environment with which the process was started, if this user may read it.
    environ: Vec<u8>,
    /// Opened before the rest was read: when the process id has a new owner, a signal through it has no effect.
    descriptor: OwnedFd,
}

impl Process {
    pub(super) fn cookie(&self, name: &str) -> Option<&[u8]> {
        value_in(&self.environ, name)
    }

    pub(super) fn has_cookie(&self, name: &str, value: &str) -> bool {
        self.cookie(name) == Some(value.as_bytes())
    }
}

fn value_in<'a>(environ: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let mut entries = environ.split(|&byte| byte == 0);
    entries.find_map(|entry| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
}

fn all_processes() -> Vec<Process> {
    let own = rustix::process::getpid().as_raw_nonzero().get();
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|&pid| pid != own).filter_map(read_process).collect()
}

/// `None` for a zombie and for a process that has just ended.
fn read_process(pid: i32) -> Option<Process> {
    let descriptor = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
    let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let (parent, session) = parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?;
    Some(Process { pid, parent, session, environ, descriptor })
}

/// The parent and the session in `/proc/PID/stat`. The name of the program, in brackets, may itself have brackets and blanks.
fn parse_stat(stat: &str) -> Option<(i32, i32)> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().take(4).collect();
    match fields[..] {
        ["Z" | "X", ..] => None,
        [_, parent, _group, session] => Some((parent.parse().ok()?, session.parse().ok()?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_a_whole_variable() {
        let environ = b"A=1\0TOWLINE_LAUNCH=run-1\0XTOWLINE_LAUNCH=run-2";
        assert_eq!(value_in(environ, LAUNCH_COOKIE), Some(&b"run-1"[..]));
        assert_eq!(value_in(environ, "TOWLINE"), None);
        assert_eq!(value_in(b"", "A"), None);
    }

    #[test]
    fn a_process_is_read_behind_an_odd_program_name() {
        assert_eq!(parse_stat("12 (a) b) S 7 12 11 0"), Some((7, 11)));
        assert_eq!(parse_stat("12 (gone) Z 7 12 11 0"), None);
        assert_eq!(parse_stat("12"), None);
    }
}
