//! Heartbeats for all leases of the node.

use super::Shared;
use super::holds::Due;
use crate::clock;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use towline_api::{Action, Code, ItemId, VerbName};

/// A third of a lease.
const EVERY: Duration = Duration::from_secs(10);
/// How often the node checks whether a lease may lapse.
const CHECK: Duration = Duration::from_secs(1);
/// What runs is killed this long before its lease may lapse.
const MARGIN: Duration = Duration::from_secs(3);

pub(super) async fn keep(node: Arc<Shared>) {
    let mut heartbeat = tokio::time::interval(EVERY);
    let mut check = tokio::time::interval(CHECK);
    loop {
        tokio::select! {
            _ = heartbeat.tick() => {
                // In tasks of their own: a server that does not answer must not delay the checks.
                for batch in batches(node.holds.all()) {
                    tokio::spawn(extend(Arc::clone(&node), batch));
                }
            }
            _ = check.tick() => node.holds.give_up(clock::now() + MARGIN),
        }
    }
}

/// Leases of one client go in one call.
fn batches(due: Vec<Due>) -> Vec<Vec<Due>> {
    let mut batches: HashMap<Option<ItemId>, Vec<Due>> = HashMap::new();
    for due in due {
        batches.entry(due.owner).or_default().push(due);
    }
    batches.into_values().collect()
}

async fn extend(node: Arc<Shared>, batch: Vec<Due>) {
    let Some(client) = batch.first().map(|due| due.client.clone()) else { return };
    let action = |due: &Due| Action {
        visibility_timeout: Some(due.lasts.into()),
        ..Action::new(VerbName::Heartbeat, due.id, due.lease)
    };
    let asked = clock::now();
    let settled = client.retry_for(Duration::ZERO).settle(batch.iter().map(action).collect()).await;
    let results = match settled {
        Ok(results) => results,
        Err(error) if error.code() == Some(Code::Unauthenticated) => {
            // The token is derived from a lease that has ended.
            batch.iter().for_each(|due| node.holds.lost(due.id, &error.to_string()));
            return;
        }
        Err(error) => {
            tracing::warn!("cannot send heartbeats: {error}");
            return;
        }
    };
    for (due, settled) in batch.iter().zip(results) {
        match settled.error {
            None => node.holds.extended(due.id, asked),
            Some(error) => {
                let is_lost = |code: Code| error.code == code.name();
                if [Code::LeaseLost, Code::ItemNotFound, Code::AlreadySettled, Code::QueueNotFound]
                    .into_iter()
                    .any(is_lost)
                {
                    node.holds.lost(due.id, &error.message);
                }
            }
        }
    }
}
