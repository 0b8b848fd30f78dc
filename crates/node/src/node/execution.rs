//! Runs one job under a lease: starts it, feeds its inputs, collects its outputs and its log, and ends it when it must end.

use super::Shared;
use super::copy::{InputError, collect, feed};
use super::holds::{Fate, Hold};
use super::log::LogWriter;
use crate::entropy;
use crate::runner::{Exit, Handle, Launch, Running, StartError};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use towline_api::{Client, ClientError};

/// A job to run.
pub(super) struct Job<'a> {
    pub(super) launch: Launch,
    /// Buffers by parameter.
    pub(super) inputs: &'a BTreeMap<String, String>,
    pub(super) outputs: &'a BTreeMap<String, String>,
    pub(super) timeout: Duration,
    pub(super) log: &'a LogWriter,
}

/// How a job ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// It exited with 0, and its outputs are complete.
    Succeeded,
    Exited(Exit),
    NotStarted(StartError),
    InputFailed(InputError),
    OutputFailed {
        name: String,
        error: ClientError,
    },
    TimedOut,
    /// A client wanted it to stop.
    Stopped(String),
    /// Another node may have the work.
    Lost(String),
    /// The node stops.
    GivenBack,
}

/// Why a process is ended before it exits by itself.
enum Cause {
    InputFailed(InputError),
    TimedOut,
    Stopped(String),
    Lost(String),
    GivenBack,
}

/// The tasks that copy the outputs of a job.
#[derive(Default)]
struct Outputs {
    verdicts: Vec<oneshot::Sender<bool>>,
    tasks: JoinSet<(String, Result<(), ClientError>)>,
}

impl Outputs {
    fn begin(running: &mut Running, outputs: &BTreeMap<String, String>, client: &Client) -> Outputs {
        let mut all = Outputs::default();
        for (name, pipe) in std::mem::take(&mut running.outputs) {
            let Some(buffer) = outputs.get(&name).cloned() else {
                all.tasks.spawn(async move {
                    super::copy::discard(pipe).await;
                    (name, Ok(()))
                });
                continue;
            };
            let (sender, verdict) = oneshot::channel();
            all.verdicts.push(sender);
            let copied = collect(client.clone(), buffer, entropy::digits(), pipe, verdict);
            all.tasks.spawn(async move { (name, copied.await) });
        }
        all
    }

    /// Completes the outputs, or fails them.
    async fn end(self, succeeded: bool) -> Option<Ended> {
        for verdict in self.verdicts {
            let _ = verdict.send(succeeded);
        }
        let mut failed = None;
        let mut tasks = self.tasks;
        while let Some(ended) = tasks.join_next().await {
            match ended {
                Ok((name, Err(error))) => {
                    failed.get_or_insert(Ended::OutputFailed { name, error });
                }
                Ok((_, Ok(()))) => {}
                Err(error) => {
                    let error = ClientError::Configuration(error.to_string());
                    failed.get_or_insert(Ended::OutputFailed { name: "?".to_owned(), error });
                }
            }
        }
        failed.filter(|_| succeeded)
    }
}

impl Shared {
    /// Runs a job to its end. `hold` is the lease under which it runs.
    pub(super) async fn execute(self: &Arc<Self>, hold: &Hold, job: Job<'_>) -> Ended {
        let mut running = match self.runner.start(job.launch).await {
            Ok(running) => running,
            Err(error) => return Ended::NotStarted(error),
        };
        let mut inputs = JoinSet::new();
        for (name, pipe) in std::mem::take(&mut running.inputs) {
            if let Some(buffer) = job.inputs.get(&name) {
                inputs.spawn(feed(self.client.clone(), name, buffer.clone(), pipe));
            }
        }
        let outputs = Outputs::begin(&mut running, job.outputs, &self.client);
        let Running { stdout, stderr, handle, .. } = running;
        let logged = job.log.add(stdout, stderr);
        let watched = self.watch(hold, &handle, &mut inputs, job.timeout);
        let ((exit, cause), ()) = tokio::join!(watched, logged);
        drop(handle);
        inputs.shutdown().await;
        let succeeded = cause.is_none() && exit.is_success();
        let incomplete = outputs.end(succeeded).await;
        match cause {
            None if succeeded => incomplete.unwrap_or(Ended::Succeeded),
            None => Ended::Exited(exit),
            Some(Cause::InputFailed(error)) => Ended::InputFailed(error),
            Some(Cause::TimedOut) => Ended::TimedOut,
            Some(Cause::Stopped(reason)) => Ended::Stopped(reason),
            Some(Cause::Lost(why)) => Ended::Lost(why),
            Some(Cause::GivenBack) => Ended::GivenBack,
        }
    }

    /// Waits for the exit of a process, and ends it when there is a reason to.
    async fn watch(
        &self,
        hold: &Hold,
        handle: &Handle,
        inputs: &mut JoinSet<Result<(), InputError>>,
        timeout: Duration,
    ) -> (Exit, Option<Cause>) {
        let mut cause = None;
        let mut over = std::pin::pin!(tokio::time::sleep(timeout));
        let mut exited = std::pin::pin!(handle.wait());
        loop {
            let reason = tokio::select! {
                exit = &mut exited => return (exit, cause),
                Some(fed) = inputs.join_next() => match fed {
                    Ok(Err(error)) => Cause::InputFailed(error),
                    _ => continue,
                },
                () = &mut over, if cause.is_none() => Cause::TimedOut,
                fate = hold.changed(), if cause.is_none() => match fate {
                    Fate::Lost(why) => Cause::Lost(why),
                    Fate::Stop(reason) => Cause::Stopped(reason),
                    Fate::Held => continue,
                },
                fate = hold.lost(), if cause.as_ref().is_some_and(|cause| !matches!(cause, Cause::Lost(_))) => match fate {
                    Fate::Lost(why) => Cause::Lost(why),
                    _ => continue,
                },
                () = self.stopped(), if cause.is_none() => Cause::GivenBack,
            };
            match reason {
                Cause::Lost(_) => handle.kill(),
                _ => handle.stop(),
            }
            if cause.is_none() || matches!(reason, Cause::Lost(_)) {
                cause = Some(reason);
            }
        }
    }
}

/// How a process exited, in words.
pub(super) fn describe(exit: Exit) -> String {
    match exit {
        Exit { oom: true, .. } => "it was killed because it used more memory than its limit".to_owned(),
        Exit { code: Some(code), .. } => format!("it exited with code {code}"),
        Exit { signal: Some(signal), .. } => format!("it was ended by signal {signal}"),
        Exit { .. } => "it ended without an exit code".to_owned(),
    }
}
