//! Creates, scales, restarts and deletes services.

use super::ServiceRecord;
use crate::error::ComputeError;
use crate::pools::{check_name, choose_pool};
use crate::{Compute, Result};
use std::collections::{BTreeMap, BTreeSet};
use towline_api::compute::{
    CodespecBody, CodespecKind, CodespecRef, NewService, Replicas, ServiceShown, check_command,
};
use towline_broker::entropy;
use towline_domain::QueueName;
use towline_domain::name::NameError;

impl Compute {
    pub async fn create_service(&self, name: &str, new: NewService) -> Result<ServiceShown> {
        check_name("service", name)?;
        let replicas = new.replicas.unwrap_or_default().checked()?;
        let given = match &new.codespec {
            CodespecRef::Named(reference) => reference.clone(),
            CodespecRef::Inline(_) => name.to_owned(),
        };
        let resolved = self.resolve(new.codespec, name, CodespecKind::Service).await?;
        check_queues(&resolved.body, &new.queues)?;
        check_command(&resolved.body, &BTreeMap::new(), &BTreeSet::new(), false)?;
        let pool = choose_pool([new.pool, resolved.body.pool.clone()])?;
        self.pool(&pool).await?;
        let now = self.broker().now();
        let record = ServiceRecord {
            name: name.to_owned(),
            uid: entropy::uuid(now).to_string(),
            given,
            codespec: resolved.reference,
            spec: resolved.body,
            wanted: replicas.min,
            replicas,
            queues: new.queues,
            pool,
            generation: 1,
            failed: None,
            done: false,
            created_at: now.into(),
            changed_at: now.into(),
        };
        if !self.service_records().replace(name, None, Some(&record)).await? {
            // A repeated call changes nothing.
            let other = self.service_record(name).await?.value;
            let same = ServiceRecord {
                uid: other.uid.clone(),
                wanted: other.wanted,
                generation: other.generation,
                failed: other.failed.clone(),
                done: other.done,
                created_at: other.created_at.clone(),
                changed_at: other.changed_at.clone(),
                ..record
            };
            if same != other {
                return Err(ComputeError::ServiceExists { name: name.to_owned() });
            }
        }
        self.settle_service(name).await
    }

    /// Changes the number of replicas. Scaling a failed service does not start it: a restart does.
    pub async fn scale_service(&self, name: &str, replicas: Replicas) -> Result<ServiceShown> {
        let replicas = replicas.checked()?;
        self.change_service(name, |service| {
            service.replicas = replicas;
            service.wanted = service.wanted.clamp(replicas.min, replicas.max);
        })
        .await?;
        self.settle_service(name).await
    }

    /// Replaces all replicas, with the newest version of the codespec, and starts a failed service again.
    pub async fn restart_service(&self, name: &str) -> Result<ServiceShown> {
        let seen = self.service_record(name).await?;
        let given = CodespecRef::Named(seen.value.given.clone());
        let resolved = self.resolve(given, name, CodespecKind::Service).await?;
        check_queues(&resolved.body, &seen.value.queues)?;
        check_command(&resolved.body, &BTreeMap::new(), &BTreeSet::new(), false)?;
        let generation = seen.value.generation.saturating_add(1);
        self.change_service(name, |service| {
            service.generation = service.generation.max(generation);
            service.codespec.clone_from(&resolved.reference);
            service.spec.clone_from(&resolved.body);
            service.failed = None;
            service.done = false;
        })
        .await?;
        self.settle_service(name).await
    }

    /// Deletes a service and stops its replicas.
    pub async fn delete_service(&self, name: &str) -> Result<()> {
        let seen = self.service_record(name).await?;
        if !self.service_records().replace(name, Some(seen.bytes), None).await? {
            return Box::pin(self.delete_service(name)).await;
        }
        self.stop_replicas_of(name, "the service was deleted").await
    }

    /// Carries out a change at once, and shows the result.
    async fn settle_service(&self, name: &str) -> Result<ServiceShown> {
        let record = self.service_record(name).await?.value;
        self.reconcile_service(&record).await?;
        self.service(name).await
    }
}

/// Refuses bindings that do not fit the codespec.
fn check_queues(body: &CodespecBody, queues: &BTreeMap<String, String>) -> Result<()> {
    let declared = || if body.queues.is_empty() { "none".to_owned() } else { body.queues.join(", ") };
    if let Some(unknown) = queues.keys().find(|key| !body.queues.contains(key)) {
        return Err(ComputeError::Mismatch(format!(
            "unknown queue key {unknown:?}; the codespec declares: {}",
            declared()
        )));
    }
    if let Some(missing) = body.queues.iter().find(|key| !queues.contains_key(*key)) {
        return Err(ComputeError::Mismatch(format!(
            "no queue for key {missing:?}; give one with --queue {missing}=NAME"
        )));
    }
    for queue in queues.values() {
        queue
            .parse::<QueueName>()
            .map_err(|error: NameError| ComputeError::invalid("queues", error.to_string()))?;
    }
    Ok(())
}
