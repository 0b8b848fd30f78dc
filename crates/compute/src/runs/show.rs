//! A run as clients see it: from its item, what its node reported, and whether it is being stopped.

use crate::error::ComputeError;
use crate::items::{Kind, WHOLE, spec, status};
use crate::stops::Stop;
use crate::triggers::TriggerRecord;
use crate::{Compute, Result};
use std::time::Duration;
use towline_api::compute::{
    POOL_DEFAULT, RunShown, RunSpec, RunState, RunStatus, SYSTEM_QUEUES, log_buffer, tag,
};
use towline_api::{Millis, Span};
use towline_broker::store::StoredItem;
use towline_domain::item::StateKind;
use towline_domain::{FailureKind, FieldSet, ItemId, State};

impl Compute {
    pub async fn run(&self, id: ItemId) -> Result<RunShown> {
        let not_found = || ComputeError::RunNotFound { id: id.to_string() };
        let stored = self.item(id, WHOLE).await?.ok_or_else(not_found)?;
        let stop = self.stop_reasons(&[id]).await?.pop().flatten();
        if let Some(Kind::Run) = Kind::of(&stored) {
            let mut shown = describe(&stored, stop)?;
            if shown.state == RunState::Pending && self.nodes_of(&shown.pool).await? == 0 {
                shown.reason = Some(format!("no node serves pool {:?} now", shown.pool));
            }
            return Ok(shown);
        }
        let trigger = self.trigger_of_queue(stored.queue.as_str()).await?.ok_or_else(not_found)?;
        let mut shown = describe_triggered(&stored, &trigger, stop);
        let log = log_buffer(id, stored.item.head.deliveries);
        if self.0.buffers.meta(&log).await.is_ok() {
            shown.log = Some(log);
        }
        Ok(shown)
    }

    /// Waits until a run has ended, at most this long, and shows it.
    pub async fn wait_for_run(&self, id: ItemId, at_most: Duration) -> Result<RunShown> {
        self.broker().wait(id, at_most).await?;
        self.run(id).await
    }

    /// The item of a run, with its latest report.
    pub(crate) async fn run_item(&self, id: ItemId) -> Result<StoredItem> {
        let not_found = || ComputeError::RunNotFound { id: id.to_string() };
        let stored = self.item(id, FieldSet::NONE).await?.ok_or_else(not_found)?;
        let is_run = Kind::of(&stored) == Some(Kind::Run);
        match is_run || self.trigger_of_queue(stored.queue.as_str()).await?.is_some() {
            true => Ok(stored),
            false => Err(not_found()),
        }
    }
}

pub(super) fn state(stored: &StoredItem, stopping: bool) -> RunState {
    match &stored.item.head.state {
        State::Completed { .. } => RunState::Succeeded,
        State::Failed { kind: FailureKind::Cancelled, .. } => RunState::Canceled,
        State::Failed { .. } => RunState::Failed,
        _ if stopping => RunState::Canceling,
        State::Processing(_) => RunState::Running,
        State::Pending | State::Paused => RunState::Pending,
    }
}

/// Why the item failed, if its node did not say so.
fn failure(stored: &StoredItem) -> Option<String> {
    let has_failed = stored.item.head.state.kind() == StateKind::Failed;
    stored.item.errors.iter().last().filter(|_| has_failed).map(|error| error.message.clone())
}

pub(super) fn describe(stored: &StoredItem, stop: Option<Stop>) -> Result<RunShown> {
    let (head, body) = (&stored.item.head, &stored.item.body);
    let (spec, status): (RunSpec, RunStatus) = (spec(stored)?, status(stored));
    let state = state(stored, stop.is_some());
    let mut buffers = spec.inputs;
    buffers.extend(spec.outputs);
    buffers.extend(status.outputs);
    let mut tags = body.tags.clone();
    tags.retain(|name, _| !name.starts_with(tag::PREFIX));
    let log = status.logged.then(|| log_buffer(head.id, head.deliveries));
    Ok(RunShown {
        id: head.id.into(),
        state,
        codespec: spec.codespec,
        pool: stored.queue.as_str().rsplit(':').next().unwrap_or(POOL_DEFAULT).to_owned(),
        buffers,
        params: spec.params,
        tags,
        attempt: head.attempt(),
        timeout: Millis(spec.timeout_ms).into(),
        created_at: head.created_at.into(),
        started_at: status.started_at,
        finished_at: head.finished_at().map(Into::into),
        node: status.node,
        exit_code: status.exit_code,
        signal: status.signal,
        reason: status.reason.or_else(|| failure(stored)).or_else(|| stop.map(|stop| stop.reason)),
        log,
        trigger: None,
    })
}

/// The run of an item of a trigger's queue.
pub(super) fn describe_triggered(
    stored: &StoredItem,
    trigger: &TriggerRecord,
    stop: Option<Stop>,
) -> RunShown {
    let (head, body) = (&stored.item.head, &stored.item.body);
    let made = head.lease().and_then(|lease| lease.buffers.as_deref());
    let outputs = if head.is_terminal() { Some(&stored.item.outcome.outputs) } else { made };
    let inputs = trigger.slot.inputs.iter().filter_map(|(slot, parameter)| {
        Some((parameter.clone(), body.inputs.get(slot.as_str())?.to_string()))
    });
    let outputs =
        trigger.slot.outputs.iter().filter_map(|(slot, parameter)| {
            Some((parameter.clone(), outputs?.get(slot.as_str())?.to_string()))
        });
    let started = head.lease().map(|lease| lease.token.issued_at().into());
    RunShown {
        id: head.id.into(),
        state: state(stored, stop.is_some()),
        codespec: trigger.slot.codespec.clone(),
        pool: trigger.pool.clone(),
        buffers: inputs.chain(outputs).collect(),
        params: body.params.clone(),
        tags: body.tags.clone(),
        attempt: head.attempt(),
        timeout: Span::from(Millis(trigger.slot.timeout_ms)),
        created_at: head.created_at.into(),
        started_at: started,
        finished_at: head.finished_at().map(Into::into),
        node: None,
        exit_code: None,
        signal: None,
        reason: stored
            .item
            .errors
            .iter()
            .last()
            .map(|error| error.message.clone())
            .or_else(|| stop.map(|stop| stop.reason)),
        log: None,
        trigger: Some(trigger.name.clone()),
    }
}

/// Whether the queue is one of the server's own.
pub(crate) fn is_system_queue(queue: &str) -> bool {
    queue.starts_with(SYSTEM_QUEUES)
}
