//! A client that holds connections open does not lock other clients out.

use crate::test_server::TestServer;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

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

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn a_websocket_keeps_the_seat_of_its_connection() {
    let server = TestServer::start_with(|settings| settings.connections_max = 4).await;
    let mut sockets = Vec::new();
    for _ in 0..3 {
        let stream = connect("127.0.0.2", server.address).await;
        let request = format!("ws://{}/v1/events", server.address).into_client_request().unwrap();
        sockets.push(tokio_tungstenite::client_async(request, stream).await.unwrap().0);
    }
    let get = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    let ask = async || {
        let mut stream = connect("127.0.0.2", server.address).await;
        let mut answer = String::new();
        let _ = stream.write_all(get).await;
        let _ = stream.read_to_string(&mut answer).await;
        answer
    };
    assert_eq!(ask().await, "", "the client has three connections, all of them WebSockets");
    drop(sockets);
    // The server notices the end of a WebSocket a moment later.
    while ask().await.is_empty() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_pings_ends_the_connection() {
    let server = TestServer::start().await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    let ping = [&[0, 0, 8, 6, 0, 0, 0, 0, 0][..], &[7; 8]].concat();
    let (mut reader, mut writer) = stream.into_split();
    let answers = tokio::spawn(async move {
        let mut sum = 0;
        let mut piece = [0; 4096];
        while let Ok(bytes @ 1..) = reader.read(&mut piece).await {
            sum += bytes;
        }
        sum
    });
    for _ in 0..10_000 {
        if writer.write_all(&ping).await.is_err() {
            break;
        }
    }
    // The client does not close the connection: `writer` is still there.
    let answered = tokio::time::timeout(Duration::from_secs(60), answers).await;
    let answered = answered.expect("the server ends the connection").unwrap();
    assert!(
        answered < 2000 * ping.len(),
        "{answered} bytes: the server answers no more pings than its limit"
    );
    drop(writer);
    server.get("/healthz").await.success();
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn the_connections_of_a_trusted_proxy_are_those_of_many_clients() {
    let server = TestServer::start_with(|settings| {
        settings.connections_max = 8;
        settings.trusted_proxies.networks = vec!["127.0.0.2/32".parse().unwrap()];
    })
    .await;
    let ask = async |from: &str| {
        let mut stream = connect(from, server.address).await;
        let _ = stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
        let mut answer = [0; 12];
        let read = stream.read_exact(&mut answer).await;
        (stream, read.is_ok() && answer == *b"HTTP/1.1 200")
    };
    let mut held = Vec::new();
    for _ in 0..7 {
        let (stream, answered) = ask("127.0.0.2").await;
        assert!(answered, "a client has 6 of 8 seats, but a proxy is not one client");
        held.push(stream);
    }
}
