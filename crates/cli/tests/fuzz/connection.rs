//! Raw HTTP, to send what a well-behaved client cannot send.

use crate::calls::Call;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Calls that may wait are given up after this time. All other calls must be answered long before theirs.
const WAIT: Duration = Duration::from_millis(250);
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub content_type: String,
    pub body: Vec<u8>,
}

/// The outcome of a call.
#[derive(Debug)]
pub enum Ended {
    Answered(Answer),
    /// The call may wait, and did.
    Waited,
    /// No answer to a call that may not wait.
    Silent,
    /// The server closed the connection without an answer.
    Closed,
}

/// A connection that is kept open between calls.
pub struct Connection {
    address: String,
    stream: Option<BufReader<TcpStream>>,
}

impl Connection {
    pub fn new(address: &str) -> Connection {
        Connection { address: address.to_owned(), stream: None }
    }

    fn stream(&mut self) -> &mut BufReader<TcpStream> {
        let address = &self.address;
        self.stream.get_or_insert_with(|| {
            let stream = TcpStream::connect(address).expect("the server is gone");
            stream.set_nodelay(true).unwrap();
            BufReader::new(stream)
        })
    }

    pub fn exchange(&mut self, call: &Call) -> Ended {
        let patience = if call.may_wait { WAIT } else { PATIENCE };
        let head = call.head(&self.address);
        let stream = self.stream();
        stream.get_ref().set_read_timeout(Some(patience)).unwrap();
        let message = [head.as_bytes(), &call.body].concat();
        // The server may refuse a large body before it is sent. The answer is there anyway.
        let sent = stream.get_mut().write_all(&message);
        match read(stream) {
            Ok((answer, keep)) => {
                if !keep || sent.is_err() {
                    self.stream = None;
                }
                Ended::Answered(answer)
            }
            Err(error) => {
                self.stream = None;
                match error.kind() {
                    std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut if call.may_wait => {
                        Ended::Waited
                    }
                    std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut => Ended::Silent,
                    _ => Ended::Closed,
                }
            }
        }
    }

    /// Makes a call that must succeed.
    pub fn json(&mut self, method: &'static str, path: &str, body: &str) -> serde_json::Value {
        let call = Call {
            method,
            path: path.to_owned(),
            headers: if body.is_empty() {
                Vec::new()
            } else {
                vec![("content-type", "application/json".to_owned())]
            },
            body: body.as_bytes().to_vec(),
            may_wait: false,
        };
        match self.exchange(&call) {
            Ended::Answered(answer) if answer.status == 204 => serde_json::Value::Null,
            Ended::Answered(answer) if answer.status == 200 => serde_json::from_slice(&answer.body).unwrap(),
            other => panic!("{method} {path}: {other:?}"),
        }
    }
}

fn read(stream: &mut BufReader<TcpStream>) -> std::io::Result<(Answer, bool)> {
    let broken = || std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
    let mut line = String::new();
    stream.read_line(&mut line)?;
    let status = line.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(broken)?;
    let (mut length, mut chunked, mut keep, mut content_type) = (0, false, true, String::new());
    loop {
        line.clear();
        stream.read_line(&mut line)?;
        let header = line.trim_end();
        if header.is_empty() {
            break;
        }
        let (name, value) = header.split_once(": ").ok_or_else(broken)?;
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.parse().map_err(|_| broken())?,
            "transfer-encoding" => chunked = true,
            "content-type" => content_type = value.to_owned(),
            "connection" => keep = value != "close",
            _ => {}
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    while chunked {
        line.clear();
        stream.read_line(&mut line)?;
        let size = usize::from_str_radix(line.trim_end(), 16).map_err(|_| broken())?;
        let mut chunk = vec![0; size + 2];
        stream.read_exact(&mut chunk)?;
        body.extend_from_slice(&chunk[..size]);
        chunked = size > 0;
    }
    Ok((Answer { status, content_type, body }, keep))
}

/// Sends bytes and reads for a moment.
pub fn throw(address: &str, bytes: &[u8]) {
    let mut stream = TcpStream::connect(address).expect("the server is gone");
    stream.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
    let _ = stream.write_all(bytes);
    let _ = stream.read(&mut [0; 1024]);
}
