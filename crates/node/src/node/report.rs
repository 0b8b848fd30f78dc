//! What the node tells the server about an item: its status, and how it ended.

use super::holds::Hold;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;
use towline_api::payload::Payload;
use towline_api::{Action, ClientError, Code, FieldsBody, HandOffBody, VerbName};

/// How often a hand-off to a full queue is tried again, and for how long.
const FULL_PAUSE: Duration = Duration::from_secs(1);
const FULL_TRIES: u32 = 60;

/// A status that goes along with a call.
pub(super) type Status = Option<Vec<u8>>;

pub(super) fn status(status: &impl Serialize) -> Status {
    // Cannot fail: a status is text and numbers.
    serde_json::to_vec(status).ok()
}

impl Hold {
    fn action(&self, verb: VerbName, status: Status) -> Action {
        let set = status.map(|status| {
            Box::new(FieldsBody {
                state_blob: Some(Payload::from(bytes::Bytes::from(status))),
                ..FieldsBody::default()
            })
        });
        Action { set, ..Action::new(verb, self.id, self.lease) }
    }

    /// Reports a status and keeps the lease. A report that does not arrive is missed by people only.
    pub(super) async fn report(&self, status: Status) {
        if let Err(error) = self.client.act(self.action(VerbName::Edit, status)).await {
            tracing::warn!("cannot report the status of item {}: {error}", self.id);
        }
    }

    /// Completes the item, and submits items to other queues in the same step.
    pub(super) async fn commit(
        &self,
        outputs: BTreeMap<String, String>,
        then_submit: Vec<HandOffBody>,
        status: Status,
    ) -> Result<(), ClientError> {
        let action = Action { outputs, then_submit, ..self.action(VerbName::Commit, status) };
        for _ in 0..FULL_TRIES {
            match self.client.act(action.clone()).await {
                Err(error) if error.code() == Some(Code::QueueFull) => tokio::time::sleep(FULL_PAUSE).await,
                ended => return ended.map(drop),
            }
        }
        self.client.act(action).await.map(drop)
    }

    /// Ends the item as failed.
    pub(super) async fn fail(&self, reason: String, status: Status) {
        self.settle(Action { reason: Some(reason), ..self.action(VerbName::Fail, status) }).await;
    }

    /// Ends the item as cancelled.
    pub(super) async fn cancel(&self, reason: String, status: Status) {
        self.settle(Action { reason: Some(reason), ..self.action(VerbName::Cancel, status) }).await;
    }

    /// Ends this attempt with an error. It counts.
    pub(super) async fn retry(&self, error: String, delay: Option<Duration>, status: Status) {
        let delay = delay.map(Into::into);
        self.settle(Action { reason: Some(error), delay, ..self.action(VerbName::Retry, status) }).await;
    }

    /// Gives the item back, for another node. It does not count.
    pub(super) async fn give_back(&self, status: Status) {
        self.settle(self.action(VerbName::Defer, status)).await;
    }

    async fn settle(&self, action: Action) {
        if let Err(error) = self.client.act(action).await {
            // Its lease lapses, and another node takes it.
            tracing::warn!("cannot settle item {}: {error}", self.id);
        }
    }
}
