//! The states of work, for programs that ask. The engine always knows that work has ended or waits for dependencies. It
//! stores that work is pending or processing, and which members a group has, only in systems that track states.
//!
//! Tracking never holds work up: if a write fails, the engine reports it, and the state is unknown.

use super::{CONCURRENT_CALLS_MAX, Engine, ResultRecord};
use crate::envelope::{Envelope, root_of};
use crate::ports::{Increment, PortError, PortFuture};
use futures::stream::{self, StreamExt, TryStreamExt};
use serde::{Deserialize, Serialize};

/// The most members of a group whose states are returned.
const MEMBERS_MAX: i64 = 1000;

/// The state of a piece of work.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum State {
    /// It waits for its dependencies.
    Waiting,
    /// It waits in the queue, for a worker or for its start time.
    Pending,
    /// A worker runs it. Work whose worker died stays in this state until another worker gets it.
    Processing {
        attempt: u32,
    },
    Completed,
    Failed {
        error: String,
    },
}

/// The stored state of work that has not ended.
#[derive(Debug, Serialize, Deserialize)]
struct UnfinishedState {
    /// Present while the work is processing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    attempt: Option<u32>,
    round: u32,
}

impl UnfinishedState {
    /// Numbers alone can always be written.
    fn text(envelope: &Envelope, attempt: Option<u32>) -> String {
        serde_json::to_string(&UnfinishedState { attempt, round: envelope.round }).unwrap_or_default()
    }
}

impl From<UnfinishedState> for State {
    fn from(unfinished: UnfinishedState) -> State {
        unfinished.attempt.map_or(State::Pending, |attempt| State::Processing { attempt })
    }
}

impl Engine {
    /// Stores the state of work that was submitted, or that waits for its dependencies.
    pub(super) async fn mark_submitted(&self, envelope: &Envelope) {
        if self.config.track_states {
            let marked = Box::pin(self.store_submitted(envelope)).await;
            self.report_untracked(marked);
        }
    }

    pub(super) async fn mark_processing(&self, envelope: &Envelope, attempt: u32) {
        self.mark(envelope, Some(attempt)).await;
    }

    pub(super) async fn mark_pending(&self, envelope: &Envelope) {
        self.mark(envelope, None).await;
    }

    async fn mark(&self, envelope: &Envelope, attempt: Option<u32>) {
        if self.config.track_states {
            let text = UnfinishedState::text(envelope, attempt);
            let key = self.keys.state(&envelope.id);
            let marked = self.backend.store.set(&key, text, self.config.unfinished_retention).await;
            self.report_untracked(marked);
        }
    }

    /// Removes the state of work whose result is stored.
    pub(super) async fn remove_state(&self, id: &str) {
        if self.config.track_states {
            self.report_untracked(self.backend.store.delete(&self.keys.state(id)).await);
        }
    }

    fn report_untracked(&self, marked: Result<(), PortError>) {
        if let Err(error) = marked {
            self.report_error("store a state", &error);
        }
    }

    async fn store_submitted(&self, envelope: &Envelope) -> Result<(), PortError> {
        let (store, retention) = (&self.backend.store, self.config.unfinished_retention);
        if !envelope.is_root() {
            let (group, id) = (&envelope.group, &envelope.id);
            let increment = Increment { by: 1, once: Some(id) };
            let n = store.increment(&self.keys.member_count(group), increment, retention).await?;
            store.set(&self.keys.member(group, n), id.clone(), retention).await?;
        }
        // The work may have started or even ended by now. The engine stores a result before it removes the state. So if a
        // result is there, the removal may have come before this write, and the state must be removed here.
        let key = self.keys.state(&envelope.id);
        if store.set_if_absent(&key, UnfinishedState::text(envelope, None), retention).await?
            && self.earlier_result(envelope).await?.is_some()
        {
            store.delete(&key).await?;
        }
        Ok(())
    }

    /// `None` if the work is unknown or no longer retained.
    pub(crate) async fn state(&self, id: &str) -> Result<Option<State>, PortError> {
        let (store, record) = (&self.backend.store, self.result_record(id).await?);
        let text = store.get(&self.keys.state(id)).await?;
        let unfinished: Option<UnfinishedState> = text.and_then(|text| serde_json::from_str(&text).ok());
        match (record, unfinished) {
            // The work failed in an earlier round and was redriven.
            (Some(record), Some(unfinished)) if unfinished.round > record.round => {
                Ok(Some(unfinished.into()))
            }
            (Some(record), _) => Ok(Some(record.into_state())),
            (None, Some(unfinished)) if unfinished.attempt.is_some() => Ok(Some(unfinished.into())),
            (None, unfinished) => {
                if store.get(&self.keys.dependent(id)).await?.is_some() {
                    return Ok(Some(State::Waiting));
                }
                // The work may have ended between the first read and this one.
                let ended = self.result_record(id).await?.map(ResultRecord::into_state);
                Ok(ended.or(unfinished.map(State::from)))
            }
        }
    }

    /// The states of the known members, in the order in which they were submitted. A root comes first.
    pub(crate) async fn group_states(&self, group: &str) -> Result<Vec<(String, State)>, PortError> {
        let count = self.counter(&self.keys.member_count(group)).await?;
        let members = (1..=count.min(MEMBERS_MAX)).map(|n| self.member(group, n)).collect();
        let members: Vec<Option<String>> = concurrently(members).await?;
        let root = root_of(group).map(str::to_owned);
        let ids = root.into_iter().chain(members.into_iter().flatten());
        let states: Vec<Option<(String, State)>> =
            concurrently(ids.map(|id| self.state_with_id(id)).collect()).await?;
        Ok(states.into_iter().flatten().collect())
    }

    fn member(&self, group: &str, n: i64) -> PortFuture<'_, Option<String>> {
        let key = self.keys.member(group, n);
        Box::pin(async move { self.backend.store.get(&key).await })
    }

    fn state_with_id(&self, id: String) -> PortFuture<'_, Option<(String, State)>> {
        Box::pin(async move {
            let state = self.state(&id).await?;
            Ok(state.map(|state| (id, state)))
        })
    }
}

/// Makes several calls at a time. The results are in the order of the calls.
async fn concurrently<T>(calls: Vec<PortFuture<'_, T>>) -> Result<Vec<T>, PortError> {
    stream::iter(calls).buffered(CONCURRENT_CALLS_MAX).try_collect().await
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use crate::envelope::Envelope;
    use crate::{Outcome, State, System, work};

    #[tokio::test]
    async fn marking_ended_work_as_submitted_leaves_no_state_behind() {
        let quick = work("quick", |(): (), _| async { Ok(Outcome::Result(())) });
        let system = System::in_memory().work(&quick).track_states().start().unwrap();
        let handle = system.submit(quick.of(())).await.unwrap();
        handle.done().await.unwrap();
        system.idle().await.unwrap();
        let (id, engine) = (handle.id(), &system.engine);
        let envelope = format!(
            r#"{{"id":"{id}","kind":"quick","input":"null","group":"{}","submitted_at":0}}"#,
            handle.group_id()
        );
        engine.mark_submitted(&Envelope::read(&envelope).unwrap()).await;
        // A state that stays would outlive the result record.
        assert_eq!(engine.backend.store.get(&engine.keys.state(id)).await, Ok(None));
        assert_eq!(handle.state().await, Ok(Some(State::Completed)));
    }
}
