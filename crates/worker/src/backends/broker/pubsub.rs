//! Publish and subscribe through a topic of the broker. Other processes do not get the messages; their waiters look into the
//! store at intervals.

use crate::ports::{PortError, PortFuture, PubSub};
use futures::stream::{self, BoxStream, StreamExt};
use towline_broker::{Broker, TopicEvent};
use towline_domain::QueueName;

/// One topic for all messages. Subscribers select those they wait for.
fn topic() -> Result<QueueName, PortError> {
    "work".parse().map_err(|error: towline_domain::name::NameError| PortError::Refused(error.to_string()))
}

pub(super) struct BrokerPubSub(pub(super) Broker);

impl PubSub for BrokerPubSub {
    fn publish(&self, message: String) -> PortFuture<'_, ()> {
        let published = topic().and_then(|topic| {
            self.0.publish(&topic, &message).map_err(|refusal| PortError::Refused(refusal.to_string()))
        });
        Box::pin(std::future::ready(published.map(drop)))
    }

    fn subscribe(&self) -> BoxStream<'static, String> {
        let Ok(subscription) = topic().and_then(|topic| {
            self.0.subscribe(&topic).map_err(|refusal| PortError::Refused(refusal.to_string()))
        }) else {
            return stream::empty().boxed();
        };
        stream::unfold(subscription, |mut subscription| async {
            loop {
                match subscription.next().await? {
                    TopicEvent::Message(message) => return Some((message.to_string(), subscription)),
                    // Waiters also look into the store at intervals.
                    TopicEvent::Missed(_) => {}
                }
            }
        })
        .boxed()
    }
}
