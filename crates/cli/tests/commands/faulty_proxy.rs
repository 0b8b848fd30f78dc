//! A proxy that cuts or stalls connections to a server.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// What happens to a connection after this many bytes in each direction.
#[derive(Debug, Clone, Copy)]
pub enum End {
    Never,
    Cut(u64),
    Stall(u64),
}

pub struct FaultyProxy {
    url: String,
    connections: Arc<AtomicUsize>,
}

impl FaultyProxy {
    /// `end` decides the fate of each connection by its number.
    pub fn to(server: &str, end: impl Fn(usize) -> End + Send + 'static) -> FaultyProxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (server, connections) = (server.to_owned(), Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&connections);
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let end = end(counted.fetch_add(1, Ordering::SeqCst));
                // If the server is away, the connection ends at once.
                let (Ok(client), Ok(server)) = (client, TcpStream::connect(&server)) else { continue };
                let (from_client, from_server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                std::thread::spawn(move || carry(from_client, server, end));
                std::thread::spawn(move || carry(from_server, client, end));
            }
        });
        FaultyProxy { url, connections }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, end: End) {
    let mut piece = vec![0; 64 << 10];
    let mut carried = 0;
    loop {
        match end {
            End::Cut(after) if carried >= after => break,
            // Both ends stay open, and nothing arrives.
            End::Stall(after) if carried >= after => std::thread::sleep(Duration::from_secs(3600)),
            _ => {}
        }
        let Ok(length @ 1..) = from.read(&mut piece) else { break };
        if to.write_all(&piece[..length]).is_err() {
            break;
        }
        carried += length as u64;
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
