//! Makes the slots of a trigger as many as its concurrency.

use super::TriggerRecord;
use crate::items::{Kind, filter, spec, submission};
use crate::{Compute, Result};
use std::collections::BTreeSet;
use towline_api::compute::{SlotSpec, tag};
use towline_broker::store::StoredItem;
use towline_domain::{Millis, QueueState, StateName, limits};

const ENDED_TTL: Millis = Millis::hours(1);

impl Compute {
    pub(crate) async fn reconcile_trigger(&self, trigger: &TriggerRecord) -> Result<()> {
        let mut held = BTreeSet::new();
        for stored in self.live_slots(&trigger.name).await? {
            let slot: SlotSpec = spec(&stored)?;
            if slot.index >= trigger.concurrency {
                self.stop_item(&stored, "the trigger was scaled down").await?;
            }
            held.insert(slot.index);
        }
        if self.is_completed(&trigger.slot.input_queue).await? {
            // No item will ever come.
            return Ok(());
        }
        for index in (0..trigger.concurrency).filter(|index| !held.contains(index)) {
            let slot = SlotSpec { index, ..trigger.slot.clone() };
            let tags = [
                (tag::TRIGGER.to_owned(), trigger.name.clone()),
                (tag::CODESPEC.to_owned(), trigger.slot.codespec.clone()),
            ];
            let mut item = submission(Kind::Slot, tags.into(), &slot)?;
            item.body.idempotency_key = Some(format!("{}/{index}", trigger.uid));
            item.overrides.max_retries = Some(limits::RETRIES_MAX);
            item.overrides.completed_ttl = Some(ENDED_TTL);
            item.overrides.failed_ttl = Some(ENDED_TTL);
            let queue = self.pool(&trigger.pool).await?;
            self.submit(queue, item).await?;
        }
        Ok(())
    }

    async fn is_completed(&self, queue: &str) -> Result<bool> {
        let Ok(name) = queue.parse() else { return Ok(false) };
        let found = self.broker().store().queue(name).await?;
        Ok(found.is_some_and(|view| matches!(view.queue.state, QueueState::Completed { .. })))
    }

    pub(crate) async fn live_slots(&self, trigger: &str) -> Result<Vec<StoredItem>> {
        let tags = [(tag::KIND, Kind::Slot.name()), (tag::TRIGGER, trigger)];
        self.all_items(filter(None, Some(StateName::Unfinished), &tags)).await
    }

    pub(crate) async fn stop_slots_of(&self, trigger: &str, reason: &str) -> Result<()> {
        for stored in self.live_slots(trigger).await? {
            self.stop_item(&stored, reason).await?;
        }
        Ok(())
    }
}
