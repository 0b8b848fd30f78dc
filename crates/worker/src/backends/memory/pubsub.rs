//! Publish and subscribe within this process.

use crate::backends::{MESSAGES_MAX, message_stream};
use crate::ports::{PortFuture, PubSub};
use futures::stream::BoxStream;
use tokio::sync::broadcast;

#[derive(Debug)]
pub struct MemoryPubSub(broadcast::Sender<String>);

impl Default for MemoryPubSub {
    fn default() -> MemoryPubSub {
        MemoryPubSub(broadcast::Sender::new(MESSAGES_MAX))
    }
}

impl PubSub for MemoryPubSub {
    fn publish(&self, message: String) -> PortFuture<'_, ()> {
        // An error only means that there is no subscriber.
        let _ = self.0.send(message);
        Box::pin(std::future::ready(Ok(())))
    }

    fn subscribe(&self) -> BoxStream<'static, String> {
        message_stream(self.0.subscribe())
    }
}
