//! Topics: told to everybody who listens.

use super::transport::{Call, Repeat};
use super::{Client, ClientError, Result};
use crate::kv::{CutOff, Published, TopicMessage};
use bytes::Bytes;
use http::Method;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use std::time::Duration;
use towline_domain::QueueName;

/// A server says something at least every 15 s: one that is silent for so long is gone.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// More than any message takes.
const EVENT_BYTES_MAX: usize = 1 << 20;

/// What a listener hears.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    Message(String),
    /// The last: it was too slow, and this many messages went by.
    CutOff {
        missed: u64,
    },
}

/// A topic that is listened to.
#[derive(Debug)]
pub struct Listening {
    client: Client,
    body: Incoming,
    /// What has come and is not read yet.
    unread: Vec<u8>,
}

impl Client {
    /// Tells everybody who listens at this server now; how many they are.
    pub async fn publish(&self, topic: &str, message: &str) -> Result<usize> {
        let call = Call::new(Method::POST, path(topic)?, Repeat::Unsafe);
        let body = TopicMessage { message: message.to_owned() };
        Ok(self.transport.call::<Published>(self.transport.body(call, &body)?).await?.listeners)
    }

    /// Listens from now on: what is published after this has ended is heard.
    pub async fn subscribe(&self, topic: &str) -> Result<Listening> {
        let response = self.transport.open(Call::get(path(topic)?)).await?;
        let mut listening =
            Listening { client: self.clone(), body: response.into_body(), unread: Vec::new() };
        // The first words are that it listens.
        listening.block().await?;
        Ok(listening)
    }
}

impl Listening {
    /// `None`: the server has nothing more to say.
    pub async fn next(&mut self) -> Result<Option<Heard>> {
        loop {
            let Some(block) = self.block().await? else { return Ok(None) };
            let field = |name: &str| {
                let lines = block.lines().filter_map(|line| line.strip_prefix(name));
                lines.map(|value| value.strip_prefix(' ').unwrap_or(value)).collect::<Vec<_>>().join("\n")
            };
            let (event, data) = (field("event:"), field("data:"));
            let wrong = |error: serde_json::Error| self.client.transport.misunderstood(error.to_string());
            return Ok(Some(match event.as_str() {
                "message" => {
                    Heard::Message(serde_json::from_str::<TopicMessage>(&data).map_err(wrong)?.message)
                }
                "cut_off" => {
                    let CutOff { missed } = serde_json::from_str(&data).map_err(wrong)?;
                    Heard::CutOff { missed }
                }
                // A sign of life, or what a later server says.
                _ => continue,
            }));
        }
    }

    /// What is between two empty lines.
    async fn block(&mut self) -> Result<Option<String>> {
        loop {
            if let Some(at) = self.unread.windows(2).position(|pair| pair == b"\n\n") {
                let block: Vec<u8> = self.unread.drain(..at + 2).collect();
                return Ok(Some(String::from_utf8_lossy(&block).into_owned()));
            }
            if self.unread.len() > EVENT_BYTES_MAX {
                return Err(self.client.transport.misunderstood("an event without an end".to_owned()));
            }
            match tokio::time::timeout(SILENCE_MAX, self.body.frame()).await {
                Err(_) => {
                    let cause = format!("nothing was heard for {} s", SILENCE_MAX.as_secs());
                    return Err(ClientError::Unreachable { url: self.client.url().to_owned(), cause });
                }
                Ok(None) => return Ok(None),
                Ok(Some(Err(error))) => return Err(self.client.transport.unreachable(&error)),
                Ok(Some(Ok(frame))) => {
                    let data: Bytes = frame.into_data().unwrap_or_default();
                    self.unread.extend_from_slice(&data);
                }
            }
        }
    }
}

fn path(topic: &str) -> Result<String> {
    let name: QueueName = topic
        .parse()
        .map_err(|error: towline_domain::name::NameError| ClientError::invalid(error.to_string()))?;
    Ok(format!("/v1/topics/{name}"))
}
