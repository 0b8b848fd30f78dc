//! The result record: how a piece of work ended.

use super::{Engine, State};
use crate::envelope::Envelope;
use crate::error::Error;
use crate::ports::PortError;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ResultRecord {
    kind: String,
    pub(super) round: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) result: Option<String>,
    /// Present if the work failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
    /// The work is the root of its group, and other members had joined when it ended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) joined: bool,
}

impl ResultRecord {
    pub(super) fn completed(envelope: &Envelope, result: Option<String>, joined: bool) -> ResultRecord {
        ResultRecord { kind: envelope.kind.clone(), round: envelope.round, result, error: None, joined }
    }

    pub(super) fn failed(envelope: &Envelope, error: String, joined: bool) -> ResultRecord {
        let (kind, round) = (envelope.kind.clone(), envelope.round);
        ResultRecord { kind, round, result: None, error: Some(error), joined }
    }

    /// The value of the group's counter when all members have ended. This record is the root's. A root with other members
    /// counts itself out without having been counted in, so the counter ends at -1.
    pub(super) fn unfinished_at_end(&self) -> i64 {
        -i64::from(self.joined)
    }

    pub(crate) fn into_state(self) -> State {
        self.error.map_or(State::Completed, |error| State::Failed { error })
    }

    pub(super) fn is_success(&self) -> bool {
        self.error.is_none()
    }

    /// The encoded result, if the work has one.
    pub(crate) fn into_result(self, id: &str) -> Result<Option<String>, Error> {
        match self.error {
            Some(error) => Err(Error::Failed { id: id.to_owned(), kind: self.kind, error }),
            None => Ok(self.result),
        }
    }
}

impl Engine {
    /// `None` if the work has not ended, or if its result is no longer retained.
    pub(crate) async fn result_record(&self, id: &str) -> Result<Option<ResultRecord>, PortError> {
        let key = self.keys.result(id);
        let Some(text) = self.backend.store.get(&key).await? else { return Ok(None) };
        let record = serde_json::from_str(&text);
        record
            .map(Some)
            .map_err(|error| PortError::Refused(format!("{key:?} does not hold a result record: {error}")))
    }

    /// The record of an earlier delivery of the same round. If there is one, only the settle is missing.
    pub(super) async fn earlier_result(
        &self,
        envelope: &Envelope,
    ) -> Result<Option<ResultRecord>, PortError> {
        Ok(self.result_record(&envelope.id).await?.filter(|record| record.round == envelope.round))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn a_stored_result_record_stays_readable() {
        let record = |result: Option<&str>, error: Option<&str>, joined| ResultRecord {
            kind: "k".to_owned(),
            round: 2,
            result: result.map(str::to_owned),
            error: error.map(str::to_owned),
            joined,
        };
        for (record, golden) in [
            (record(Some("1"), None, true), r#"{"kind":"k","round":2,"result":"1","joined":true}"#),
            (record(None, Some("no"), false), r#"{"kind":"k","round":2,"error":"no"}"#),
        ] {
            assert_eq!(serde_json::to_string(&record).unwrap(), golden);
            assert_eq!(serde_json::from_str::<ResultRecord>(golden).unwrap(), record);
            let later = golden.replacen('{', r#"{"added_later":[1],"#, 1);
            assert_eq!(serde_json::from_str::<ResultRecord>(&later).unwrap(), record);
        }
    }
}
