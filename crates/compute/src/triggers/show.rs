//! Triggers as clients see them.

use super::TriggerRecord;
use crate::{Compute, Result};
use towline_api::Millis;
use towline_api::compute::TriggerShown;
use towline_domain::item::StateKind;

impl Compute {
    pub async fn trigger(&self, name: &str) -> Result<TriggerShown> {
        let record = self.trigger_record(name).await?.value;
        let mut shown = self.describe_trigger(&record).await?;
        let queue = &record.slot.input_queue;
        if self.count_processing(queue).await?.is_none() {
            shown.notes.push(format!("queue {queue:?} does not exist"));
        }
        for output in &record.slot.output_queues {
            if self.count_processing(&output.queue).await?.is_none() {
                shown.notes.push(format!("output queue {:?} does not exist", output.queue));
            }
        }
        shown.notes.extend(self.other_consumers(queue, None, Some(name)).await?);
        if record.concurrency > 0 && self.nodes_of(&record.pool).await? == 0 {
            shown.notes.push(format!("no node serves pool {:?} now, so no run starts", record.pool));
        }
        Ok(shown)
    }

    /// In order of name.
    pub async fn triggers(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> Result<(Vec<TriggerShown>, Option<String>)> {
        let (found, next) = self.trigger_records().page(after, limit).await?;
        let mut triggers = Vec::with_capacity(found.len());
        for (_, record) in found {
            triggers.push(self.describe_trigger(&record).await?);
        }
        Ok((triggers, next))
    }

    async fn count_processing(&self, queue: &str) -> Result<Option<u64>> {
        let Ok(name) = queue.parse() else { return Ok(None) };
        Ok(self.broker().store().queue(name).await?.map(|view| view.counts.processing))
    }

    async fn describe_trigger(&self, record: &TriggerRecord) -> Result<TriggerShown> {
        let slots = self.live_slots(&record.name).await?;
        let held =
            slots.iter().filter(|stored| stored.item.head.state.kind() == StateKind::Processing).count();
        Ok(TriggerShown {
            name: record.name.clone(),
            codespec: record.slot.codespec.clone(),
            input_queue: record.slot.input_queue.clone(),
            concurrency: record.concurrency,
            slots_held: u32::try_from(held).unwrap_or(u32::MAX),
            running: self.count_processing(&record.slot.input_queue).await?.unwrap_or(0),
            input_mapping: record.slot.inputs.clone(),
            output_mapping: record.slot.outputs.clone(),
            output_queues: record.slot.output_queues.clone(),
            timeout: Millis(record.slot.timeout_ms).into(),
            pool: record.pool.clone(),
            created_at: record.created_at.clone(),
            changed_at: record.changed_at.clone(),
            notes: Vec::new(),
        })
    }
}
