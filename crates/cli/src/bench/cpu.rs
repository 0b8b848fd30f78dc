//! CPU use during a run, from /proc: of this client, of a server on this machine, and of all other processes.

use super::clock;
use procfs::net::TcpState;
use procfs::process::{FDTarget, Process};
use procfs::{CurrentSI, KernelStats};
use std::net::SocketAddr;
use std::time::Instant;

/// Above this use by other processes, the peers' benchmark repeats a run.
pub const DISTURBED_CORES: f64 = 0.12;

/// Average cores in use.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Usage {
    pub client: f64,
    /// `None`: the server is on another machine, or belongs to another user.
    pub server: Option<f64>,
    /// User time of all other processes. Kernel threads have none.
    pub others: Option<f64>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Seconds {
    user: f64,
    system: f64,
}

#[derive(Debug, Clone, Copy)]
pub struct CpuMeter {
    at: Instant,
    server_pid: Option<u32>,
    client: Seconds,
    server: Option<Seconds>,
    all_processes_user: Option<f64>,
}

impl CpuMeter {
    pub fn start(server_pid: Option<u32>) -> CpuMeter {
        CpuMeter {
            at: clock::now(),
            server_pid,
            client: of_process(Process::myself()).unwrap_or_default(),
            server: server_pid.and_then(|pid| of_process(by_id(pid))),
            all_processes_user: all_processes_user(),
        }
    }

    pub fn stop(&self) -> Usage {
        let end = CpuMeter::start(self.server_pid);
        let wall = end.at.saturating_duration_since(self.at).as_secs_f64().max(1e-9);
        let client = end.client - self.client;
        let server = end.server.zip(self.server).map(|(end, start)| end - start);
        let others = end
            .all_processes_user
            .zip(self.all_processes_user)
            .zip(server)
            .map(|((end, start), server)| ((end - start) - client.user - server.user).max(0.0) / wall);
        Usage {
            client: (client.user + client.system) / wall,
            server: server.map(|server| (server.user + server.system) / wall),
            others,
        }
    }
}

impl std::ops::Sub for Seconds {
    type Output = Seconds;
    fn sub(self, start: Seconds) -> Seconds {
        Seconds { user: self.user - start.user, system: self.system - start.system }
    }
}

fn of_process(process: procfs::ProcResult<Process>) -> Option<Seconds> {
    let stat = process.ok()?.stat().ok()?;
    Some(Seconds { user: seconds(stat.utime), system: seconds(stat.stime) })
}

fn by_id(pid: u32) -> procfs::ProcResult<Process> {
    Process::new(pid.cast_signed())
}

fn seconds(ticks: u64) -> f64 {
    ticks as f64 / procfs::ticks_per_second() as f64
}

fn all_processes_user() -> Option<f64> {
    let total = KernelStats::current().ok()?.total;
    Some(seconds(total.user + total.nice))
}

/// The process that listens at this address, if it is on this machine and readable.
pub fn listener(address: SocketAddr) -> Option<u32> {
    if !address.ip().is_loopback() {
        return None;
    }
    let sockets = [procfs::net::tcp(), procfs::net::tcp6()].into_iter().flatten().flatten();
    let mut listening = sockets.filter(|socket| socket.state == TcpState::Listen);
    let inode = listening.find(|socket| serves(socket.local_address, address))?.inode;
    let holds = |process: &Process| {
        let files = process.fd().into_iter().flatten().flatten();
        files.map(|file| file.target).any(|target| matches!(target, FDTarget::Socket(held) if held == inode))
    };
    let mut processes = procfs::process::all_processes().ok()?.flatten();
    processes.find(holds).map(|process| process.pid.cast_unsigned())
}

/// Whether a socket that listens at `local` gets connections to `address`.
fn serves(local: SocketAddr, address: SocketAddr) -> bool {
    local.port() == address.port() && (local.ip() == address.ip() || local.ip().is_unspecified())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_that_listens_everywhere_serves_every_address() {
        let serves = |local: &str, address: &str| serves(local.parse().unwrap(), address.parse().unwrap());
        assert!(serves("127.0.0.1:7420", "127.0.0.1:7420"));
        assert!(serves("0.0.0.0:80", "127.0.0.1:80"));
        assert!(!serves("127.0.0.1:7420", "127.0.0.1:81"));
        assert!(!serves("127.0.0.2:7420", "127.0.0.1:7420"));
    }

    #[test]
    fn this_process_uses_cpu_time() {
        assert!(of_process(Process::myself()).is_some());
        assert!(all_processes_user().is_some());
    }

    #[test]
    fn this_process_is_the_listener_of_its_own_socket() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(listener(socket.local_addr().unwrap()), Some(std::process::id()));
    }
}
