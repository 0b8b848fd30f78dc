//! Everybody who listens, in this process.

use crate::ports::{Answer, PubSub};
use futures::stream::{self, BoxStream};
use tokio::sync::broadcast::{self, error::RecvError};

/// A listener that is further behind misses some.
const BEHIND_MAX: usize = 4096;

#[derive(Debug)]
pub struct MemoryPubSub(broadcast::Sender<String>);

impl Default for MemoryPubSub {
    fn default() -> MemoryPubSub {
        MemoryPubSub(broadcast::Sender::new(BEHIND_MAX))
    }
}

impl PubSub for MemoryPubSub {
    fn publish(&self, message: String) -> Answer<'_, ()> {
        // Nobody listens: nobody is told.
        let _ = self.0.send(message);
        Box::pin(std::future::ready(Ok(())))
    }

    fn subscribe(&self) -> BoxStream<'static, String> {
        Box::pin(stream::unfold(self.0.subscribe(), |mut receiver| async {
            loop {
                match receiver.recv().await {
                    Ok(message) => return Some((message, receiver)),
                    Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => return None,
                }
            }
        }))
    }
}
