//! Carries out a replica of a service: keeps its program running under one lease.

use super::Shared;
use super::execution::describe;
use super::holds::{Fate, Hold};
use super::launch::Wanted;
use super::log::{LogWriter, discard_both};
use super::report::status;
use super::run::read_spec;
use crate::clock;
use crate::runner::{Exit, Handle, Running, StartError};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use towline_api::compute::{HealthCheck, ReplicaSpec, ReplicaState, ReplicaStatus, queue_variable};
use towline_api::{Client, ReceivedItem, Span};

/// The pause before a restart doubles from the first to the last.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(300);
/// A program that ran for this long was healthy: earlier crashes do not count any more.
const HEALTHY_AFTER: Duration = Duration::from_secs(600);
/// A program that crashed this often without being healthy is not started again.
const CRASHES_MAX: u32 = 10;

struct Replica<'a> {
    node: &'a Arc<Shared>,
    hold: &'a Hold,
    client: Client,
    spec: ReplicaSpec,
    report: ReplicaStatus,
    log: LogWriter,
    /// Starts in a row without a healthy period.
    starts: u32,
    delivery: u32,
}

/// How one process of a replica ended.
enum Ended {
    Exited(Exit),
    Unhealthy,
    NotStarted(StartError),
    NotExpanded(String),
    Stopped(String),
    Lost(String),
    GivenBack,
}

pub(super) async fn carry_out(node: &Arc<Shared>, hold: &Hold, item: &ReceivedItem) {
    let Some(spec) = item.payload.as_ref().and_then(read_spec::<ReplicaSpec>) else {
        return hold.fail("the item has no specification of a replica".to_owned(), None).await;
    };
    // Another node may have had it before.
    let before: ReplicaStatus = item.state_blob.as_ref().and_then(read_spec).unwrap_or_default();
    let report = ReplicaStatus {
        node: Some(node.options.name.clone()),
        restarts: before.restarts,
        crashes: before.crashes,
        last_exit: before.last_exit,
        ..ReplicaStatus::default()
    };
    let client = node.client_of(hold.id, hold.lease);
    let log = LogWriter::new(node, hold);
    let mut replica =
        Replica { node, hold, client, spec, report, log, starts: before.crashes, delivery: item.deliveries };
    let last = replica.keep_running().await;
    replica.settle(last).await;
}

/// How a replica ends.
enum Last {
    Completed,
    Failed(String),
    Stopped(String),
    Lost(String),
    GivenBack,
}

impl Replica<'_> {
    async fn keep_running(&mut self) -> Last {
        loop {
            let began = clock::now();
            let ended = self.run_once().await;
            if clock::now().duration_since(began) >= HEALTHY_AFTER {
                (self.starts, self.report.crashes) = (0, 0);
            }
            self.starts = self.starts.saturating_add(1);
            let (why, crashed) = match ended {
                Ended::Stopped(reason) => return Last::Stopped(reason),
                Ended::Lost(why) => return Last::Lost(why),
                Ended::GivenBack => return Last::GivenBack,
                Ended::NotExpanded(why) => return Last::Failed(why),
                Ended::NotStarted(error) if error.is_permanent() => return Last::Failed(error.to_string()),
                // The node is at fault, not the program.
                Ended::NotStarted(error) => (error.to_string(), false),
                Ended::Unhealthy => ("it was stopped because its health check failed".to_owned(), true),
                Ended::Exited(exit) if exit.is_success() => {
                    if self.queues_are_completed().await {
                        return Last::Completed;
                    }
                    (describe(exit), false)
                }
                Ended::Exited(exit) => (describe(exit), true),
            };
            self.report.last_exit = Some(why.clone());
            if crashed {
                self.report.crashes = self.report.crashes.saturating_add(1);
            }
            if self.report.crashes >= CRASHES_MAX {
                return Last::Failed(format!(
                    "it crashed {CRASHES_MAX} times without a healthy period: {why}"
                ));
            }
            self.report.restarts = self.report.restarts.saturating_add(1);
            self.say(ReplicaState::Restarting).await;
            if let Some(last) = self.pause().await {
                return last;
            }
        }
    }

    async fn say(&mut self, state: ReplicaState) {
        self.report.state = state;
        self.report.logged = self.log.has_begun();
        self.hold.report(status(&self.report)).await;
    }

    /// Waits before a restart. `Some`: the replica ends instead.
    async fn pause(&self) -> Option<Last> {
        let doubled = PAUSE_FIRST.saturating_mul(2_u32.saturating_pow(self.starts.saturating_sub(1).min(16)));
        tokio::select! {
            () = tokio::time::sleep(doubled.min(PAUSE_MAX)) => None,
            fate = self.hold.changed() => Some(match fate {
                Fate::Lost(why) => Last::Lost(why),
                Fate::Stop(reason) => Last::Stopped(reason),
                Fate::Held => return None,
            }),
            () = self.node.stopped() => Some(Last::GivenBack),
        }
    }

    async fn run_once(&mut self) -> Ended {
        if let Fate::Stop(reason) = self.hold.fate() {
            return Ended::Stopped(reason);
        }
        let launch = match self.node.launch(self.wanted("")) {
            Ok(launch) => launch,
            Err(error) => return Ended::NotExpanded(error.to_string()),
        };
        let running = match self.node.runner.start(launch).await {
            Ok(running) => running,
            Err(error) => return Ended::NotStarted(error),
        };
        self.report.started_at = Some(clock::wall());
        self.say(ReplicaState::Running).await;
        let Running { stdout, stderr, handle, .. } = running;
        let (ended, ()) = tokio::join!(self.watch(&handle), self.log.add(stdout, stderr));
        ended
    }

    fn wanted(&self, suffix: &str) -> Wanted<'_> {
        const NONE: &BTreeMap<String, String> = &BTreeMap::new();
        let queues = &self.spec.queues;
        Wanted {
            id: format!("replica-{}-{}-{}{suffix}", self.hold.id, self.delivery, self.starts),
            spec: &self.spec.spec,
            env: NONE,
            given: queues.iter().map(|(key, queue)| (queue_variable(key), queue.clone())).collect(),
            item: self.hold.id,
            lease: self.hold.lease,
        }
    }

    async fn watch(&self, handle: &Handle) -> Ended {
        let mut reason = None;
        let mut exited = std::pin::pin!(handle.wait());
        let mut unhealthy = std::pin::pin!(self.unhealthy());
        let mut begun = std::pin::pin!(self.log.begun());
        let mut has_told_of_log = self.report.logged;
        loop {
            let cause = tokio::select! {
                exit = &mut exited => return reason.unwrap_or(Ended::Exited(exit)),
                () = &mut begun, if !has_told_of_log => {
                    has_told_of_log = true;
                    let told = ReplicaStatus { logged: true, ..self.report.clone() };
                    self.hold.report(status(&told)).await;
                    continue;
                }
                () = &mut unhealthy, if reason.is_none() => Ended::Unhealthy,
                fate = self.hold.changed(), if reason.is_none() => match fate {
                    Fate::Lost(why) => Ended::Lost(why),
                    Fate::Stop(why) => Ended::Stopped(why),
                    Fate::Held => continue,
                },
                fate = self.hold.lost(), if reason.as_ref().is_some_and(|reason| !matches!(reason, Ended::Lost(_))) => match fate {
                    Fate::Lost(why) => Ended::Lost(why),
                    _ => continue,
                },
                () = self.node.stopped(), if reason.is_none() => Ended::GivenBack,
            };
            match cause {
                Ended::Lost(_) => handle.kill(),
                _ => handle.stop(),
            }
            if let (Ended::Stopped(_), None) = (&cause, &reason) {
                let told = ReplicaStatus { state: ReplicaState::Stopping, ..self.report.clone() };
                self.hold.report(status(&told)).await;
            }
            reason = Some(cause);
        }
    }

    /// Completes when the health check failed too often in a row. Never without a health check.
    async fn unhealthy(&self) {
        let Some(health) = &self.spec.spec.health else { return std::future::pending().await };
        let span = |given: &Option<Span>, default: towline_api::Millis| {
            let given = given.clone().and_then(|span| span.into_domain("health").ok());
            Duration::from_millis(given.unwrap_or(default).0)
        };
        let interval = span(&health.interval, HealthCheck::INTERVAL_DEFAULT);
        let timeout = span(&health.timeout, towline_api::Millis(interval.as_millis() as u64));
        let threshold = health.threshold.unwrap_or(HealthCheck::THRESHOLD_DEFAULT);
        tokio::time::sleep(span(&health.start_after, towline_api::Millis(0))).await;
        let (mut failures, mut count) = (0, 0_u64);
        loop {
            tokio::time::sleep(interval).await;
            count += 1;
            let healthy = self.check_health(health, count, timeout).await;
            failures = if healthy { 0 } else { failures + 1 };
            if failures >= threshold {
                return;
            }
        }
    }

    async fn check_health(&self, health: &HealthCheck, count: u64, timeout: Duration) -> bool {
        let mut spec = self.spec.spec.clone();
        (spec.command, spec.args) = (health.command.clone(), Vec::new());
        let suffix = format!("-health-{count}");
        let wanted = Wanted { spec: &spec, ..self.wanted(&suffix) };
        let Ok(launch) = self.node.launch(wanted) else { return false };
        let Ok(running) = self.node.runner.start(launch).await else { return false };
        let Running { stdout, stderr, handle, .. } = running;
        let checked = async { tokio::join!(handle.wait(), discard_both(stdout, stderr)).0 };
        match tokio::time::timeout(timeout, checked).await {
            Ok(exit) => exit.is_success(),
            // Dropping the handle kills it.
            Err(_) => false,
        }
    }

    async fn queues_are_completed(&self) -> bool {
        for queue in self.spec.queues.values() {
            match self.client.queue(queue).await {
                Ok(shown) if shown.state == "completed" => {}
                _ => return false,
            }
        }
        !self.spec.queues.is_empty()
    }

    async fn settle(self, last: Last) {
        let Replica { hold, mut report, log, .. } = self;
        report.logged = log.finish().await.logged;
        match last {
            Last::Completed => {
                report.state = ReplicaState::Completed;
                if let Err(error) = hold.commit(BTreeMap::new(), Vec::new(), status(&report)).await {
                    tracing::warn!("cannot settle replica {}: {error}", hold.id);
                }
            }
            Last::Failed(why) => {
                report.state = ReplicaState::Failed;
                hold.fail(why, status(&report)).await;
            }
            Last::Stopped(reason) => {
                report.state = ReplicaState::Stopping;
                hold.cancel(reason, status(&report)).await;
            }
            Last::Lost(why) => tracing::warn!("stopped a replica, item {}: {why}", hold.id),
            Last::GivenBack => {
                report.state = ReplicaState::Pending;
                hold.give_back(status(&report)).await;
            }
        }
    }
}
