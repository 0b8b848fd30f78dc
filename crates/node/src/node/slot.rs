//! Carries out a slot of a trigger: receives from its queue, runs, commits, again and again.

use super::execution::{Ended, Job, describe};
use super::holds::{Fate, Hold};
use super::launch::{Wanted, param_variables};
use super::log::LogWriter;
use super::report::status;
use super::run::read_spec;
use super::{AFTER_FAULT, LEASE, Shared, WAIT};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use towline_api::buffer::NewBuffer;
use towline_api::compute::{SlotSpec, SlotStatus};
use towline_api::{
    Client, ClientError, Code, HandOffBody, NewItem, ReceiveAnswer, ReceiveRequest, ReceivedItem, Text,
};

/// Pause after the queue was missing.
const ABSENT_PAUSE: Duration = Duration::from_secs(5);

pub(super) async fn carry_out(node: &Arc<Shared>, hold: &Hold, item: &ReceivedItem) {
    let Some(spec) = item.payload.as_ref().and_then(read_spec::<SlotSpec>) else {
        return hold.fail("the item has no specification of a slot".to_owned(), None).await;
    };
    hold.report(status(&SlotStatus { node: Some(node.options.name.clone()) })).await;
    let client = node.client_of(hold.id, hold.lease);
    let request = ReceiveRequest {
        max: Some(1),
        wait: Some(WAIT.into()),
        visibility_timeout: Some(LEASE.into()),
        create_output_buffers: Some(true),
        fields: Some(Vec::new()),
        ..ReceiveRequest::default()
    };
    loop {
        let answer = tokio::select! {
            answer = client.receive(&spec.input_queue, &request) => answer,
            fate = hold.changed() => return end(hold, fate).await,
            () = node.stopped() => return hold.give_back(None).await,
        };
        match answer {
            Ok(ReceiveAnswer { items, .. }) if !items.is_empty() => {
                for received in items {
                    run(node, hold, &client, &spec, received).await;
                }
            }
            Ok(answer) if answer.is_completed() => {
                if let Err(error) = hold.commit(BTreeMap::new(), Vec::new(), None).await {
                    tracing::warn!("cannot settle slot {}: {error}", hold.id);
                }
                return;
            }
            Ok(_) => {}
            Err(error) if error.code() == Some(Code::QueueNotFound) => tokio::time::sleep(ABSENT_PAUSE).await,
            Err(error) => {
                tracing::warn!(
                    "trigger {:?} cannot receive from queue {:?}: {error}",
                    spec.trigger,
                    spec.input_queue
                );
                tokio::time::sleep(AFTER_FAULT).await;
            }
        }
        // A run that was under way is finished first.
        match hold.fate() {
            Fate::Held if node.is_stopping() => return hold.give_back(None).await,
            Fate::Held => {}
            fate => return end(hold, fate).await,
        }
    }
}

async fn end(hold: &Hold, fate: Fate) {
    match fate {
        Fate::Stop(reason) => hold.cancel(reason, None).await,
        Fate::Lost(why) => tracing::warn!("gave up slot {}: {why}", hold.id),
        Fate::Held => {}
    }
}

async fn run(node: &Arc<Shared>, slot: &Hold, client: &Client, spec: &SlotSpec, item: ReceivedItem) {
    let (Text::Good(id), Text::Good(lease)) = (item.id.clone(), item.lease.clone()) else { return };
    let hold = node.hold(id, lease, client, slot.id);
    let outputs = match output_buffers(node, spec, &item).await {
        Ok(outputs) => outputs,
        Err(error) => {
            return hold.retry(format!("cannot create the output buffers: {error}"), None, None).await;
        }
    };
    let launch = node.launch(Wanted {
        id: format!("item-{id}-{}", item.deliveries),
        spec: &spec.spec,
        env: &BTreeMap::new(),
        given: param_variables(&item.params),
        item: slot.id,
        lease: slot.lease,
    });
    let launch = match launch {
        Ok(launch) => launch,
        Err(error) => return hold.retry(error.to_string(), None, None).await,
    };
    let inputs: BTreeMap<String, String> = spec
        .inputs
        .iter()
        .filter_map(|(slot, parameter)| Some((parameter.clone(), item.inputs.get(slot)?.clone())))
        .collect();
    let log = LogWriter::new(node, &hold);
    let timeout = Duration::from_millis(spec.timeout_ms);
    let job = Job { launch, inputs: &inputs, outputs: &outputs, timeout, log: &log };
    let ended = node.execute(&hold, job).await;
    let incomplete_log = log.finish().await.incomplete;
    settle(node, &hold, spec, &item, outputs, ended, incomplete_log).await;
}

/// The buffer of each output parameter: that of its slot, made for this attempt, or a new one.
async fn output_buffers(
    node: &Arc<Shared>,
    spec: &SlotSpec,
    item: &ReceivedItem,
) -> Result<BTreeMap<String, String>, ClientError> {
    let mut buffers = BTreeMap::new();
    for parameter in &spec.spec.buffers.outputs {
        let slot = spec.outputs.iter().find(|(_, mapped)| *mapped == parameter).map(|(slot, _)| slot);
        let made = slot.and_then(|slot| item.outputs.get(slot)).cloned();
        let buffer = match made {
            Some(buffer) => buffer,
            None => node.client.create_buffer(&NewBuffer::default()).await?.id,
        };
        buffers.insert(parameter.clone(), buffer);
    }
    Ok(buffers)
}

async fn settle(
    node: &Arc<Shared>,
    hold: &Hold,
    spec: &SlotSpec,
    item: &ReceivedItem,
    buffers: BTreeMap<String, String>,
    ended: Ended,
    incomplete_log: Option<String>,
) {
    let of_slots = |mapping: &BTreeMap<String, String>| -> BTreeMap<String, String> {
        let buffer =
            |(slot, parameter): (&String, &String)| Some((slot.clone(), buffers.get(parameter)?.clone()));
        mapping.iter().filter_map(buffer).collect()
    };
    let error = match ended {
        Ended::Succeeded => {
            let hand_off = |output: &towline_api::compute::OutputQueue| HandOffBody {
                queue: output.queue.clone(),
                item: NewItem { inputs: of_slots(&output.mapping), ..NewItem::default() },
            };
            let then_submit = spec.output_queues.iter().map(hand_off).collect();
            match hold.commit(of_slots(&spec.outputs), then_submit, None).await {
                Ok(()) => return,
                Err(error) => format!("its outputs could not be committed: {error}"),
            }
        }
        Ended::Stopped(reason) => {
            delete_created(node, item, &buffers).await;
            return hold.cancel(reason, None).await;
        }
        Ended::Lost(why) => {
            delete_created(node, item, &buffers).await;
            return tracing::warn!("stopped the run of item {}: {why}", hold.id);
        }
        Ended::GivenBack => {
            delete_created(node, item, &buffers).await;
            return hold.give_back(None).await;
        }
        Ended::Exited(exit) => describe(exit),
        Ended::NotStarted(error) => error.to_string(),
        Ended::InputFailed(error) => error.to_string(),
        Ended::OutputFailed { name, error } => format!("output {name:?} could not be written: {error}"),
        Ended::TimedOut => {
            format!("it had not ended after its timeout of {}", towline_api::Millis(spec.timeout_ms))
        }
    };
    delete_created(node, item, &buffers).await;
    let error = match incomplete_log {
        Some(log) => format!("the run of trigger {}: {error}; {log}", spec.trigger),
        None => format!("the run of trigger {}: {error}", spec.trigger),
    };
    hold.retry(error, None, None).await;
}

/// Deletes the buffers that this attempt created. Those that the receive made are deleted by the server.
async fn delete_created(node: &Arc<Shared>, item: &ReceivedItem, buffers: &BTreeMap<String, String>) {
    for buffer in buffers.values().filter(|buffer| !item.outputs.values().any(|made| made == *buffer)) {
        if let Err(error) = node.client.delete_buffer(buffer).await {
            tracing::warn!("cannot delete buffer {buffer} of an attempt that failed: {error}");
        }
    }
}
