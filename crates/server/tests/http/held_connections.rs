//! A client that holds connections open does not lock other clients out.

use crate::test_server::TestServer;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

async fn connect(from: &str, to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(format!("{from}:0").parse().unwrap()).unwrap();
    socket.connect(to).await.unwrap()
}

// Other systems have 127.0.0.1 only.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn one_address_cannot_take_all_connections() {
    let server = TestServer::start_with(|settings| settings.connections_max = 4).await;
    let mut held = Vec::new();
    for _ in 0..6 {
        let mut stream = connect("127.0.0.2", server.address).await;
        // The start of HTTP/1 and of HTTP/2.
        let _ = stream.write_all(b"P").await;
        held.push(stream);
    }
    let mut other = connect("127.0.0.3", server.address).await;
    other.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    other.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    // The server closed the connections beyond three.
    for mut stream in held.split_off(3) {
        assert!(!matches!(stream.read(&mut [0; 1]).await, Ok(1..)));
    }
}
