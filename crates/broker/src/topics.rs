//! Topics: what is published is told to everybody who listens at that moment, through this broker.
//!
//! Nothing is stored, and nobody is waited for: a listener that falls behind by more than is held for it is told how much
//! it missed.

use crate::broker::Broker;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::broadcast::{self, error::RecvError};
use towline_domain::{QueueName, Refusal, limits};

/// By name, while somebody listens.
#[derive(Debug, Default)]
pub(crate) struct Topics(Mutex<HashMap<QueueName, broadcast::Sender<Arc<str>>>>);

/// A listener's place. Dropped, it listens no more.
#[derive(Debug)]
pub struct Subscription {
    topics: Arc<Topics>,
    name: QueueName,
    receiver: Option<broadcast::Receiver<Arc<str>>>,
}

/// What a listener hears next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    Message(Arc<str>),
    /// It was too slow: so many messages are gone.
    Missed(u64),
}

impl Topics {
    fn lock(&self) -> MutexGuard<'_, HashMap<QueueName, broadcast::Sender<Arc<str>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Everybody is let go.
    pub(crate) fn dismiss(&self) {
        self.lock().clear();
    }
}

impl Broker {
    /// Tells everybody who listens here now; how many they are.
    pub fn publish(&self, topic: &QueueName, message: &str) -> Result<usize, Refusal> {
        if message.len() > limits::TOPIC_MESSAGE_BYTES_MAX {
            let (bytes, max) = (message.len() as u64, limits::TOPIC_MESSAGE_BYTES_MAX as u64);
            return Err(Refusal::TooLarge { what: "message", bytes, max });
        }
        let topics = self.0.topics.lock();
        // Nobody listens: nobody is told.
        Ok(topics.get(topic).and_then(|sender| sender.send(message.into()).ok()).unwrap_or_default())
    }

    /// Hears what is published from now on.
    pub fn subscribe(&self, topic: &QueueName) -> Result<Subscription, Refusal> {
        let mut topics = self.0.topics.lock();
        let held: usize = topics.values().map(broadcast::Sender::receiver_count).sum();
        if held >= limits::TOPIC_LISTENERS_MAX {
            return Err(Refusal::StoreFull { what: "listeners to topics", held: held as u64 });
        }
        let sender =
            topics.entry(topic.clone()).or_insert_with(|| broadcast::Sender::new(limits::TOPIC_BEHIND_MAX));
        let receiver = Some(sender.subscribe());
        Ok(Subscription { topics: Arc::clone(&self.0.topics), name: topic.clone(), receiver })
    }
}

impl Subscription {
    /// `None`: nothing more will be told.
    pub async fn next(&mut self) -> Option<Told> {
        match self.receiver.as_mut()?.recv().await {
            Ok(message) => Some(Told::Message(message)),
            Err(RecvError::Lagged(missed)) => Some(Told::Missed(missed)),
            Err(RecvError::Closed) => None,
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut topics = self.topics.lock();
        self.receiver = None;
        // A topic that nobody listens to is not kept.
        if topics.get(&self.name).is_some_and(|sender| sender.receiver_count() == 0) {
            topics.remove(&self.name);
        }
    }
}
