//! Keeps every queue in every shard.

use crate::{Shard, Shards};
use std::collections::BTreeMap;
use towline_domain::{Counts, Policy, Queue, QueueName, QueueState, limits};
use towline_store::{Operation, Store, StoreError, Updated, name_dead_letter_queues};

impl Shards {
    /// The items of each shard that is up, in its first `queues_max` queues by name.
    pub async fn counts(&self, queues_max: usize) -> Vec<(String, Counts)> {
        let mut counted = Vec::new();
        for shard in &self.shards {
            let Ok(views) = shard.call(|store| store.queues(None, queues_max)).await else { continue };
            let sum = views.iter().fold(Counts::default(), |sum, view| sum.plus(&view.counts));
            counted.push((shard.name.clone(), sum));
        }
        counted
    }

    /// Creates every queue in every shard that is up. Moves key-value records if the number of shards has grown.
    ///
    /// A shard may be new, or it was down when a client created a queue. The server calls this at its start, before
    /// anything else.
    ///
    /// # Errors
    /// If no shard is up, or a shard refuses a queue.
    pub async fn reconcile(&self) -> Result<(), StoreError> {
        self.create_missing_queues().await?;
        if !self.records_are_placed().await {
            self.place_records().await;
        }
        Ok(())
    }

    async fn create_missing_queues(&self) -> Result<(), StoreError> {
        let mut known: BTreeMap<QueueName, (&Shard, Queue)> = BTreeMap::new();
        let mut up: Vec<(&Shard, BTreeMap<QueueName, Queue>)> = Vec::new();
        let mut failure = None;
        for shard in self.shards.iter().filter(|shard| shard.health.is_up()) {
            match shard.observe(all_queues(&*shard.store).await) {
                Ok(queues) => {
                    for queue in &queues {
                        known.entry(queue.name.clone()).or_insert_with(|| (shard, queue.clone()));
                    }
                    up.push((shard, queues.into_iter().map(|queue| (queue.name.clone(), queue)).collect()));
                }
                Err(error) => failure = Some(error),
            }
        }
        if let (true, Some(error)) = (up.is_empty(), failure) {
            return Err(error);
        }
        let models: Vec<Queue> = known.values().map(|(_, queue)| queue.clone()).collect();
        for (shard, queues) in up {
            let mut created = Vec::new();
            for (name, (first, queue)) in &known {
                let Some(existing) = queues.get(name) else {
                    tracing::info!(shard = shard.name, queue = %name, "creating a missing queue in a shard");
                    shard.update_all(create_like(queue), &format!("queue {name}")).await?;
                    created.push(name);
                    continue;
                };
                let differences = differences(queue, existing);
                if !differences.is_empty() {
                    // A client changed the queue while one shard was down. Only an operator knows which one is right.
                    tracing::warn!(
                        queue = %name,
                        shards = format!("{}, {}", first.name, shard.name),
                        "a queue differs between two shards ({}): set its policy again",
                        differences.join(", ")
                    );
                }
            }
            for operation in name_dead_letter_queues(&models) {
                if let Operation::ChangePolicy { queue, .. } = &operation
                    && created.contains(&queue)
                {
                    let subject = format!("the dead-letter queue of {queue}");
                    shard.update_all(vec![operation], &subject).await?;
                }
            }
        }
        Ok(())
    }
}

impl Shard {
    /// Carries out all operations. A refusal of one of them is an error.
    pub(crate) async fn update_all(
        &self,
        operations: Vec<Operation>,
        subject: &str,
    ) -> Result<(), StoreError> {
        let Updated { answers, effects } = self.call(|store| store.update(operations)).await?;
        self.keep_effects(effects);
        for answered in answers {
            answered.map_err(|refusal| StoreError::Unavailable {
                cause: self.unavailable(&format!("{subject}: {refusal}")),
            })?;
        }
        Ok(())
    }
}

/// The settings of a queue that differ between two shards.
fn differences(one: &Queue, other: &Queue) -> Vec<&'static str> {
    let mut names = one.policy.differences(&other.policy);
    names.extend((one.schema != other.schema).then_some("schema"));
    names.extend((one.paused != other.paused).then_some("paused"));
    names.extend(((one.state == QueueState::Open) != (other.state == QueueState::Open)).then_some("closed"));
    names
}

async fn all_queues(store: &dyn Store) -> Result<Vec<Queue>, StoreError> {
    let mut all: Vec<Queue> = Vec::new();
    loop {
        let after = all.last().map(|queue| queue.name.clone());
        let page = store.queues(after, limits::PAGE_MAX).await?;
        if page.is_empty() {
            return Ok(all);
        }
        all.extend(page.into_iter().map(|view| view.queue));
    }
}

/// The operations that create a queue with the same settings, apart from its dead-letter queue, which may not exist yet.
fn create_like(model: &Queue) -> Vec<Operation> {
    let queue = || model.name.clone();
    let schema = Box::new(model.schema.clone());
    let policy = Box::new(Policy { dead_letter_queue: None, ..model.policy.clone() });
    let mut operations = vec![Operation::CreateQueue { queue: queue(), schema, policy }];
    if model.paused {
        operations.push(Operation::PauseQueue { queue: queue() });
    }
    if model.state != QueueState::Open {
        operations.push(Operation::CloseQueue { queue: queue() });
    }
    operations
}
