//! The backends that are included: implementations of the three ports.

#[cfg(feature = "broker")]
pub mod broker;
pub mod memory;
#[cfg(feature = "server")]
pub mod server;

use futures::stream::{self, BoxStream};
use tokio::sync::broadcast::{Receiver, error::RecvError};

/// The messages that wait for a subscriber of this process. A subscriber that is further behind misses some.
const MESSAGES_MAX: usize = 4096;

fn message_stream(receiver: Receiver<String>) -> BoxStream<'static, String> {
    Box::pin(stream::unfold(receiver, |mut receiver| async {
        loop {
            match receiver.recv().await {
                Ok(message) => return Some((message, receiver)),
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return None,
            }
        }
    }))
}

/// The id of the item and the token of the lease: backends with Towline items write both into a [`crate::ports::Lease`].
#[cfg(any(feature = "broker", feature = "server"))]
fn parse_lease<I: std::str::FromStr, T: std::str::FromStr>(
    lease: &crate::ports::Lease,
) -> Result<(I, T), crate::ports::PortError> {
    // A text that is not a lease of this backend is treated as a lost lease.
    let parsed =
        lease.0.split_once('.').and_then(|(id, token)| Some((id.parse().ok()?, token.parse().ok()?)));
    parsed.ok_or(crate::ports::PortError::LeaseLost)
}
