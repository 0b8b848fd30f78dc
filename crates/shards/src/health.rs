//! Which shards are up. A shard that failed gets no calls until a probe finds it up again, so that no call waits for it.

use crate::{Shard, Shards};
use parking_lot::Mutex;
use towline_store::{BoxFuture, Store, StoreError};

/// Why a shard is down; `None` while it is up.
#[derive(Debug, Default)]
pub(crate) struct Health(Mutex<Option<String>>);

/// The last known health of a shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardHealth {
    pub name: String,
    /// Why the shard is down; `None` while it is up.
    pub down: Option<String>,
}

impl Health {
    pub(crate) fn is_up(&self) -> bool {
        self.down().is_none()
    }

    pub(crate) fn down(&self) -> Option<String> {
        self.0.lock().clone()
    }

    fn set(&self, down: Option<String>) {
        *self.0.lock() = down;
    }
}

impl Shard {
    /// Passes a result on, and marks the shard as down if the result shows that.
    pub(crate) fn observe<T>(&self, result: Result<T, StoreError>) -> Result<T, StoreError> {
        if let Err(
            error @ (StoreError::Unavailable { .. } | StoreError::Poisoned { .. } | StoreError::Closed),
        ) = &result
            && self.health.is_up()
        {
            tracing::warn!(shard = self.name, "a shard is down: {error}");
            self.health.set(Some(error.to_string()));
        }
        result
    }

    /// Calls the shard's store, unless the shard is down.
    pub(crate) async fn call<'a, T>(
        &'a self,
        call: impl FnOnce(&'a dyn Store) -> BoxFuture<'a, Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        match self.health.down() {
            Some(cause) => Err(StoreError::Unavailable { cause: self.unavailable(&cause) }),
            None => self.observe(call(&*self.store).await),
        }
    }

    /// The detail of a refusal because this shard is down.
    pub(crate) fn unavailable(&self, cause: &str) -> String {
        format!("shard {}: {cause}", self.name)
    }
}

impl Shards {
    #[must_use]
    pub fn health(&self) -> Vec<ShardHealth> {
        let health = |shard: &Shard| ShardHealth { name: shard.name.clone(), down: shard.health.down() };
        self.shards.iter().map(health).collect()
    }

    /// Calls each shard that is down, and reconciles the shards if one is up again. Returns whether one is.
    ///
    /// The server calls this at regular intervals.
    pub async fn probe(&self) -> bool {
        let mut recovered = false;
        for shard in self.shards.iter().filter(|shard| !shard.health.is_up()) {
            if shard.store.queues(None, 1).await.is_ok() {
                tracing::info!(shard = shard.name, "a shard is up again");
                shard.health.set(None);
                recovered = true;
            }
        }
        if recovered && let Err(error) = self.reconcile().await {
            tracing::warn!("the shards could not be reconciled: {error}");
        }
        recovered
    }
}
