//! Makes the replicas of a service what they should be: as many as wanted, of the newest generation.
//!
//! Every server may do this at any time: each replica has an idempotency key, so two servers create one replica.

use super::ServiceRecord;
use crate::items::{Kind, filter, spec, status, submission};
use crate::{Compute, Result};
use std::collections::BTreeMap;
use towline_api::compute::{ReplicaSpec, ReplicaState, ReplicaStatus, tag};
use towline_broker::store::StoredItem;
use towline_domain::item::StateKind;
use towline_domain::{FailureKind, Millis, QueueState, State, StateName, Timestamp, limits};

/// A single replica is replaced before its successor runs if the successor does not start for this long, because the pool may
/// have no room for both.
const SURGE_MAX: Millis = Millis::seconds(30);
/// Ended replicas are kept for this long.
const ENDED_TTL: Millis = Millis::hours(1);
/// Fewer replicas are wanted only after fewer were enough for this long.
const LULL: Millis = Millis::minutes(1);

/// Since when fewer replicas of each service are enough.
#[derive(Debug, Default)]
pub(crate) struct Lull(BTreeMap<String, Timestamp>);

/// A replica that has not ended.
struct Live<'a> {
    stored: &'a StoredItem,
    spec: ReplicaSpec,
    runs: bool,
    stopping: bool,
}

impl Compute {
    pub(crate) async fn reconcile_service(&self, service: &ServiceRecord) -> Result<()> {
        let items = self.live_replicas(&service.name).await?;
        let ids: Vec<_> = items.iter().map(|stored| stored.item.head.id).collect();
        let stops = self.stop_reasons(&ids).await?;
        let mut live = Vec::with_capacity(items.len());
        for (stored, stop) in items.iter().zip(stops) {
            let report: ReplicaStatus = status(stored);
            let held = stored.item.head.state.kind() == StateKind::Processing;
            let (stopping, runs) = (stop.is_some(), held && report.state == ReplicaState::Running);
            live.push(Live { stored, spec: spec(stored)?, runs: runs && !stopping, stopping });
        }
        if service.target() > 0 && self.note_ended(service).await? {
            // The service has failed or is done: the next round stops what is left.
            return Ok(());
        }
        let target = service.target();
        for replica in live.iter().filter(|replica| replica.spec.index >= target && !replica.stopping) {
            let reason = if target == 0 { "the service is stopped" } else { "the service was scaled down" };
            self.stop_item(replica.stored, reason).await?;
        }
        self.replace_old(service, &live).await
    }

    /// Creates missing replicas, and replaces those of earlier generations: never so many at once that fewer than half run.
    async fn replace_old(&self, service: &ServiceRecord, live: &[Live<'_>]) -> Result<()> {
        let target = service.target();
        let of = |index: u32| live.iter().filter(move |replica| replica.spec.index == index);
        let serves = |index: u32| of(index).any(|replica| replica.runs);
        let mut may_be_down =
            (target / 2).saturating_sub((0..target).filter(|index| !serves(*index)).count() as u32);
        for index in 0..target {
            let new = of(index).find(|replica| self.is_current(service, &replica.spec) && !replica.stopping);
            let old = of(index).find(|replica| !self.is_current(service, &replica.spec) && !replica.stopping);
            let Some(old) = old else {
                if new.is_none() {
                    self.submit_replica(service, index).await?;
                }
                continue;
            };
            let now = self.broker().now();
            let waited_long =
                |replica: &Live| now.0.saturating_sub(replica.stored.item.head.created_at.0) > SURGE_MAX.0;
            let replace = match new {
                Some(new) => new.runs || waited_long(new),
                None => !old.runs || may_be_down > 0,
            };
            if new.is_none() && (replace || target == 1) {
                self.submit_replica(service, index).await?;
            }
            if replace {
                if old.runs && new.is_none_or(|new| !new.runs) {
                    may_be_down = may_be_down.saturating_sub(1);
                }
                self.stop_item(old.stored, "the service was restarted").await?;
            }
        }
        Ok(())
    }

    fn is_current(&self, service: &ServiceRecord, replica: &ReplicaSpec) -> bool {
        replica.generation == service.generation
    }

    async fn submit_replica(&self, service: &ServiceRecord, index: u32) -> Result<()> {
        let spec = ReplicaSpec {
            service: service.name.clone(),
            index,
            generation: service.generation,
            codespec: service.codespec.clone(),
            spec: service.spec.clone(),
            queues: service.queues.clone(),
        };
        let tags = [
            (tag::SERVICE.to_owned(), service.name.clone()),
            (tag::CODESPEC.to_owned(), service.codespec.clone()),
        ];
        let mut replica = submission(Kind::Replica, tags.into(), &spec)?;
        let ServiceRecord { uid, generation, .. } = service;
        replica.body.idempotency_key = Some(format!("{uid}/{index}/{generation}"));
        // A lost node does not use up a replica.
        replica.overrides.max_retries = Some(limits::RETRIES_MAX);
        replica.overrides.completed_ttl = Some(ENDED_TTL);
        replica.overrides.failed_ttl = Some(ENDED_TTL);
        let queue = self.pool(&service.pool).await?;
        self.submit(queue, replica).await?;
        Ok(())
    }

    /// Whether replicas of this generation ended by themselves: one that crashed again and again fails the service, and when
    /// all have ended because their queues are completed, the service is done.
    async fn note_ended(&self, service: &ServiceRecord) -> Result<bool> {
        let tags = [(tag::KIND, Kind::Replica.name()), (tag::SERVICE, service.name.as_str())];
        let mut completed = vec![false; service.target() as usize];
        for state in [StateName::Failed, StateName::Completed] {
            for stored in self.all_items(filter(None, Some(state), &tags)).await? {
                let replica: ReplicaSpec = spec(&stored)?;
                let is_of_this = stored
                    .item
                    .body
                    .idempotency_key
                    .as_deref()
                    .is_some_and(|key| key.starts_with(&service.uid));
                if !is_of_this || !self.is_current(service, &replica) {
                    continue;
                }
                match &stored.item.head.state {
                    State::Failed { kind: FailureKind::Cancelled, .. } => {}
                    State::Failed { .. } => {
                        let why = stored
                            .item
                            .errors
                            .iter()
                            .last()
                            .map(|error| error.message.clone())
                            .unwrap_or_default();
                        let why = format!("replica {}: {why}", replica.index);
                        self.change_service(&service.name, |changed| {
                            if changed.generation == service.generation {
                                changed.failed.get_or_insert_with(|| why.clone());
                            }
                        })
                        .await?;
                        return Ok(true);
                    }
                    _ => {
                        if let Some(at) = completed.get_mut(replica.index as usize) {
                            *at = true;
                        }
                    }
                }
            }
        }
        if !completed.iter().any(|done| *done) || !self.all_queues_completed(service).await? {
            return Ok(false);
        }
        let all = completed.iter().all(|done| *done);
        if all {
            self.change_service(&service.name, |changed| {
                changed.done |= changed.generation == service.generation
            })
            .await?;
        }
        Ok(all)
    }

    async fn all_queues_completed(&self, service: &ServiceRecord) -> Result<bool> {
        for queue in service.queues.values() {
            let Ok(name) = queue.parse() else { return Ok(false) };
            let found = self.broker().store().queue(name).await?;
            if !found.is_some_and(|view| matches!(view.queue.state, QueueState::Completed { .. })) {
                return Ok(false);
            }
        }
        Ok(!service.queues.is_empty())
    }

    pub(crate) async fn stop_replicas_of(&self, service: &str, reason: &str) -> Result<()> {
        for stored in self.live_replicas(service).await? {
            self.stop_item(&stored, reason).await?;
        }
        Ok(())
    }

    /// Follows the number of ready items, for a service with a range of replicas.
    pub(crate) async fn autoscale(&self, service: &ServiceRecord, lull: &mut Lull) -> Result<()> {
        if service.replicas.per_replica.is_none() {
            return Ok(());
        }
        let mut ready = 0;
        for queue in service.queues.values() {
            let Ok(name) = queue.parse() else { continue };
            if let Some(view) = self.broker().store().queue(name).await? {
                // Items in processing keep their replicas.
                ready += view.counts.pending + view.counts.processing;
            }
        }
        let (wanted, now) = (service.replicas.wanted(ready), self.broker().now());
        if wanted < service.wanted {
            let since = *lull.0.entry(service.name.clone()).or_insert(now);
            if now.0.saturating_sub(since.0) < LULL.0 {
                return Ok(());
            }
        }
        lull.0.remove(&service.name);
        if wanted != service.wanted {
            self.change_service(&service.name, |changed| changed.wanted = changed.replicas.wanted(ready))
                .await?;
        }
        Ok(())
    }
}
