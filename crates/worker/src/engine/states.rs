//! How pieces of work stand, for others that ask. That one has ended, or waits for others, is known in any case; that it is queued or
//! runs, and who belongs to a group, is written down in systems that are told to.
//!
//! What is written here keeps no work up: if it cannot be written, others know less.

use super::Shared;
use super::submit::ABREAST;
use crate::envelope::{Envelope, root_of};
use crate::ports::{Answer, Count, PortError};
use futures::stream::{self, StreamExt, TryStreamExt};
use serde::{Deserialize, Serialize};

/// Of a group, at most.
const STATES_MAX: i64 = 1000;

/// How a piece of work stands.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum State {
    /// For others to end.
    Waiting,
    /// For a worker, or for its time.
    Queued,
    /// Somewhere. One whose worker died runs until another has it.
    Running {
        attempt: u32,
    },
    Completed,
    Failed {
        error: String,
    },
}

/// As it is stored while it has not ended.
#[derive(Debug, Serialize, Deserialize)]
struct Noted {
    /// It runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    attempt: Option<u32>,
    round: u32,
}

impl Noted {
    fn state(&self) -> State {
        self.attempt.map_or(State::Queued, |attempt| State::Running { attempt })
    }
}

impl Shared {
    /// It is in the queue for the first time, or will be when others have ended.
    pub(super) async fn note_queued(&self, envelope: &Envelope) {
        if self.config.states {
            let noted = Box::pin(self.write_queued(envelope)).await;
            self.noted_or_not(noted);
        }
    }

    /// It runs from now on; `None`: it waits again.
    pub(super) async fn note(&self, envelope: &Envelope, attempt: Option<u32>) {
        if self.config.states {
            let text = noted(envelope, attempt);
            let key = self.keys.state(&envelope.id);
            let written = self.backend.store.set(&key, text, self.config.unfinished_kept);
            self.noted_or_not(written.await);
        }
    }

    /// It has ended, and that is known.
    pub(super) async fn forget_state(&self, id: &str) {
        if self.config.states {
            self.noted_or_not(self.backend.store.delete(&self.keys.state(id)).await);
        }
    }

    fn noted_or_not(&self, noted: Result<(), PortError>) {
        if let Err(error) = noted {
            self.trouble("noting how something stands", &error);
        }
    }

    async fn write_queued(&self, envelope: &Envelope) -> Result<(), PortError> {
        let (store, kept) = (&self.backend.store, self.config.unfinished_kept);
        if !envelope.is_root() {
            let (group, id) = (&envelope.group, &envelope.id);
            let count = Count { by: 1, once: Some(id) };
            let n = store.increment(&self.keys.members(group), count, kept).await?;
            store.set(&self.keys.member(group, n), id.clone(), kept).await?;
        }
        // It may run by now, or have ended: whoever ended it has stored that, and then forgotten how it stood.
        let key = self.keys.state(&envelope.id);
        if store.set_if_absent(&key, noted(envelope, None), kept).await?
            && self.ended_before(envelope).await?.is_some()
        {
            store.delete(&key).await?;
        }
        Ok(())
    }

    /// `None`: it is not known, or not any more.
    pub(crate) async fn state(&self, id: &str) -> Result<Option<State>, PortError> {
        let (store, record) = (&self.backend.store, self.record(id).await?);
        let text = store.get(&self.keys.state(id)).await?;
        let noted: Option<Noted> = text.and_then(|text| serde_json::from_str(&text).ok());
        match (record, noted) {
            // One that was redriven runs again.
            (Some(record), Some(noted)) if noted.round > record.round() => Ok(Some(noted.state())),
            (Some(record), _) => Ok(Some(record.into_state())),
            (None, Some(noted)) if noted.attempt.is_some() => Ok(Some(noted.state())),
            (None, noted) => {
                if store.get(&self.keys.dependent(id)).await?.is_some() {
                    return Ok(Some(State::Waiting));
                }
                // It may have ended while this looked.
                let ended = self.record(id).await?.map(super::Record::into_state);
                Ok(ended.or(noted.map(|noted| noted.state())))
            }
        }
    }

    /// Of those that are known, in the order in which they were queued; a root is the first.
    pub(crate) async fn group_states(&self, group: &str) -> Result<Vec<(String, State)>, PortError> {
        let count = self.counter(&self.keys.members(group)).await?;
        let members = (1..=count.min(STATES_MAX)).map(|n| self.member(group, n)).collect();
        let members: Vec<Option<String>> = abreast(members).await?;
        let root = root_of(group).map(str::to_owned);
        let ids = root.into_iter().chain(members.into_iter().flatten());
        let states: Vec<Option<(String, State)>> =
            abreast(ids.map(|id| self.named_state(id)).collect()).await?;
        Ok(states.into_iter().flatten().collect())
    }

    fn member(&self, group: &str, n: i64) -> Answer<'_, Option<String>> {
        let key = self.keys.member(group, n);
        Box::pin(async move { self.backend.store.get(&key).await })
    }

    fn named_state(&self, id: String) -> Answer<'_, Option<(String, State)>> {
        Box::pin(async move {
            let state = self.state(&id).await?;
            Ok(state.map(|state| (id, state)))
        })
    }
}

/// Several at a time; in order.
async fn abreast<T>(calls: Vec<Answer<'_, T>>) -> Result<Vec<T>, PortError> {
    stream::iter(calls).buffered(ABREAST).try_collect().await
}

/// Numbers alone: it can always be written.
fn noted(envelope: &Envelope, attempt: Option<u32>) -> String {
    serde_json::to_string(&Noted { attempt, round: envelope.round }).unwrap_or_default()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use crate::envelope::Envelope;
    use crate::{Outcome, State, System, work};

    #[tokio::test]
    async fn who_notes_too_late_that_something_was_queued_leaves_nothing_behind() {
        let quick = work("quick", |(): (), _| async { Ok(Outcome::Result(())) });
        let system = System::in_memory().work(&quick).keep_states().start().unwrap();
        let handle = system.queue(quick.of(())).await.unwrap();
        handle.done().await.unwrap();
        system.idle().await.unwrap();
        let (id, shared) = (handle.id(), &system.shared);
        let envelope = format!(
            r#"{{"id":"{id}","kind":"quick","input":"null","group":"{}","queued_at":0}}"#,
            handle.group_id()
        );
        shared.note_queued(&Envelope::read(&envelope).unwrap()).await;
        // It would be there longer than the record.
        assert_eq!(shared.backend.store.get(&shared.keys.state(id)).await, Ok(None));
        assert_eq!(handle.state().await, Ok(Some(State::Completed)));
    }
}
