//! Services as clients see them.

use super::ServiceRecord;
use crate::items::{Kind, filter, spec, status};
use crate::{Compute, Result};
use towline_api::compute::{
    ReplicaShown, ReplicaSpec, ReplicaState, ReplicaStatus, ServiceShown, ServiceState, log_buffer, tag,
};
use towline_broker::store::StoredItem;
use towline_domain::item::StateKind;
use towline_domain::{FailureKind, ItemId, State, StateName};

impl Compute {
    pub async fn service(&self, name: &str) -> Result<ServiceShown> {
        let record = self.service_record(name).await?.value;
        let replicas = self.replicas_shown(name).await?;
        let mut shown = describe(&record, &replicas);
        shown.instances = replicas;
        shown.notes = self.notes_on_service(&record).await?;
        Ok(shown)
    }

    /// In order of name, without their replicas.
    pub async fn services(
        &self,
        state: Option<ServiceState>,
        after: Option<&str>,
        limit: usize,
    ) -> Result<(Vec<ServiceShown>, Option<String>)> {
        let (found, next) = self.service_records().page(after, limit).await?;
        let mut services = Vec::with_capacity(found.len());
        for (name, record) in found {
            if state.is_none_or(|state| state == record.state()) {
                services.push(describe(&record, &self.replicas_shown(&name).await?));
            }
        }
        Ok((services, next))
    }

    /// The unfinished replicas, and the last ended one of each index that has no unfinished one.
    async fn replicas_shown(&self, service: &str) -> Result<Vec<ReplicaShown>> {
        let items = self
            .all_items(filter(None, None, &[(tag::KIND, Kind::Replica.name()), (tag::SERVICE, service)]))
            .await?;
        let ids: Vec<ItemId> = items.iter().map(|stored| stored.item.head.id).collect();
        let stops = self.stop_reasons(&ids).await?;
        let mut shown: Vec<ReplicaShown> = Vec::new();
        for (stored, stop) in items.iter().zip(&stops) {
            let replica = replica(stored, stop.is_some())?;
            let is_ended = stored.item.head.is_terminal();
            // Later items come later in the list.
            shown.retain(|other| other.index != replica.index || !(is_over(other.state) || is_ended));
            if !is_ended || !shown.iter().any(|other| other.index == replica.index) {
                shown.push(replica);
            }
        }
        shown.sort_by_key(|replica| replica.index);
        Ok(shown)
    }

    async fn notes_on_service(&self, record: &ServiceRecord) -> Result<Vec<String>> {
        let mut notes = Vec::new();
        for (key, queue) in &record.queues {
            let found = match queue.parse() {
                Ok(name) => self.broker().store().queue(name).await?,
                Err(_) => None,
            };
            if found.is_none() {
                notes.push(format!("queue {queue:?}, bound to {key:?}, does not exist"));
                continue;
            }
            notes.extend(self.other_consumers(queue, Some(&record.name), None).await?);
        }
        if record.target() > 0 && self.nodes_of(&record.pool).await? == 0 {
            notes.push(format!("no node serves pool {:?} now, so no replica starts", record.pool));
        }
        Ok(notes)
    }

    /// Notes about the services and triggers that consume a queue besides this one.
    pub(crate) async fn other_consumers(
        &self,
        queue: &str,
        service: Option<&str>,
        trigger: Option<&str>,
    ) -> Result<Vec<String>> {
        let mut notes = Vec::new();
        for (name, other) in self.service_records().all().await? {
            if service != Some(name.as_str()) && other.queues.values().any(|bound| bound == queue) {
                notes.push(format!(
                    "service {name:?} consumes queue {queue:?}, too; each item goes to one of the consumers"
                ));
            }
        }
        for (name, other) in self.trigger_records().all().await? {
            if trigger != Some(name.as_str()) && other.slot.input_queue == queue {
                notes.push(format!(
                    "trigger {name:?} consumes queue {queue:?}, too; each item goes to one of the consumers"
                ));
            }
        }
        Ok(notes)
    }

    pub(crate) async fn live_replicas(&self, service: &str) -> Result<Vec<StoredItem>> {
        let tags = [(tag::KIND, Kind::Replica.name()), (tag::SERVICE, service)];
        self.all_items(filter(None, Some(StateName::Unfinished), &tags)).await
    }
}

fn is_over(state: ReplicaState) -> bool {
    matches!(state, ReplicaState::Completed | ReplicaState::Failed)
}

fn describe(record: &ServiceRecord, replicas: &[ReplicaShown]) -> ServiceShown {
    let state = record.state();
    let running = replicas.iter().filter(|replica| replica.state == ReplicaState::Running).count();
    let reason = match state {
        ServiceState::Failed => record.failed.clone(),
        ServiceState::Stopped if record.done => Some("its queues are completed".to_owned()),
        ServiceState::Stopped => Some("it is scaled to 0 replicas".to_owned()),
        ServiceState::Running => None,
    };
    ServiceShown {
        name: record.name.clone(),
        state,
        reason,
        codespec: record.codespec.clone(),
        replicas: record.replicas,
        wanted: record.target(),
        running: u32::try_from(running).unwrap_or(u32::MAX),
        queues: record.queues.clone(),
        pool: record.pool.clone(),
        created_at: record.created_at.clone(),
        changed_at: record.changed_at.clone(),
        instances: Vec::new(),
        notes: Vec::new(),
    }
}

fn replica(stored: &StoredItem, stopping: bool) -> Result<ReplicaShown> {
    let head = &stored.item.head;
    let (spec, status): (ReplicaSpec, ReplicaStatus) = (spec(stored)?, status(stored));
    let state = match &head.state {
        State::Completed { .. } | State::Failed { kind: FailureKind::Cancelled, .. } => {
            ReplicaState::Completed
        }
        State::Failed { .. } => ReplicaState::Failed,
        _ if stopping => ReplicaState::Stopping,
        state if state.kind() == StateKind::Processing => status.state,
        _ => ReplicaState::Pending,
    };
    let held = head.state.kind() == StateKind::Processing || head.is_terminal();
    Ok(ReplicaShown {
        index: spec.index,
        id: head.id.into(),
        state,
        codespec: spec.codespec,
        node: status.node.filter(|_| held),
        restarts: status.restarts,
        last_exit: status.last_exit,
        started_at: status.started_at.filter(|_| held),
        log: status.logged.then(|| log_buffer(head.id, head.deliveries)),
    })
}
