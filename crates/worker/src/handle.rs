//! Waiting for what was queued, wherever it is done.

use crate::codec::Codec;
use crate::engine::{Placed, Shared, State};
use crate::envelope::root_of;
use crate::error::Error;
use futures::StreamExt;
use serde::de::DeserializeOwned;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

/// A message that was missed costs no more than this.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How long it is known that somebody waits.
const WAIT_KEPT: Duration = Duration::from_secs(3600);

/// A piece of work that was queued.
///
/// Waiting has no end of its own: for work that never was, or whose result is no longer kept, it takes for ever.
pub struct Handle<O> {
    shared: Arc<Shared>,
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
    pub(crate) fn new(shared: Arc<Shared>, placed: Placed, codec: Option<Arc<dyn Codec>>) -> Handle<O> {
        Handle { shared, id: placed.id, group: placed.group, codec, result: PhantomData }
    }

    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// What it and everything that came of it belong to.
    #[must_use]
    pub fn group_id(&self) -> &str {
        &self.group
    }

    /// Waits until it has ended: well, or with an error.
    pub async fn done(&self) -> Result<(), Error> {
        self.ended().await?.into_result(&self.id).map(drop)
    }

    async fn ended(&self) -> Result<crate::engine::Record, Error> {
        let said = vec![self.shared.keys.said("done", &self.id)];
        self.until(said, || self.shared.record(&self.id)).await
    }

    /// Waits until the whole group has ended.
    pub async fn group_done(&self) -> Result<(), Error> {
        let keys = &self.shared.keys;
        let mut said = vec![keys.said("group", &self.group)];
        // Of a root that is alone, only that is said.
        said.extend(root_of(&self.group).map(|root| keys.said("done", root)));
        self.until(said, || self.shared.is_group_done(&self.group)).await
    }

    /// Waits until the whole group has ended: what was last said to be its result.
    pub async fn group<T: DeserializeOwned>(&self) -> Result<Option<T>, Error> {
        self.group_done().await?;
        let result = self.shared.group_result(&self.group).await?;
        Ok(result.map(|text| self.shared.codec.decode(&text)).transpose()?)
    }

    /// Waits until the whole group has ended: everything that was appended, in order.
    pub async fn group_all<T: DeserializeOwned>(&self) -> Result<Vec<T>, Error> {
        self.group_done().await?;
        let (store, keys) = (&self.shared.backend.store, &self.shared.keys);
        let count = self.shared.counter(&keys.appended(&self.group)).await?;
        let mut all = Vec::new();
        for n in 1..=count {
            if let Some(text) = store.get(&keys.append(&self.group, n)).await? {
                all.push(self.shared.codec.decode(&text)?);
            }
        }
        Ok(all)
    }

    /// How it stands, at this moment; see [`crate::Context::state`].
    pub async fn state(&self) -> Result<Option<State>, Error> {
        Ok(self.shared.state(&self.id).await?)
    }

    /// How those stand that belong to its group, at this moment; see [`crate::Context::group_states`].
    pub async fn group_states(&self) -> Result<Vec<(String, State)>, Error> {
        Ok(self.shared.group_states(&self.group).await?)
    }

    /// Says that somebody waits for the group.
    async fn waits(&self) -> Result<(), Error> {
        let shared = &self.shared;
        shared.backend.store.set(&shared.keys.waited(&self.group), "1".to_owned(), WAIT_KEPT).await?;
        Ok(())
    }

    /// Looks whenever one of these is said, and now and then.
    async fn until<T, F>(&self, said: Vec<String>, look: impl Fn() -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<Option<T>, crate::ports::PortError>>,
    {
        let shared = &self.shared;
        // Before the first look: what is said after it is heard, and nobody is called about what is waited for.
        let mut heard = shared.backend.pubsub.subscribe();
        if shared.is_told_of_orphans() {
            self.waits().await?;
        }
        if let Some(found) = look().await? {
            return Ok(found);
        }
        let mut said_at = None;
        loop {
            let now = shared.clock.now();
            if said_at.is_none_or(|said_at| now.since(said_at) > WAIT_KEPT / 2) {
                self.waits().await?;
                said_at = Some(now);
            }
            let mut again = shared.clock.sleep_until(shared.clock.now().after(LOOK_EVERY));
            let mut told = heard.by_ref().filter(|message| std::future::ready(said.contains(message)));
            tokio::select! {
                message = told.next() => {
                    if message.is_none() {
                        // Nobody will say anything any more.
                        (&mut again).await;
                    }
                }
                () = &mut again => {}
            }
            if let Some(found) = look().await? {
                return Ok(found);
            }
        }
    }
}

impl<O: DeserializeOwned> Handle<O> {
    /// Waits until it has ended: its result.
    pub async fn result(&self) -> Result<O, Error> {
        let result = self.ended().await?.into_result(&self.id)?;
        let text = result.ok_or_else(|| Error::NoResult { id: self.id.clone() })?;
        let codec = self.codec.as_ref().unwrap_or(&self.shared.codec);
        Ok(codec.decode(&text)?)
    }
}
