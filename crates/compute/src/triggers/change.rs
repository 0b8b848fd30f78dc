//! Creates, scales and deletes triggers.

use super::TriggerRecord;
use super::mapping::{check_parameters, check_required, map_slots, slots_of};
use crate::error::ComputeError;
use crate::pools::{check_name, choose_pool};
use crate::{Compute, Result};
use std::collections::{BTreeMap, BTreeSet};
use towline_api::compute::{
    CodespecBody, CodespecKind, NewTrigger, OutputQueue, RUN_TIMEOUT_DEFAULT, SlotSpec, TriggerShown,
    check_command,
};
use towline_broker::entropy;
use towline_domain::name::NameError;
use towline_domain::{Millis, Queue, QueueName, Refusal};

const CONCURRENCY_MAX: u32 = 1000;
const OUTPUT_QUEUES_MAX: usize = 100;
const TIMEOUT_MAX: Millis = Millis::days(30);

impl Compute {
    pub async fn create_trigger(&self, name: &str, new: NewTrigger) -> Result<TriggerShown> {
        check_name("trigger", name)?;
        let concurrency = check_concurrency(new.concurrency.unwrap_or(1))?;
        let timeout =
            new.timeout.clone().map_or(Ok(RUN_TIMEOUT_DEFAULT), |span| span.into_domain("timeout"))?;
        if !(Millis::seconds(1)..=TIMEOUT_MAX).contains(&timeout) {
            let message = format!("{timeout} is out of range; use 1s to {TIMEOUT_MAX}");
            return Err(ComputeError::invalid("timeout", message));
        }
        let input = self.queue_of_trigger("input_queue", &new.input_queue).await?;
        let resolved = self.resolve(new.codespec.clone(), name, CodespecKind::Job).await?;
        check_command(&resolved.body, &BTreeMap::new(), &BTreeSet::new(), true)?;
        let (inputs, outputs) = map_input_queue(&input, &resolved.body, &new)?;
        let mut output_queues = Vec::with_capacity(new.output_queues.len());
        if new.output_queues.len() > OUTPUT_QUEUES_MAX {
            return Err(ComputeError::invalid("output_queues", format!("use at most {OUTPUT_QUEUES_MAX}")));
        }
        for output in &new.output_queues {
            output_queues.push(self.map_output_queue(output, &resolved.body).await?);
        }
        let pool = choose_pool([new.pool, resolved.body.pool.clone()])?;
        self.pool(&pool).await?;
        let now = self.broker().now();
        let slot = SlotSpec {
            trigger: name.to_owned(),
            index: 0,
            codespec: resolved.reference,
            spec: resolved.body,
            input_queue: new.input_queue,
            inputs,
            outputs,
            output_queues,
            timeout_ms: timeout.0,
        };
        let (uid, created_at) = (entropy::uuid(now).to_string(), now.into());
        let changed_at = now.into();
        let record =
            TriggerRecord { name: name.to_owned(), uid, slot, concurrency, pool, created_at, changed_at };
        self.store_trigger(record).await
    }

    async fn store_trigger(&self, record: TriggerRecord) -> Result<TriggerShown> {
        let (name, queue) = (record.name.clone(), record.slot.input_queue.clone());
        if let Some(other) = self.trigger_records().get(&name).await?.map(|seen| seen.value) {
            // A repeated call changes nothing.
            let (uid, created_at, changed_at) =
                (other.uid.clone(), other.created_at.clone(), other.changed_at.clone());
            return match (TriggerRecord { uid, created_at, changed_at, ..record }) == other {
                true => self.trigger(&name).await,
                false => Err(ComputeError::TriggerExists { name }),
            };
        }
        // The queue first: no two triggers have it.
        while !self.triggers_by_queue().replace(&queue, None, Some(&name)).await? {
            let Some(holder) = self.triggers_by_queue().get(&queue).await? else { continue };
            if self
                .trigger_records()
                .get(&holder.value)
                .await?
                .is_some_and(|other| other.value.slot.input_queue == queue)
            {
                return Err(ComputeError::QueueHasTrigger { queue, trigger: holder.value });
            }
            // A server stopped while it created or deleted that trigger.
            self.triggers_by_queue().replace(&queue, Some(holder.bytes), None).await?;
        }
        if !self.trigger_records().replace(&name, None, Some(&record)).await? {
            self.triggers_by_queue().delete(&queue).await?;
            return Err(ComputeError::TriggerExists { name });
        }
        self.reconcile_trigger(&record).await?;
        self.trigger(&name).await
    }

    async fn queue_of_trigger(&self, what: &'static str, name: &str) -> Result<Queue> {
        let parsed: QueueName =
            name.parse().map_err(|error: NameError| ComputeError::invalid(what, error.to_string()))?;
        if crate::runs::is_system_queue(name) {
            return Err(ComputeError::invalid(
                what,
                format!("{name:?} is a queue of the server; use another one"),
            ));
        }
        let found = self.broker().store().queue(parsed).await?;
        Ok(found.ok_or_else(|| Refusal::QueueNotFound { name: name.to_owned() })?.queue)
    }

    async fn map_output_queue(&self, output: &OutputQueue, body: &CodespecBody) -> Result<OutputQueue> {
        let queue = self.queue_of_trigger("output_queues", &output.queue).await?;
        let (inputs, _) = slots_of(&queue.schema);
        let what = format!("output queue {}", output.queue);
        let mapping = map_slots(&what, inputs, &body.buffers.outputs, &output.mapping, true)?;
        check_required("input", &output.queue, inputs, &mapping)?;
        if let Some((param, _)) = queue.schema.input_params.iter().find(|(_, required)| **required) {
            return Err(ComputeError::Mismatch(format!(
                "queue {:?} requires the parameter {:?}, and a trigger gives none",
                output.queue,
                param.as_str()
            )));
        }
        Ok(OutputQueue { queue: output.queue.clone(), mapping })
    }

    /// Changes how many runs there are at once. With 0, no new run starts.
    pub async fn scale_trigger(&self, name: &str, concurrency: u32) -> Result<TriggerShown> {
        let concurrency = check_concurrency(concurrency)?;
        let record = self.change_trigger(name, |trigger| trigger.concurrency = concurrency).await?;
        self.reconcile_trigger(&record).await?;
        self.trigger(name).await
    }

    /// Deletes a trigger. Runs under way are finished, and items that wait stay in the queue.
    pub async fn delete_trigger(&self, name: &str) -> Result<()> {
        let seen = self.trigger_record(name).await?;
        if !self.trigger_records().replace(name, Some(seen.bytes), None).await? {
            return Box::pin(self.delete_trigger(name)).await;
        }
        self.triggers_by_queue().delete(&seen.value.slot.input_queue).await?;
        self.stop_slots_of(name, "the trigger was deleted").await
    }
}

fn check_concurrency(concurrency: u32) -> Result<u32> {
    if concurrency > CONCURRENCY_MAX {
        let message = format!("{concurrency} is out of range; use 0 to {CONCURRENCY_MAX}");
        return Err(ComputeError::invalid("concurrency", message));
    }
    Ok(concurrency)
}

type Mapping = BTreeMap<String, String>;

fn map_input_queue(queue: &Queue, body: &CodespecBody, new: &NewTrigger) -> Result<(Mapping, Mapping)> {
    let name = &new.input_queue;
    let (inputs, outputs) = slots_of(&queue.schema);
    let input = map_slots("input mapping", inputs, &body.buffers.inputs, &new.input_mapping, false)?;
    check_required("input", name, inputs, &input)?;
    check_parameters(name, &body.buffers.inputs, &input)?;
    let output = map_slots("output mapping", outputs, &body.buffers.outputs, &new.output_mapping, true)?;
    check_required("output", name, outputs, &output)?;
    if let Some((param, _)) = queue.schema.output_params.iter().find(|(_, required)| **required) {
        return Err(ComputeError::Mismatch(format!(
            "queue {name:?} requires the output parameter {:?}, and a trigger gives none; use a service",
            param.as_str()
        )));
    }
    Ok((input, output))
}
