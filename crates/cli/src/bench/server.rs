//! The server to measure, and how to reach it.

use super::cpu;
use crate::connect::Connection;
use crate::exit::Failure;
use anyhow::anyhow;
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;
use towline_api::{Client, Format};

#[derive(Debug)]
pub struct Server {
    pub url: String,
    /// `None`: a server of the benchmark, which requires no token.
    connection: Option<Connection>,
    format: Format,
    /// Known if the server is on this machine.
    pub pid: Option<u32>,
}

impl Server {
    pub fn own(url: String, format: Format, pid: Option<u32>) -> Server {
        Server { url, connection: None, format, pid }
    }

    pub fn given(connection: Connection, format: Format) -> anyhow::Result<Server> {
        let url = open(&connection)?.url().to_owned();
        let pid = address(&url).and_then(cpu::listener);
        Ok(Server { url, connection: Some(connection), format, pid })
    }

    /// A client with its own connection. It does not repeat calls: a failed call ends the run.
    pub fn client(&self) -> anyhow::Result<Client> {
        let client = match &self.connection {
            Some(connection) => open(connection)?,
            None => Client::new(&self.url)?,
        };
        Ok(client.format(self.format).retry_for(Duration::ZERO))
    }
}

fn open(connection: &Connection) -> anyhow::Result<Client> {
    let opened = connection.open(None).map_err(|failure| match failure {
        Failure::Usage(words) => anyhow!(words),
        other => anyhow!("{other:?}"),
    });
    Ok(opened?.client)
}

/// The socket address of `http://host:port`, to find the process that listens there.
fn address(url: &str) -> Option<SocketAddr> {
    let authority = url.strip_prefix("http://")?.split('/').next()?;
    let with_port = authority.to_socket_addrs().or_else(|_| (authority, 80).to_socket_addrs());
    with_port.ok()?.next()
}
