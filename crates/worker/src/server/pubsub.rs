//! Everybody who listens at the same server. One connection of this process listens for all who wait in it.

use super::failed;
use crate::ports::{Answer, PubSub};
use futures::stream::{self, BoxStream, StreamExt};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::broadcast::{self, error::RecvError};
use towline_api::Client;
use towline_api::client::TopicEvent;

/// A listener that is further behind misses some.
const BEHIND_MAX: usize = 4096;
/// A server that cannot be listened to is tried again after this; waiters look for themselves meanwhile.
const PAUSE: Duration = Duration::from_secs(1);
/// How often it is looked at whether anybody waits.
const LOOK_EVERY: Duration = Duration::from_secs(10);

pub(super) struct TopicPubSub(Arc<Ear>);

struct Ear {
    client: Client,
    topic: &'static str,
    here: broadcast::Sender<String>,
    listens: AtomicBool,
}

impl TopicPubSub {
    pub(super) fn new(client: Client, topic: &'static str) -> TopicPubSub {
        let here = broadcast::Sender::new(BEHIND_MAX);
        TopicPubSub(Arc::new(Ear { client, topic, here, listens: AtomicBool::new(false) }))
    }
}

impl PubSub for TopicPubSub {
    fn publish(&self, message: String) -> Answer<'_, ()> {
        Box::pin(async move {
            let Ear { client, topic, .. } = &*self.0;
            client.publish(topic, &message).await.map(drop).map_err(|error| failed(&error))
        })
    }

    fn subscribe(&self) -> BoxStream<'static, String> {
        let receiver = self.0.here.subscribe();
        if !self.0.listens.swap(true, Ordering::SeqCst) {
            tokio::spawn(listen(Arc::downgrade(&self.0)));
        }
        stream::unfold(receiver, |mut receiver| async {
            loop {
                match receiver.recv().await {
                    Ok(message) => return Some((message, receiver)),
                    Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => return None,
                }
            }
        })
        .boxed()
    }
}

/// Until nobody waits here.
async fn listen(ear: Weak<Ear>) {
    loop {
        let Some((client, topic)) = needed(&ear).map(|ear| (ear.client.clone(), ear.topic)) else { return };
        if let Ok(mut listening) = client.subscribe(topic).await {
            let mut look = tokio::time::interval(LOOK_EVERY);
            loop {
                tokio::select! {
                    heard = listening.next() => match heard {
                        Ok(Some(TopicEvent::Message(message))) => {
                            if let Some(ear) = ear.upgrade() {
                                // Nobody waits: nobody is told.
                                let _ = ear.here.send(message);
                            }
                        }
                        // Cut off, or the server is gone.
                        _ => break,
                    },
                    _ = look.tick() => {
                        if needed(&ear).is_none() {
                            return;
                        }
                    }
                }
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// `None`: nobody waits here, and whoever comes next begins to listen anew.
fn needed(ear: &Weak<Ear>) -> Option<Arc<Ear>> {
    let ear = ear.upgrade()?;
    if ear.here.receiver_count() == 0 {
        ear.listens.store(false, Ordering::SeqCst);
        // Somebody who came at this moment relies on this one, unless another has begun already.
        if ear.here.receiver_count() == 0 || ear.listens.swap(true, Ordering::SeqCst) {
            return None;
        }
    }
    Some(ear)
}
