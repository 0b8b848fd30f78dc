//! CPU use during a run, from /proc: of this client, of a server on this machine, and of all other processes.

use super::clock;
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

/// USER_HZ: 100 on every Linux in use.
const TICKS_PER_SECOND: f64 = 100.0;

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
            client: of_process("self").unwrap_or_default(),
            server: server_pid.and_then(|pid| of_process(&pid.to_string())),
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

fn of_process(pid: &str) -> Option<Seconds> {
    parse_stat(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Fields 14 and 15 of proc(5), counted from behind the name, which may contain anything.
fn parse_stat(text: &str) -> Option<Seconds> {
    let mut fields = text.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    let mut seconds = || Some(fields.next()?.parse::<f64>().ok()? / TICKS_PER_SECOND);
    Some(Seconds { user: seconds()?, system: seconds()? })
}

fn all_processes_user() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    let mut fields = stat.lines().next()?.split_ascii_whitespace().skip(1);
    let mut ticks = || fields.next()?.parse::<f64>().ok();
    Some((ticks()? + ticks()?) / TICKS_PER_SECOND)
}

/// The process that listens at this address, if it is on this machine and readable.
pub fn listener(address: SocketAddr) -> Option<u32> {
    if !address.ip().is_loopback() {
        return None;
    }
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(std::fs::read_to_string);
    let inode = tables.iter().flatten().find_map(|table| listening_inode(table, address))?;
    let link = format!("socket:[{inode}]");
    let pids = std::fs::read_dir("/proc").ok()?.flatten();
    pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()).find(|pid| {
        let sockets = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        sockets.filter_map(|fd| std::fs::read_link(fd.path()).ok()).any(|target| target.as_os_str() == &*link)
    })
}

/// Finds a listening socket in a table of /proc/net.
fn listening_inode(table: &str, address: SocketAddr) -> Option<u64> {
    const LISTEN: &str = "0A";
    table.lines().skip(1).find_map(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let (ip, port) = fields.get(1)?.split_once(':')?;
        let here = u16::from_str_radix(port, 16).ok()? == address.port() && *fields.get(3)? == LISTEN;
        let any = ip.bytes().all(|digit| digit == b'0');
        let same = match address.ip() {
            // The table shows an address as a number in this machine's byte order.
            IpAddr::V4(v4) => u32::from_str_radix(ip, 16).ok() == Some(u32::from_ne_bytes(v4.octets())),
            IpAddr::V6(_) => ip.len() == 32,
        };
        if here && (any || same) { fields.get(9)?.parse().ok() } else { None }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_parses_with_any_process_name() {
        let line = "7 (a) b) S 1 7 7 0 -1 4194304 90 0 0 0 150 25 0 0 20 0 1 0 5 9 3 0";
        let seconds = parse_stat(line).unwrap();
        assert_eq!((seconds.user, seconds.system), (1.5, 0.25));
    }

    #[test]
    fn the_listener_is_found_by_address_and_port() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            0: 0100007F:1CFC 0100007F:9999 01 00000000:00000000 00:00000000 00000000     0        0 11 1 0 100 0 0 10 0\n\
            1: 0100007F:1CFC 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 22 1 0 100 0 0 10 0\n\
            2: 00000000:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 33 1 0 100 0 0 10 0\n";
        let inode = |address: &str| listening_inode(table, address.parse().unwrap());
        assert_eq!(inode("127.0.0.1:7420"), Some(22));
        assert_eq!(inode("127.0.0.1:80"), Some(33), "one that listens everywhere listens here too");
        assert_eq!(inode("127.0.0.1:81"), None);
    }

    #[test]
    fn this_process_is_the_listener_of_its_own_socket() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(listener(socket.local_addr().unwrap()), Some(std::process::id()));
    }
}
