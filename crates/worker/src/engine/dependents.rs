//! Dependents: work that waits in the store until its dependencies meet a condition.
//!
//! Work that ends notifies its dependents. A new dependent checks whether its dependencies have ended already. Both may
//! happen, and each may be repeated after a crash. Each dependency is counted once, and the submit that follows uses the
//! id of the dependent as idempotency key, so the dependent is submitted once.

use super::{CONCURRENT_CALLS_MAX, Engine, Origin, ResultRecord, SubmittedWork};
use crate::envelope::Envelope;
use crate::error::Error;
use crate::job::AnyJob;
use crate::ports::{Increment, PortError, PortFuture};
use futures::stream::{self, StreamExt, TryStreamExt};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use towline_domain::Condition;
use towline_domain::dependency::DependencyVerdict;

/// A dependent as the store holds it.
#[derive(Debug, Serialize, Deserialize)]
struct Dependent {
    envelope: Envelope,
    condition: Condition,
    /// How many dependencies it has.
    dependencies: u32,
}

/// `ended` counts the dependencies that have ended. `completed` counts those that have ever completed: one that failed
/// may be redriven and complete later.
fn verdict(condition: Condition, dependencies: u32, ended: i64, completed: i64) -> DependencyVerdict {
    let (dependencies, failed) = (i64::from(dependencies), ended - completed);
    let impossible =
        || DependencyVerdict::Impossible(format!("{failed} of its {dependencies} dependencies failed"));
    match condition {
        Condition::AllDone if ended >= dependencies => DependencyVerdict::Met,
        Condition::AllSuccess if completed >= dependencies => DependencyVerdict::Met,
        Condition::AllSuccess if failed > 0 => impossible(),
        Condition::CountOf(n) if completed >= i64::from(n) => DependencyVerdict::Met,
        Condition::CountOf(n) if dependencies - failed < i64::from(n) => impossible(),
        Condition::AllDone | Condition::AllSuccess | Condition::CountOf(_) => DependencyVerdict::Waiting,
    }
}

impl Engine {
    /// Stores a job as a dependent of these ids.
    pub(crate) async fn submit_after(
        self: &Arc<Engine>,
        job: &AnyJob,
        origin: Origin<'_>,
        ids: &[String],
        condition: Condition,
    ) -> Result<SubmittedWork, Error> {
        let mut ids = ids.to_vec();
        ids.sort();
        ids.dedup();
        if let Condition::CountOf(n) = condition
            && n as usize > ids.len()
        {
            let message = format!("{n} of {} dependencies cannot complete; wait for fewer", ids.len());
            return Err(Error::Configuration(message));
        }
        let (envelope, retention) = (self.prepare(job, origin)?.envelope, self.config.unfinished_retention);
        let submitted = SubmittedWork::of(&envelope);
        let id = &submitted.id;
        let dependencies = u32::try_from(ids.len()).unwrap_or(u32::MAX);
        let dependent = Dependent { envelope, condition, dependencies };
        let text =
            serde_json::to_string(&dependent).map_err(|error| Error::Configuration(error.to_string()))?;
        self.backend.store.set(&self.keys.dependent(id), text, retention).await?;
        // The dependent must be counted before a dependency can submit it.
        self.join_group(&dependent.envelope).await?;
        self.mark_submitted(&dependent.envelope).await;
        let calls: Vec<PortFuture<'_, bool>> =
            ids.iter().map(|dependency| self.add_dependency(id, dependency)).collect();
        let ended: Vec<bool> =
            stream::iter(calls).buffer_unordered(CONCURRENT_CALLS_MAX).try_collect().await?;
        if ids.is_empty() || ended.contains(&true) {
            self.check_dependent(id).await?;
        }
        Ok(submitted)
    }

    /// Returns `true` if the dependency had ended before. It is then counted.
    fn add_dependency<'a>(&'a self, id: &'a str, dependency: &'a str) -> PortFuture<'a, bool> {
        let (store, retention) = (&self.backend.store, self.config.unfinished_retention);
        Box::pin(async move {
            let increment = Increment { by: 1, once: Some(id) };
            let n = store.increment(&self.keys.dependent_count(dependency), increment, retention).await?;
            store.set(&self.keys.dependent_of(dependency, n), id.to_owned(), retention).await?;
            // The dependency may have ended before it could see this dependent.
            let record = self.result_record(dependency).await?;
            if let Some(record) = &record {
                self.count_dependency(id, dependency, record.is_success()).await?;
            }
            Ok(record.is_some())
        })
    }

    /// Notifies the dependents of this work that it has ended.
    pub(super) async fn notify_dependents(
        self: &Arc<Engine>,
        id: &str,
        record: &ResultRecord,
    ) -> Result<(), PortError> {
        for dependent in self.dependents(id).await? {
            Box::pin(self.dependency_ended(&dependent, id, record.is_success())).await?;
        }
        Ok(())
    }

    pub(crate) async fn dependents(&self, id: &str) -> Result<Vec<String>, PortError> {
        let store = &self.backend.store;
        let count = self.counter(&self.keys.dependent_count(id)).await?;
        let mut dependents = Vec::new();
        for n in 1..=count {
            // A dependent that is counted but not stored yet will check this work's result by itself.
            dependents.extend(store.get(&self.keys.dependent_of(id, n)).await?);
        }
        Ok(dependents)
    }

    async fn dependency_ended(
        self: &Arc<Engine>,
        dependent: &str,
        id: &str,
        is_success: bool,
    ) -> Result<(), PortError> {
        self.count_dependency(dependent, id, is_success).await?;
        self.check_dependent(dependent).await
    }

    async fn count_dependency(&self, dependent: &str, id: &str, is_success: bool) -> Result<(), PortError> {
        let increment = Increment { by: 1, once: Some(id) };
        let (store, retention) = (&self.backend.store, self.config.unfinished_retention);
        // In this order, so that a reader never takes a completed dependency for a failed one.
        if is_success {
            store.increment(&self.keys.dependencies_completed(dependent), increment, retention).await?;
        }
        store.increment(&self.keys.dependencies_ended(dependent), increment, retention).await.map(drop)
    }

    /// Submits the dependent if its condition is met. Fails it if the condition can no longer be met.
    async fn check_dependent(self: &Arc<Engine>, id: &str) -> Result<(), PortError> {
        let store = &self.backend.store;
        let key = self.keys.dependent(id);
        let Some(text) = store.get(&key).await? else { return Ok(()) };
        let Dependent { envelope, condition, dependencies } =
            serde_json::from_str(&text).map_err(|error| PortError::Refused(format!("{key}: {error}")))?;
        let ended = self.counter(&self.keys.dependencies_ended(id)).await?;
        let completed = self.counter(&self.keys.dependencies_completed(id)).await?;
        match verdict(condition, dependencies, ended, completed) {
            DependencyVerdict::Waiting => return Ok(()),
            DependencyVerdict::Met => {
                let kind = self.kinds.get(envelope.kind.as_str());
                let queue = kind.map_or(&self.backend.queue, |kind| self.queue_of(kind));
                self.submit_envelope(&envelope, queue, true).await?;
            }
            DependencyVerdict::Impossible(error) => {
                let joined = self.is_joined_root(&envelope).await?;
                let record = ResultRecord::failed(&envelope, error, joined);
                Box::pin(self.store_result(&envelope, &record)).await?;
            }
        }
        store.delete(&key).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_for_every_condition() {
        let is = |expected: &str, condition, dependencies, ended, completed| {
            let verdict = match verdict(condition, dependencies, ended, completed) {
                DependencyVerdict::Waiting => "waiting",
                DependencyVerdict::Met => "met",
                DependencyVerdict::Impossible(_) => "impossible",
            };
            assert_eq!(
                verdict, expected,
                "{condition:?}: {completed} of {ended} of {dependencies} completed"
            );
        };
        is("waiting", Condition::AllDone, 3, 2, 1);
        is("met", Condition::AllDone, 3, 3, 1);
        is("met", Condition::AllDone, 0, 0, 0);
        is("waiting", Condition::AllSuccess, 2, 1, 1);
        is("met", Condition::AllSuccess, 2, 2, 2);
        is("impossible", Condition::AllSuccess, 2, 1, 0);
        // The second is counted as completed and not as ended yet.
        is("met", Condition::AllSuccess, 2, 1, 2);
        is("waiting", Condition::CountOf(2), 3, 2, 1);
        is("met", Condition::CountOf(2), 3, 2, 2);
        is("impossible", Condition::CountOf(2), 3, 3, 1);
        is("met", Condition::CountOf(0), 3, 0, 0);
    }
}
