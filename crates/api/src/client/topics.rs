//! Calls about topics: messages to current subscribers, not stored.

use super::sse::{SseBody, SseEnd};
use super::transport::{Call, Repeat};
use super::{Client, ClientError, Result};
use crate::topic::{CutOff, Published, TopicMessage};
use http::Method;
use towline_domain::QueueName;

/// What a subscription yields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TopicEvent {
    Message(String),
    /// The last event: the subscriber was too slow and missed this many messages.
    CutOff {
        missed: u64,
    },
}

/// A subscription to a topic.
#[derive(Debug)]
pub struct Subscription {
    client: Client,
    body: SseBody,
}

impl Client {
    /// Publishes a message to the current subscribers at this server. Returns how many there are.
    pub async fn publish(&self, topic: &str, message: &str) -> Result<usize> {
        let call = Call::new(Method::POST, path(topic)?, Repeat::Unsafe);
        let body = TopicMessage { message: message.to_owned() };
        Ok(self.transport.call::<Published>(self.transport.body(call, &body)?).await?.subscribers)
    }

    /// Subscribes to a topic. Messages published after this returns are received.
    pub async fn subscribe(&self, topic: &str) -> Result<Subscription> {
        let response = self.transport.open(Call::get(path(topic)?)).await?;
        let mut body = SseBody::new(response.into_body());
        // The server's first block says that the subscription is active.
        match body.next().await {
            Ok(_) | Err(SseEnd::Closed) => Ok(Subscription { client: self.clone(), body }),
            Err(end) => Err(failed(self, end)),
        }
    }
}

impl Subscription {
    /// Waits for the next message. `None`: the server closed the subscription.
    pub async fn next(&mut self) -> Result<Option<TopicEvent>> {
        loop {
            let event = match self.body.next().await {
                Ok(event) => event,
                Err(SseEnd::Closed) => return Ok(None),
                Err(end) => return Err(failed(&self.client, end)),
            };
            let wrong = |error: serde_json::Error| self.client.transport.misunderstood(error.to_string());
            return Ok(Some(match event.event.as_str() {
                "message" => TopicEvent::Message(
                    serde_json::from_str::<TopicMessage>(&event.data).map_err(wrong)?.message,
                ),
                "cut_off" => {
                    let CutOff { missed } = serde_json::from_str(&event.data).map_err(wrong)?;
                    TopicEvent::CutOff { missed }
                }
                // A keep-alive, or an event of a later version.
                _ => continue,
            }));
        }
    }
}

fn failed(client: &Client, end: SseEnd) -> ClientError {
    match end {
        SseEnd::TooLong => client.transport.misunderstood(end.to_string()),
        SseEnd::Broken(error) => client.transport.unreachable(&error),
        SseEnd::Closed | SseEnd::Silent => {
            ClientError::Unreachable { url: client.url().to_owned(), cause: end.to_string() }
        }
    }
}

fn path(topic: &str) -> Result<String> {
    let name: QueueName = topic
        .parse()
        .map_err(|error: towline_domain::name::NameError| ClientError::invalid(error.to_string()))?;
    Ok(format!("/v1/topics/{name}"))
}
