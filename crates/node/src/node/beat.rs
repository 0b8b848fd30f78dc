//! Tells the server that the node works, and learns what it should stop.

use super::{AFTER_FAULT, Shared};
use std::sync::Arc;
use std::time::Duration;
use towline_api::Text;
use towline_api::compute::{NodeBeat, StopRequest};

/// How long one call waits for something to stop. What the node took meanwhile is in the next call.
const WAIT: Duration = Duration::from_secs(3);
/// Pause after a call that only repeated what the node knows.
const PAUSE: Duration = Duration::from_secs(1);

pub(super) async fn keep(node: Arc<Shared>) {
    loop {
        once(&node, WAIT).await;
    }
}

/// Tells the server that the node works, and passes on what it should stop.
pub(super) async fn once(node: &Shared, wait: Duration) {
    let beat = NodeBeat {
        instance: node.options.instance.clone(),
        pool: node.options.pool.clone(),
        runner: node.options.runner.to_owned(),
        slots: node.options.slots,
        holds: node.holds.ids().into_iter().map(Text::from).collect(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        wait: None,
    };
    match node.client.beat(&node.options.name, &beat, wait).await {
        Ok(stops) if stops.stop.is_empty() => {}
        Ok(stops) => {
            let mut is_news = false;
            for StopRequest { id, reason } in stops.stop {
                if let Text::Good(id) = id {
                    is_news |= node.holds.stop(id, &reason);
                }
            }
            if !is_news {
                tokio::time::sleep(PAUSE).await;
            }
        }
        Err(error) => {
            tracing::warn!("cannot tell the server that the node works: {error}");
            tokio::time::sleep(AFTER_FAULT).await;
        }
    }
}
