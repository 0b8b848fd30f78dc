//! Handles: waiting for submitted work, wherever it runs.

use crate::codec::Codec;
use crate::engine::{Engine, ResultRecord, State, SubmittedWork};
use crate::envelope::root_of;
use crate::error::Error;
use crate::ports::PortError;
use futures::StreamExt;
use serde::de::DeserializeOwned;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

/// A waiter looks into the store at least this often, in case a message was lost.
const CHECK_EVERY: Duration = Duration::from_millis(250);
/// How long the store remembers that a waiter waits for a group.
const WAITER_TTL: Duration = Duration::from_secs(3600);

/// A submitted piece of work.
///
/// Waiting has no time limit: it never returns for work that does not exist or whose result is no longer retained.
pub struct Handle<O> {
    engine: Arc<Engine>,
    id: String,
    group: String,
    codec: Option<Arc<dyn Codec>>,
    result: PhantomData<fn() -> O>,
}

impl<O> fmt::Debug for Handle<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("id", &self.id).field("group", &self.group).finish_non_exhaustive()
    }
}

impl<O> Handle<O> {
    pub(crate) fn new(
        engine: Arc<Engine>,
        submitted: SubmittedWork,
        codec: Option<Arc<dyn Codec>>,
    ) -> Handle<O> {
        Handle { engine, id: submitted.id, group: submitted.group, codec, result: PhantomData }
    }

    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The group of this work and of everything that comes of it.
    #[must_use]
    pub fn group_id(&self) -> &str {
        &self.group
    }

    /// Waits until the work has ended. Returns an error if it failed.
    pub async fn done(&self) -> Result<(), Error> {
        self.result_record().await?.into_result(&self.id).map(drop)
    }

    async fn result_record(&self) -> Result<ResultRecord, Error> {
        let messages = vec![self.engine.keys.message("done", &self.id)];
        self.wait(messages, || self.engine.result_record(&self.id)).await
    }

    /// Waits until the whole group has ended.
    pub async fn group_done(&self) -> Result<(), Error> {
        let keys = &self.engine.keys;
        let mut messages = vec![keys.message("group", &self.group)];
        // A root that is alone in its group publishes only that the work is done.
        messages.extend(root_of(&self.group).map(|root| keys.message("done", root)));
        self.wait(messages, || self.engine.is_group_done(&self.group)).await
    }

    /// Waits until the whole group has ended, and returns the last [`crate::Outcome::Result`] of its members.
    pub async fn group<T: DeserializeOwned>(&self) -> Result<Option<T>, Error> {
        self.group_done().await?;
        let result = self.engine.group_result(&self.group).await?;
        Ok(result.map(|text| self.engine.codec.decode(&text)).transpose()?)
    }

    /// Waits until the whole group has ended, and returns every [`crate::Outcome::Append`] of its members, in order.
    pub async fn group_all<T: DeserializeOwned>(&self) -> Result<Vec<T>, Error> {
        self.group_done().await?;
        let (store, keys) = (&self.engine.backend.store, &self.engine.keys);
        let count = self.engine.counter(&keys.appended_count(&self.group)).await?;
        let mut all = Vec::new();
        for n in 1..=count {
            if let Some(text) = store.get(&keys.appended(&self.group, n)).await? {
                all.push(self.engine.codec.decode(&text)?);
            }
        }
        Ok(all)
    }

    /// The state of the work now; see [`crate::Context::state`].
    pub async fn state(&self) -> Result<Option<State>, Error> {
        Ok(self.engine.state(&self.id).await?)
    }

    /// The states of the group's members now; see [`crate::Context::group_states`].
    pub async fn group_states(&self) -> Result<Vec<(String, State)>, Error> {
        Ok(self.engine.group_states(&self.group).await?)
    }

    /// Records that a waiter waits for the group, so that the group is not an orphan.
    async fn record_waiter(&self) -> Result<(), Error> {
        let engine = &self.engine;
        engine.backend.store.set(&engine.keys.group_waiter(&self.group), "1".to_owned(), WAITER_TTL).await?;
        Ok(())
    }

    /// Calls `check` when one of the messages arrives, and every [`CHECK_EVERY`], until it finds something.
    async fn wait<T, F>(&self, messages: Vec<String>, check: impl Fn() -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<Option<T>, PortError>>,
    {
        let engine = &self.engine;
        // Subscribe before the first check: a message after it is then not missed.
        let mut published = engine.backend.pubsub.subscribe();
        if engine.watches_orphans() {
            self.record_waiter().await?;
        }
        if let Some(found) = check().await? {
            return Ok(found);
        }
        let mut recorded_at = None;
        loop {
            let now = engine.clock.now();
            if recorded_at.is_none_or(|recorded_at| now.since(recorded_at) > WAITER_TTL / 2) {
                self.record_waiter().await?;
                recorded_at = Some(now);
            }
            let mut next_check = engine.clock.sleep_until(engine.clock.now().after(CHECK_EVERY));
            let mut expected =
                published.by_ref().filter(|message| std::future::ready(messages.contains(message)));
            tokio::select! {
                message = expected.next() => {
                    if message.is_none() {
                        // The subscription has ended: only the timer is left.
                        (&mut next_check).await;
                    }
                }
                () = &mut next_check => {}
            }
            if let Some(found) = check().await? {
                return Ok(found);
            }
        }
    }
}

impl<O: DeserializeOwned> Handle<O> {
    /// Waits until the work has ended, and returns its result.
    pub async fn result(&self) -> Result<O, Error> {
        let result = self.result_record().await?.into_result(&self.id)?;
        let text = result.ok_or_else(|| Error::NoResult { id: self.id.clone() })?;
        let codec = self.codec.as_ref().unwrap_or(&self.engine.codec);
        Ok(codec.decode(&text)?)
    }
}
