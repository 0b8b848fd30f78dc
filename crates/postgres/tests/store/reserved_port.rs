//! A port that belongs to one test.

use std::net::SocketAddr;
use tokio::net::TcpSocket;

/// A port that the system gives to no other test while this value lives, also while a server on it is down. It refuses
/// connections until a server listens on it.
///
/// The socket is bound and never listens. A server can listen on the port nevertheless, because both set `SO_REUSEADDR`.
#[derive(Debug)]
pub struct ReservedPort(TcpSocket);

impl ReservedPort {
    pub fn new() -> ReservedPort {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
        ReservedPort(socket)
    }

    pub fn address(&self) -> SocketAddr {
        self.0.local_addr().unwrap()
    }
}
