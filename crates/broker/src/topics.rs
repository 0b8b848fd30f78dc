//! Topics: what is published is told to everybody who listens at that moment, through this broker.
//!
//! Nothing is stored, and nobody is waited for: a listener that falls behind by more than is held for it is told how much
//! it missed. What is held for all of them together is bounded, too.

use crate::broker::Broker;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tokio::sync::broadcast::{self, error::RecvError, error::TryRecvError};
use towline_domain::{QueueName, Refusal, limits};

/// Messages of which it is known when they were published; of those before, nothing is held.
const PUBLISHED_MAX: usize = 1 << 16;

#[derive(Debug, Default)]
pub(crate) struct Topics(Mutex<All>);

#[derive(Debug, Default)]
struct All {
    /// By name, while somebody listens.
    topics: HashMap<QueueName, broadcast::Sender<Arc<Message>>>,
    /// Bytes of messages that somebody has yet to hear.
    held: Arc<AtomicUsize>,
    /// In the order in which they were published.
    published: VecDeque<Weak<Message>>,
}

/// Held until all who listened have heard it, or there is no room for it any more.
#[derive(Debug)]
struct Message {
    text: Mutex<Option<Arc<str>>>,
    held: Arc<AtomicUsize>,
}

impl Message {
    fn lock(&self) -> MutexGuard<'_, Option<Arc<str>>> {
        self.text.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn text(&self) -> Option<Arc<str>> {
        self.lock().clone()
    }

    /// Whoever has not heard it will not.
    fn forget(&self) {
        if let Some(text) = self.lock().take() {
            self.held.fetch_sub(text.len(), Ordering::Relaxed);
        }
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        self.forget();
    }
}

impl All {
    /// Makes room for so many bytes.
    fn make_room(&mut self, bytes: usize) {
        loop {
            let crowded = self.held.load(Ordering::Relaxed) + bytes > limits::TOPICS_BYTES_MAX
                || self.published.len() >= PUBLISHED_MAX;
            match self.published.front() {
                Some(first) if crowded || first.strong_count() == 0 => {
                    if let Some(message) = first.upgrade() {
                        message.forget();
                    }
                    self.published.pop_front();
                }
                _ => return,
            }
        }
    }

    fn publish(&mut self, topic: &QueueName, text: &str) -> usize {
        // Nobody listens: nobody is told.
        if !self.topics.contains_key(topic) {
            return 0;
        }
        self.make_room(text.len());
        self.held.fetch_add(text.len(), Ordering::Relaxed);
        let message = Arc::new(Message { text: Mutex::new(Some(text.into())), held: Arc::clone(&self.held) });
        self.published.push_back(Arc::downgrade(&message));
        self.topics.get(topic).and_then(|sender| sender.send(message).ok()).unwrap_or_default()
    }
}

/// A listener's place. Dropped, it listens no more.
#[derive(Debug)]
pub struct Subscription {
    topics: Arc<Topics>,
    name: QueueName,
    receiver: Option<broadcast::Receiver<Arc<Message>>>,
    /// Comes next, after it was said that others were missed.
    next: Option<Arc<str>>,
}

/// What a listener hears next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    Message(Arc<str>),
    /// It was too slow: so many messages are gone.
    Missed(u64),
}

impl Topics {
    fn lock(&self) -> MutexGuard<'_, All> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Everybody is let go.
    pub(crate) fn dismiss(&self) {
        self.lock().topics.clear();
    }
}

impl Broker {
    /// Tells everybody who listens here now; how many they are.
    pub fn publish(&self, topic: &QueueName, message: &str) -> Result<usize, Refusal> {
        if message.len() > limits::TOPIC_MESSAGE_BYTES_MAX {
            let (bytes, max) = (message.len() as u64, limits::TOPIC_MESSAGE_BYTES_MAX as u64);
            return Err(Refusal::TooLarge { what: "message", bytes, max });
        }
        Ok(self.0.topics.lock().publish(topic, message))
    }

    /// Hears what is published from now on.
    pub fn subscribe(&self, topic: &QueueName) -> Result<Subscription, Refusal> {
        let mut all = self.0.topics.lock();
        let topics = &mut all.topics;
        let held: usize = topics.values().map(broadcast::Sender::receiver_count).sum();
        if held >= limits::TOPIC_LISTENERS_MAX {
            return Err(Refusal::StoreFull { what: "listeners to topics", held: held as u64 });
        }
        let sender =
            topics.entry(topic.clone()).or_insert_with(|| broadcast::Sender::new(limits::TOPIC_BEHIND_MAX));
        let receiver = Some(sender.subscribe());
        Ok(Subscription { topics: Arc::clone(&self.0.topics), name: topic.clone(), receiver, next: None })
    }
}

impl Subscription {
    /// `None`: nothing more will be told.
    pub async fn next(&mut self) -> Option<Told> {
        if let Some(text) = self.next.take() {
            return Some(Told::Message(text));
        }
        let receiver = self.receiver.as_mut()?;
        let mut missed = match receiver.recv().await {
            Ok(message) => match message.text() {
                Some(text) => return Some(Told::Message(text)),
                None => 1,
            },
            Err(RecvError::Lagged(missed)) => missed,
            Err(RecvError::Closed) => return None,
        };
        // All that went by, at once.
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
        Some(Told::Missed(missed))
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut all = self.topics.lock();
        let topics = &mut all.topics;
        self.receiver = None;
        // A topic that nobody listens to is not kept.
        if topics.get(&self.name).is_some_and(|sender| sender.receiver_count() == 0) {
            topics.remove(&self.name);
        }
    }
}
