//! Carries out a run: a job that runs once.

use super::copy::is_passing;
use super::execution::{Ended, Job, describe};
use super::holds::{Fate, Hold};
use super::launch::{Wanted, param_variables};
use super::log::LogWriter;
use super::outputs::Outputs;
use super::report::status;
use super::{AFTER_FAULT, Shared};
use crate::clock;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use towline_api::ReceivedItem;
use towline_api::compute::{RunSpec, RunStatus};

/// Pause before another attempt after a fault of this node.
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// A run that lasts this long is reported as started.
const REPORT_AFTER: Duration = Duration::from_millis(50);

pub(super) async fn carry_out(node: &Arc<Shared>, hold: &Hold, item: &ReceivedItem) {
    let Some(spec) = item.payload.as_ref().and_then(read_spec) else {
        return hold.fail("the item has no specification of a run".to_owned(), None).await;
    };
    let mut report = RunStatus {
        node: Some(node.options.name.clone()),
        started_at: Some(clock::wall()),
        ..RunStatus::default()
    };
    if let Fate::Stop(reason) = hold.fate() {
        return hold.cancel(reason.clone(), status(&RunStatus { reason: Some(reason), ..report })).await;
    }
    let outputs = match prepare_outputs(node, hold, &spec, item.attempt, &mut report).await {
        Some(outputs) => outputs,
        None => return,
    };
    report.outputs.clone_from(&outputs.replaced);
    let launch = node.launch(Wanted {
        id: format!("run-{}-{}", hold.id, item.deliveries),
        spec: &spec.spec,
        env: &spec.env,
        given: param_variables(&spec.params),
        item: hold.id,
        lease: hold.lease,
    });
    let launch = match launch {
        Ok(launch) => launch,
        Err(error) => return fail(hold, report, error.to_string()).await,
    };
    let log = LogWriter::new(node, hold);
    let job = Job {
        launch,
        inputs: &spec.inputs,
        outputs: &outputs.all,
        timeout: Duration::from_millis(spec.timeout_ms),
        log: &log,
    };
    let ended = execute(node, hold, job, &mut report).await;
    let log = log.finish().await;
    report.logged = log.logged;
    settle(hold, report, ended, outputs.all, spec.timeout_ms, log.incomplete).await;
}

/// Runs a job, and reports that it runs and that it has a log.
async fn execute(node: &Arc<Shared>, hold: &Hold, job: Job<'_>, report: &mut RunStatus) -> Ended {
    let log = job.log;
    let mut ended = std::pin::pin!(node.execute(hold, job));
    // A run that ends at once needs no report before its end.
    let started = async {
        tokio::time::sleep(REPORT_AFTER).await;
        hold.report(status(report)).await;
    };
    tokio::select! {
        ended = &mut ended => return ended,
        () = started => {}
    }
    tokio::select! {
        ended = &mut ended => ended,
        () = log.begun() => {
            report.logged = true;
            tokio::join!(hold.report(status(report)), ended).1
        }
    }
}

struct Prepared {
    all: BTreeMap<String, String>,
    replaced: BTreeMap<String, String>,
}

/// `None`: the run was settled, because its outputs cannot be written.
async fn prepare_outputs(
    node: &Arc<Shared>,
    hold: &Hold,
    spec: &RunSpec,
    attempt: u32,
    report: &mut RunStatus,
) -> Option<Prepared> {
    match node.outputs_of_attempt(spec.outputs.clone(), &spec.created_outputs, attempt).await {
        Ok(Outputs::Ready { all, replaced }) => Some(Prepared { all, replaced }),
        Ok(Outputs::Written { name, buffer }) => {
            let reason = format!(
                "an earlier attempt wrote to output {name:?} (buffer {buffer}), and a buffer is written once; \
                 create the run again with another buffer"
            );
            fail(hold, std::mem::take(report), reason).await;
            None
        }
        Err(error) => {
            tokio::time::sleep(AFTER_FAULT).await;
            hold.retry(format!("cannot prepare the outputs: {error}"), Some(RETRY_DELAY), None).await;
            None
        }
    }
}

pub(super) fn read_spec<T: serde::de::DeserializeOwned>(
    payload: &towline_api::payload::Payload,
) -> Option<T> {
    serde_json::from_slice(payload.bytes()?).ok()
}

async fn fail(hold: &Hold, report: RunStatus, reason: String) {
    let report = RunStatus { reason: Some(reason.clone()), ..report };
    hold.fail(reason, status(&report)).await;
}

async fn settle(
    hold: &Hold,
    mut report: RunStatus,
    ended: Ended,
    outputs: BTreeMap<String, String>,
    timeout_ms: u64,
    incomplete_log: Option<String>,
) {
    if let Ended::Exited(exit) = &ended {
        (report.exit_code, report.signal) = (exit.code, exit.signal);
    }
    let with_log = |reason: String| match &incomplete_log {
        Some(log) => format!("{reason}; {log}"),
        None => reason,
    };
    match ended {
        Ended::Succeeded => {
            report.exit_code = Some(0);
            report.reason = incomplete_log.clone();
            if let Err(error) = hold.commit(outputs, Vec::new(), status(&report)).await {
                tracing::warn!("cannot commit run {}: {error}", hold.id);
                let error = format!("its outputs could not be committed: {error}");
                hold.retry(error, Some(RETRY_DELAY), None).await;
            }
        }
        Ended::Exited(exit) => fail(hold, report, with_log(describe(exit))).await,
        Ended::NotStarted(error) if error.is_permanent() => fail(hold, report, error.to_string()).await,
        Ended::NotStarted(error) => hold.retry(error.to_string(), Some(RETRY_DELAY), status(&report)).await,
        Ended::InputFailed(error) if is_passing(&error.error) => {
            hold.retry(error.to_string(), Some(RETRY_DELAY), status(&report)).await;
        }
        Ended::InputFailed(error) => fail(hold, report, with_log(error.to_string())).await,
        Ended::OutputFailed { name, error } => {
            let reason = format!("output {name:?} could not be written: {error}");
            match is_passing(&error) {
                true => hold.retry(reason, Some(RETRY_DELAY), status(&report)).await,
                false => fail(hold, report, with_log(reason)).await,
            }
        }
        Ended::TimedOut => {
            let limit = towline_api::Millis(timeout_ms);
            fail(hold, report, with_log(format!("it had not ended after its timeout of {limit}"))).await;
        }
        Ended::Stopped(reason) => {
            report.reason = Some(reason.clone());
            hold.cancel(reason, status(&report)).await;
        }
        Ended::Lost(why) => tracing::warn!("stopped run {}: {why}", hold.id),
        Ended::GivenBack => hold.give_back(status(&report)).await,
    }
}
