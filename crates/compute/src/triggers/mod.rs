//! Triggers: a run for each item of a queue. A trigger with concurrency N is N items, its slots. The node that holds a slot
//! receives from the queue, runs, and commits, again and again.

mod change;
mod mapping;
mod reconcile;
mod show;

use crate::error::ComputeError;
use crate::records::{Records, Seen, TRIES, contended};
use crate::{Compute, Result};
use serde::{Deserialize, Serialize};
use towline_api::Time;
use towline_api::compute::SlotSpec;

const TRIGGERS: &str = "towline/trigger/";
/// The name of the trigger of each queue.
const OF_QUEUE: &str = "towline/trigger-of/";

/// A trigger as it is stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct TriggerRecord {
    pub(crate) name: String,
    /// A trigger that is deleted and created again is another one.
    pub(crate) uid: String,
    /// Of every slot, but for its index.
    pub(crate) slot: SlotSpec,
    pub(crate) concurrency: u32,
    pub(crate) pool: String,
    pub(crate) created_at: Time,
    pub(crate) changed_at: Time,
}

impl Compute {
    pub(crate) fn trigger_records(&self) -> Records<'_, TriggerRecord> {
        Records::new(self.broker(), TRIGGERS)
    }

    fn triggers_by_queue(&self) -> Records<'_, String> {
        Records::new(self.broker(), OF_QUEUE)
    }

    pub(crate) async fn trigger_record(&self, name: &str) -> Result<Seen<TriggerRecord>> {
        let found = self.trigger_records().get(name).await?;
        found.ok_or_else(|| ComputeError::TriggerNotFound { name: name.to_owned() })
    }

    pub(crate) async fn trigger_of_queue(&self, queue: &str) -> Result<Option<TriggerRecord>> {
        let Some(name) = self.triggers_by_queue().get(queue).await? else { return Ok(None) };
        Ok(self.trigger_records().get(&name.value).await?.map(|seen| seen.value))
    }

    async fn change_trigger(&self, name: &str, change: impl Fn(&mut TriggerRecord)) -> Result<TriggerRecord> {
        for _ in 0..TRIES {
            let seen = self.trigger_record(name).await?;
            let mut after = seen.value.clone();
            change(&mut after);
            if after == seen.value {
                return Ok(after);
            }
            after.changed_at = self.broker().now().into();
            if self.trigger_records().replace(name, Some(seen.bytes), Some(&after)).await? {
                self.0.changed.notify_waiters();
                return Ok(after);
            }
        }
        Err(contended(&format!("trigger {name}")).into())
    }
}
