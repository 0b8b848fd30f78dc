//! A proxy between client and server that counts connections and cuts some of them.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// Forwards everything.
    Forward,
    /// Reads and discards the request, then closes the connection.
    CutBefore,
    /// Forwards the request and discards the response.
    CutAfter,
    /// Forwards the first response, then closes the connection.
    CloseWhenIdle,
    /// Forwards this many bytes in either direction, then closes the connection.
    CutAfterBytes(u64),
}

pub struct Proxy {
    pub address: SocketAddr,
    accepted: Arc<AtomicUsize>,
    fates: Arc<Mutex<VecDeque<Fate>>>,
}

impl Proxy {
    pub async fn start(server: SocketAddr) -> Proxy {
        Proxy::start_on(TcpListener::bind("127.0.0.1:0").await.unwrap(), server)
    }

    pub fn start_on(listener: TcpListener, server: SocketAddr) -> Proxy {
        let address = listener.local_addr().unwrap();
        let accepted = Arc::new(AtomicUsize::new(0));
        let fates = Arc::new(Mutex::new(VecDeque::new()));
        let proxy = Proxy { address, accepted: Arc::clone(&accepted), fates: Arc::clone(&fates) };
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                accepted.fetch_add(1, Ordering::SeqCst);
                let fate = fates.lock().unwrap().pop_front().unwrap_or(Fate::Forward);
                tokio::spawn(connection(client, server, fate));
            }
        });
        proxy
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// What happens to the next connections.
    pub fn plan(&self, fates: impl IntoIterator<Item = Fate>) {
        self.fates.lock().unwrap().extend(fates);
    }

    pub fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }
}

/// Reads one request or response with a content length.
async fn message(stream: &mut TcpStream) -> Vec<u8> {
    let mut message = Vec::new();
    let mut piece = [0; 16 << 10];
    loop {
        let length = stream.read(&mut piece).await.unwrap();
        assert!(length > 0, "the message is incomplete");
        message.extend_from_slice(&piece[..length]);
        let Some(end) = message.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(&message[..end]).to_lowercase();
        let body = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
        if message.len() >= end + 4 + body.unwrap_or(0) {
            return message;
        }
    }
}

async fn connection(mut client: TcpStream, server: SocketAddr, fate: Fate) {
    if fate == Fate::CutBefore {
        message(&mut client).await;
        return;
    }
    let mut server = TcpStream::connect(server).await.unwrap();
    if fate == Fate::Forward {
        let _ = copy_bidirectional(&mut client, &mut server).await;
        return;
    }
    if let Fate::CutAfterBytes(count) = fate {
        let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
            (client.split(), server.split());
        let (mut up, mut down) = ((&mut from_client).take(count), (&mut from_server).take(count));
        tokio::select! {
            _ = copy(&mut up, &mut to_server) => {}
            _ = copy(&mut down, &mut to_client) => {}
        }
        return;
    }
    let request = message(&mut client).await;
    server.write_all(&request).await.unwrap();
    let answer = message(&mut server).await;
    if fate == Fate::CloseWhenIdle {
        client.write_all(&answer).await.unwrap();
    }
}
