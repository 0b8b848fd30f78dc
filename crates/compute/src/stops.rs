//! Requests to stop what a node runs. The node stops it and settles the item; until then the item stays under its lease.
//!
//! **Invariant:** a request stays until its item is terminal, so a node that takes the item over stops it as well.

use crate::items::has_changed;
use crate::records::Records;
use crate::{Compute, Result};
use serde::{Deserialize, Serialize};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use towline_api::compute::StopRequest;
use towline_broker::store::{Operation, StoredItem};
use towline_domain::item::StateKind;
use towline_domain::{FieldSet, HeadFilter, ItemId, Millis, Precondition, StateName};

const STOPS: &str = "towline/stop/";
/// A request whose item was removed is deleted by then.
const KEPT: Millis = Millis::days(30);
/// How many requests one read looks up.
const LOOK_UP: usize = 256;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Stop {
    pub(crate) reason: String,
}

impl Compute {
    fn stops(&self) -> Records<'_, Stop> {
        Records::new(self.broker(), STOPS)
    }

    /// Stops an item: cancels it if no node has it, otherwise asks its node. Says whether the item was unfinished.
    pub(crate) async fn stop_item(&self, stored: &StoredItem, reason: &str) -> Result<bool> {
        let id = stored.item.head.id;
        match stored.item.head.state.kind() {
            kind if kind.is_terminal() => Ok(false),
            StateKind::Processing => self.request_stop(id, reason).await.map(|()| true),
            _ => self.cancel_waiting(id, reason).await,
        }
    }

    /// Cancels an item that no node has. If a node received it meanwhile, asks the node.
    async fn cancel_waiting(&self, id: ItemId, reason: &str) -> Result<bool> {
        for state in [StateName::Pending, StateName::Paused] {
            let head = HeadFilter { state: Some(state), ..HeadFilter::default() };
            let precondition = Arc::new(Precondition { queue: None, head, version: None });
            let then = Box::new(Operation::Cancel { id, reason: reason.to_owned() });
            match self.operate(Operation::Guarded { precondition, then }).await {
                Ok(_) => return Ok(true),
                Err(error) if has_changed(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let Some(stored) = self.item(id, FieldSet::HEADS).await? else { return Ok(false) };
        if stored.item.head.is_terminal() {
            return Ok(false);
        }
        self.request_stop(id, reason).await.map(|()| true)
    }

    /// Asks the node that has the item. The first reason stays.
    async fn request_stop(&self, id: ItemId, reason: &str) -> Result<()> {
        let name = id.to_string();
        if self.stops().get(&name).await?.is_none() {
            self.stops().set(&name, &Stop { reason: reason.to_owned() }, Some(KEPT)).await?;
            self.0.stops_changed.notify_waiters();
        }
        Ok(())
    }

    /// The requests for these items, in the same order.
    pub(crate) async fn stop_reasons(&self, items: &[ItemId]) -> Result<Vec<Option<Stop>>> {
        let mut found = Vec::with_capacity(items.len());
        for some in items.chunks(LOOK_UP) {
            let names: Vec<String> = some.iter().map(ItemId::to_string).collect();
            found.extend(self.stops().get_all(&names).await?);
        }
        Ok(found)
    }

    /// The requests for these items. Waits for one, at most this long.
    pub async fn wait_for_stops(&self, items: &[ItemId], at_most: Duration) -> Result<Vec<StopRequest>> {
        let mut over = pin!(tokio::time::sleep(at_most));
        loop {
            // Registered before the read, so that no request is missed.
            let mut changed = pin!(self.0.stops_changed.notified());
            changed.as_mut().enable();
            let found = self.stop_reasons(items).await?;
            let stop: Vec<StopRequest> = items
                .iter()
                .zip(found)
                .filter_map(|(id, stop)| Some(StopRequest { id: (*id).into(), reason: stop?.reason }))
                .collect();
            if !stop.is_empty() || at_most.is_zero() {
                return Ok(stop);
            }
            tokio::select! {
                () = changed => {}
                () = &mut over => return Ok(stop),
            }
        }
    }

    /// Carries out requests whose item lost its node, and deletes those whose item is terminal.
    pub(crate) async fn tidy_stops(&self) -> Result<()> {
        for (name, stop) in self.stops().all().await? {
            let found = match name.parse::<ItemId>() {
                Ok(id) => self.item(id, FieldSet::HEADS).await?,
                Err(_) => None,
            };
            let Some(stored) = found.filter(|stored| !stored.item.head.is_terminal()) else {
                self.stops().delete(&name).await?;
                continue;
            };
            if stored.item.head.state.kind() != StateKind::Processing {
                self.cancel_waiting(stored.item.head.id, &stop.reason).await?;
            }
        }
        Ok(())
    }
}
