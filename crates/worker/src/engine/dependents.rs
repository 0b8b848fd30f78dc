//! Work that waits for other work without holding anything: it lies in the store until its time has come.
//!
//! Whoever ends tells those who wait for it; who begins to wait looks whether those have ended already. Both may do
//! it, and each may die and do it again: what is counted is counted once for each that ended, and the push that
//! follows carries the name of the work, so that it is queued once.

use super::submit::ABREAST;
use super::{Placed, Record, Shared, Submitted};
use crate::envelope::Envelope;
use crate::error::Error;
use crate::outcome::When;
use crate::ports::{Answer, Count, PortError};
use crate::work::AnyJob;
use futures::stream::{self, StreamExt, TryStreamExt};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

#[derive(Debug, Serialize, Deserialize)]
struct Waiting {
    envelope: Envelope,
    when: When,
    /// How many it waits for.
    of: u32,
}

/// What is to be done with who waits.
#[derive(Debug, PartialEq, Eq)]
enum Turn {
    NotYet,
    Go,
    /// What it waits for cannot come any more.
    Never,
}

impl When {
    /// `ended` is how many have, `well` how many of them at some time did so well: one that did not may be redriven.
    fn turn(self, of: u32, ended: i64, well: i64) -> Turn {
        let (of, badly) = (i64::from(of), ended - well);
        match self {
            When::AllDone if ended >= of => Turn::Go,
            When::AllSuccess if well >= of => Turn::Go,
            When::AllSuccess if badly > 0 => Turn::Never,
            When::Count(n) if well >= i64::from(n) => Turn::Go,
            When::Count(n) if of - badly < i64::from(n) => Turn::Never,
            When::AllDone | When::AllSuccess | When::Count(_) => Turn::NotYet,
        }
    }
}

impl Shared {
    /// Queues the job when those have ended.
    pub(crate) async fn submit_after(
        self: &Arc<Shared>,
        job: &AnyJob,
        from: Submitted<'_>,
        ids: &[String],
        when: When,
    ) -> Result<Placed, Error> {
        let mut ids = ids.to_vec();
        ids.sort();
        ids.dedup();
        if let When::Count(n) = when
            && n as usize > ids.len()
        {
            let told = format!("{n} of {} cannot end well; wait for fewer", ids.len());
            return Err(Error::Configuration(told));
        }
        let prepared = self.prepare(job, from)?;
        let (envelope, kept) = (prepared.envelope, self.config.unfinished_kept);
        let placed = Placed::of(&envelope);
        let id = &placed.id;
        let of = u32::try_from(ids.len()).unwrap_or(u32::MAX);
        let waiting = Waiting { envelope, when, of };
        let text =
            serde_json::to_string(&waiting).map_err(|error| Error::Configuration(error.to_string()))?;
        let store = &self.backend.store;
        store.set(&self.keys.dependent(id), text, kept).await?;
        // Before anybody can queue it.
        self.open_group(&waiting.envelope).await?;
        self.note_queued(&waiting.envelope).await;
        let waits: Vec<Answer<'_, bool>> = ids.iter().map(|other| self.wait_for(id, other)).collect();
        let ended: Vec<bool> = stream::iter(waits).buffer_unordered(ABREAST).try_collect().await?;
        if ids.is_empty() || ended.contains(&true) {
            self.look(id).await?;
        }
        Ok(placed)
    }

    /// `true`: the other one had ended before, and that is counted.
    fn wait_for<'a>(&'a self, id: &'a str, other: &'a str) -> Answer<'a, bool> {
        let (store, kept) = (&self.backend.store, self.config.unfinished_kept);
        Box::pin(async move {
            let count = Count { by: 1, once: Some(id) };
            let n = store.increment(&self.keys.waiters(other), count, kept).await?;
            store.set(&self.keys.waiter(other, n), id.to_owned(), kept).await?;
            // It may have ended before it knew.
            let record = self.record(other).await?;
            if let Some(record) = &record {
                self.count_met(id, other, record.is_well()).await?;
            }
            Ok(record.is_some())
        })
    }

    /// Tells those who wait that this one has ended.
    pub(crate) async fn tell_dependents(
        self: &Arc<Shared>,
        id: &str,
        record: &Record,
    ) -> Result<(), PortError> {
        for dependent in self.dependents(id).await? {
            Box::pin(self.met(&dependent, id, record.is_well())).await?;
        }
        Ok(())
    }

    pub(crate) async fn dependents(&self, id: &str) -> Result<Vec<String>, PortError> {
        let store = &self.backend.store;
        let count = self.counter(&self.keys.waiters(id)).await?;
        let mut dependents = Vec::new();
        for n in 1..=count {
            // One who is not there yet looks for itself.
            dependents.extend(store.get(&self.keys.waiter(id, n)).await?);
        }
        Ok(dependents)
    }

    async fn met(self: &Arc<Shared>, dependent: &str, id: &str, well: bool) -> Result<(), PortError> {
        self.count_met(dependent, id, well).await?;
        self.look(dependent).await
    }

    async fn count_met(&self, dependent: &str, id: &str, well: bool) -> Result<(), PortError> {
        let count = Count { by: 1, once: Some(id) };
        let (store, kept) = (&self.backend.store, self.config.unfinished_kept);
        // In this order: one that ended well is never seen as one that did not.
        if well {
            store.increment(&self.keys.met(dependent, "well"), count, kept).await?;
        }
        store.increment(&self.keys.met(dependent, "ended"), count, kept).await.map(drop)
    }

    /// Queues it if its time has come, fails it if that cannot come.
    async fn look(self: &Arc<Shared>, dependent: &str) -> Result<(), PortError> {
        let store = &self.backend.store;
        let key = self.keys.dependent(dependent);
        let Some(text) = store.get(&key).await? else { return Ok(()) };
        let waiting: Waiting =
            serde_json::from_str(&text).map_err(|error| PortError::Refused(format!("{key}: {error}")))?;
        let ended = self.counter(&self.keys.met(dependent, "ended")).await?;
        let well = self.counter(&self.keys.met(dependent, "well")).await?;
        match waiting.when.turn(waiting.of, ended, well) {
            Turn::NotYet => return Ok(()),
            Turn::Go => {
                let kind = self.kinds.get(waiting.envelope.kind.as_str()).cloned();
                let queue = kind.as_ref().map_or(&self.backend.queue, |kind| self.queue_of(kind));
                self.push(&waiting.envelope, queue, true).await?;
            }
            Turn::Never => {
                let badly = ended - well;
                let error = format!("{badly} of the {} it waited for did not end well", waiting.of);
                let joined = self.is_joined(&waiting.envelope).await?;
                let record = Record::failed(&waiting.envelope, error, joined);
                Box::pin(self.ended(&waiting.envelope, &record)).await?;
            }
        }
        store.delete(&key).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns() {
        assert_eq!(When::AllDone.turn(3, 2, 1), Turn::NotYet);
        assert_eq!(When::AllDone.turn(3, 3, 1), Turn::Go);
        assert_eq!(When::AllDone.turn(0, 0, 0), Turn::Go);
        assert_eq!(When::AllSuccess.turn(2, 1, 1), Turn::NotYet);
        assert_eq!(When::AllSuccess.turn(2, 2, 2), Turn::Go);
        assert_eq!(When::AllSuccess.turn(2, 1, 0), Turn::Never);
        assert_eq!(When::AllSuccess.turn(2, 1, 2), Turn::Go, "the second is not counted as ended yet");
        assert_eq!(When::Count(2).turn(3, 2, 1), Turn::NotYet);
        assert_eq!(When::Count(2).turn(3, 2, 2), Turn::Go);
        assert_eq!(When::Count(2).turn(3, 3, 1), Turn::Never);
        assert_eq!(When::Count(0).turn(3, 0, 0), Turn::Go);
    }
}
