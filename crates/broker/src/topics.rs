//! Topics: a published message goes to the current subscribers of this broker.
//!
//! Messages are not stored, and a publisher waits for no subscriber. A subscriber that falls too far behind misses the
//! oldest messages and learns how many. The messages held for all subscribers together are bounded.

use crate::broker::Broker;
use parking_lot::{Mutex, MutexGuard};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use tokio::sync::broadcast::{self, error::RecvError, error::TryRecvError};
use towline_domain::{QueueName, Refusal, limits};

/// Messages held for all subscribers; the oldest are discarded first.
const PUBLISHED_MAX: usize = 1 << 16;

#[derive(Debug, Default)]
pub(crate) struct Topics(Mutex<TopicTable>);

#[derive(Debug, Default)]
struct TopicTable {
    /// Topics that have a subscriber.
    topics: HashMap<QueueName, broadcast::Sender<Arc<Message>>>,
    /// Bytes of messages that a subscriber has yet to receive.
    held: Arc<AtomicUsize>,
    /// Oldest first.
    published: VecDeque<Weak<Message>>,
}

/// Held until all subscribers have received it, or until it is discarded.
#[derive(Debug)]
struct Message {
    text: Mutex<Option<Arc<str>>>,
    held: Arc<AtomicUsize>,
}

impl Message {
    fn lock(&self) -> MutexGuard<'_, Option<Arc<str>>> {
        self.text.lock()
    }

    fn text(&self) -> Option<Arc<str>> {
        self.lock().clone()
    }

    /// Subscribers that have not received it miss it.
    fn discard(&self) {
        if let Some(text) = self.lock().take() {
            self.held.fetch_sub(text.len(), Ordering::Relaxed);
        }
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        self.discard();
    }
}

impl TopicTable {
    /// Discards the oldest messages until this number of bytes fits.
    fn evict(&mut self, bytes: usize) {
        loop {
            let over_limit = self.held.load(Ordering::Relaxed) + bytes > limits::TOPICS_BYTES_MAX
                || self.published.len() >= PUBLISHED_MAX;
            match self.published.front() {
                Some(first) if over_limit || first.strong_count() == 0 => {
                    if let Some(message) = first.upgrade() {
                        message.discard();
                    }
                    self.published.pop_front();
                }
                _ => return,
            }
        }
    }

    fn publish(&mut self, topic: &QueueName, text: &str) -> usize {
        if !self.topics.contains_key(topic) {
            return 0;
        }
        self.evict(text.len());
        self.held.fetch_add(text.len(), Ordering::Relaxed);
        let message = Arc::new(Message { text: Mutex::new(Some(text.into())), held: Arc::clone(&self.held) });
        self.published.push_back(Arc::downgrade(&message));
        self.topics.get(topic).and_then(|sender| sender.send(message).ok()).unwrap_or_default()
    }
}

/// A subscription ends when it is dropped.
#[derive(Debug)]
pub struct Subscription {
    topics: Arc<Topics>,
    name: QueueName,
    receiver: Option<broadcast::Receiver<Arc<Message>>>,
    /// Returned after the number of missed messages.
    next: Option<Arc<str>>,
}

/// What a subscription yields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TopicEvent {
    Message(Arc<str>),
    /// The subscriber was too slow and missed this many messages.
    Missed(u64),
}

impl Topics {
    fn lock(&self) -> MutexGuard<'_, TopicTable> {
        self.0.lock()
    }

    /// Ends all subscriptions.
    pub(crate) fn dismiss(&self) {
        self.lock().topics.clear();
    }
}

impl Broker {
    /// Publishes to the current subscribers of this broker. Returns how many there are.
    pub fn publish(&self, topic: &QueueName, message: &str) -> Result<usize, Refusal> {
        if message.len() > limits::TOPIC_MESSAGE_BYTES_MAX {
            let (bytes, max) = (message.len() as u64, limits::TOPIC_MESSAGE_BYTES_MAX as u64);
            return Err(Refusal::TooLarge { what: "message", bytes, max });
        }
        Ok(self.0.topics.lock().publish(topic, message))
    }

    /// Subscribes to messages published from now on.
    pub fn subscribe(&self, topic: &QueueName) -> Result<Subscription, Refusal> {
        let mut all = self.0.topics.lock();
        let topics = &mut all.topics;
        let held: usize = topics.values().map(broadcast::Sender::receiver_count).sum();
        if held >= limits::TOPIC_SUBSCRIBERS_MAX {
            return Err(Refusal::StoreFull { what: "subscribers of topics", held: held as u64 });
        }
        let sender =
            topics.entry(topic.clone()).or_insert_with(|| broadcast::Sender::new(limits::TOPIC_BEHIND_MAX));
        let receiver = Some(sender.subscribe());
        Ok(Subscription { topics: Arc::clone(&self.0.topics), name: topic.clone(), receiver, next: None })
    }
}

impl Subscription {
    /// `None`: the subscription has ended.
    pub async fn next(&mut self) -> Option<TopicEvent> {
        if let Some(text) = self.next.take() {
            return Some(TopicEvent::Message(text));
        }
        let receiver = self.receiver.as_mut()?;
        let mut missed = match receiver.recv().await {
            Ok(message) => match message.text() {
                Some(text) => return Some(TopicEvent::Message(text)),
                None => 1,
            },
            Err(RecvError::Lagged(missed)) => missed,
            Err(RecvError::Closed) => return None,
        };
        // Count consecutive missed messages together.
        loop {
            match receiver.try_recv() {
                Ok(message) => match message.text() {
                    Some(text) => {
                        self.next = Some(text);
                        break;
                    }
                    None => missed += 1,
                },
                Err(TryRecvError::Lagged(more)) => missed += more,
                Err(TryRecvError::Empty | TryRecvError::Closed) => break,
            }
        }
        Some(TopicEvent::Missed(missed))
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut all = self.topics.lock();
        let topics = &mut all.topics;
        self.receiver = None;
        if topics.get(&self.name).is_some_and(|sender| sender.receiver_count() == 0) {
            topics.remove(&self.name);
        }
    }
}
