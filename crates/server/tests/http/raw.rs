//! Raw HTTP/1.1, for requests that no client library would send.

use crate::test_server::{TestResponse, TestServer};
use http::{HeaderMap, HeaderName, StatusCode};
use serde_json::Value;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub struct Raw {
    stream: TcpStream,
    read: Vec<u8>,
}

/// The head of a request with a JSON body of this length.
pub fn head(method: &str, path: &str, length: usize) -> String {
    format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    )
}

/// The same with `Expect: 100-continue`.
pub fn head_that_asks(method: &str, path: &str, length: usize) -> String {
    head(method, path, length).replace("\r\n\r\n", "\r\nexpect: 100-continue\r\n\r\n")
}

/// A body of this length: spaces may follow JSON.
pub fn padded(body: &str, length: usize) -> String {
    format!("{body}{}", " ".repeat(length - body.len()))
}

pub fn request(method: &str, path: &str, body: &Value) -> String {
    let body = body.to_string();
    head(method, path, body.len()) + &body
}

impl Raw {
    /// Sends all of a large body but its last byte, and waits until the server holds the memory for it.
    pub async fn hold_memory(server: &TestServer, body: &str) -> Raw {
        loop {
            let mut raw = Raw::connect(server.address).await;
            raw.send(head("POST", "/v1/queues/jobs/items", body.len())).await;
            raw.send(&body[..body.len() - 1]).await;
            // A body without items changes nothing. Once the first body is slow, the server cuts it.
            for _ in 0..100 {
                let probe = padded(r#"{"items":[]}"#, 900_000);
                if server.post_text("/v1/queues/jobs/items", probe).await.status.as_u16() == 503 {
                    return raw;
                }
            }
        }
    }

    pub async fn connect(address: SocketAddr) -> Raw {
        Raw { stream: TcpStream::connect(address).await.unwrap(), read: Vec::new() }
    }

    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.unwrap();
    }

    /// Closes the sending side. Responses can still be read.
    pub async fn finish(&mut self) {
        self.stream.shutdown().await.unwrap();
    }

    /// Sends as much as the server reads.
    pub async fn send_some(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = self.stream.write_all(bytes.as_ref()).await;
    }

    pub async fn finish_some(&mut self) {
        let _ = self.stream.shutdown().await;
    }

    /// Returns `false` if the server has closed the connection.
    async fn more(&mut self) -> bool {
        let mut piece = [0; 64 << 10];
        let length = self.stream.read(&mut piece).await.unwrap_or(0);
        self.read.extend_from_slice(&piece[..length]);
        length > 0
    }

    /// The next response on this connection. `None` if it is closed.
    pub async fn answer(&mut self) -> Option<TestResponse> {
        let end = loop {
            match self.read.windows(4).position(|four| four == b"\r\n\r\n") {
                Some(at) => break at + 4,
                None if self.more().await => {}
                None => return None,
            }
        };
        let head = String::from_utf8(self.read.drain(..end).collect()).unwrap();
        let mut lines = head.lines();
        let status = lines.next().unwrap().split(' ').nth(1).unwrap();
        let status = StatusCode::from_bytes(status.as_bytes()).unwrap();
        let pair = |line: &str| {
            let (name, value) = line.split_once(':')?;
            Some((name.parse::<HeaderName>().ok()?, value.trim().parse().ok()?))
        };
        let headers: HeaderMap = lines.filter_map(pair).collect();
        let length =
            headers.get("content-length").map_or(0, |value| value.to_str().unwrap().parse().unwrap());
        while self.read.len() < length {
            assert!(self.more().await, "the response is incomplete");
        }
        let body = self.read.drain(..length).collect::<Vec<u8>>().into();
        Some(TestResponse { status, headers, body })
    }

    /// Waits until the server closes the connection.
    pub async fn hung_up(mut self) {
        while self.more().await {}
    }
}
