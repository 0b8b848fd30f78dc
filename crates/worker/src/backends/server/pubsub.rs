//! Publish and subscribe through a topic of the server. One connection serves all subscribers of this process.

use super::port_error;
use crate::backends::{MESSAGES_MAX, message_stream};
use crate::ports::{PortFuture, PubSub};
use futures::stream::BoxStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::broadcast;
use towline_api::Client;
use towline_api::client::TopicEvent;

/// The pause before the connection is opened again. Waiters look into the store meanwhile.
const RECONNECT_PAUSE: Duration = Duration::from_secs(1);
/// How often the connection checks whether it still has subscribers.
const CHECK_EVERY: Duration = Duration::from_secs(10);

pub(super) struct TopicPubSub(Arc<Subscription>);

struct Subscription {
    client: Client,
    topic: &'static str,
    subscribers: broadcast::Sender<String>,
    /// A task reads the topic.
    is_open: AtomicBool,
}

impl TopicPubSub {
    pub(super) fn new(client: Client, topic: &'static str) -> TopicPubSub {
        let subscribers = broadcast::Sender::new(MESSAGES_MAX);
        TopicPubSub(Arc::new(Subscription { client, topic, subscribers, is_open: AtomicBool::new(false) }))
    }
}

impl PubSub for TopicPubSub {
    fn publish(&self, message: String) -> PortFuture<'_, ()> {
        Box::pin(async move {
            let Subscription { client, topic, .. } = &*self.0;
            client.publish(topic, &message).await.map(drop).map_err(|error| port_error(&error))
        })
    }

    fn subscribe(&self) -> BoxStream<'static, String> {
        let receiver = self.0.subscribers.subscribe();
        if !self.0.is_open.swap(true, Ordering::SeqCst) {
            tokio::spawn(read_topic(Arc::downgrade(&self.0)));
        }
        message_stream(receiver)
    }
}

/// Reads the topic until there is no subscriber left.
async fn read_topic(subscription: Weak<Subscription>) {
    while let Some((client, topic)) =
        needed(&subscription).map(|needed| (needed.client.clone(), needed.topic))
    {
        if let Ok(mut messages) = client.subscribe(topic).await {
            let mut check = tokio::time::interval(CHECK_EVERY);
            loop {
                tokio::select! {
                    message = messages.next() => match message {
                        Ok(Some(TopicEvent::Message(message))) => {
                            if let Some(subscription) = subscription.upgrade() {
                                // An error only means that there is no subscriber.
                                let _ = subscription.subscribers.send(message);
                            }
                        }
                        // The connection is lost.
                        _ => break,
                    },
                    _ = check.tick() => {
                        if needed(&subscription).is_none() {
                            return;
                        }
                    }
                }
            }
        }
        tokio::time::sleep(RECONNECT_PAUSE).await;
    }
}

/// Returns `None` if there is no subscriber. The task must then end; the next subscriber starts a new one.
fn needed(subscription: &Weak<Subscription>) -> Option<Arc<Subscription>> {
    let subscription = subscription.upgrade()?;
    let has_none = || subscription.subscribers.receiver_count() == 0;
    if has_none() {
        subscription.is_open.store(false, Ordering::SeqCst);
        // A subscriber that came just before the store relies on this task, unless another one has been started since.
        if has_none() || subscription.is_open.swap(true, Ordering::SeqCst) {
            return None;
        }
    }
    Some(subscription)
}
