//! A schedule as a record of the store.

use crate::broker::Shared;
use bytes::Bytes;
use std::sync::Arc;
use towline_domain::kv::{KvAnswer, KvCommand, SCHEDULES as PREFIX};
use towline_domain::{Schedule, ScheduleName};
use towline_store::{KvPage, Operation, OperationResult, Reply, Result, StoreError};

/// A schedule, and the stored bytes that a replacement compares.
pub(crate) struct Seen {
    pub(crate) schedule: Schedule,
    pub(crate) bytes: Bytes,
}

pub(crate) fn key(name: &ScheduleName) -> String {
    format!("{PREFIX}{name}")
}

/// With field names, so that later versions with more fields can read it.
pub(crate) fn encode(schedule: &Schedule) -> Result<Bytes> {
    let written = rmp_serde::to_vec_named(schedule);
    written.map(Bytes::from).map_err(|error| StoreError::Unavailable { cause: error.to_string() })
}

fn decode(name: &str, bytes: Bytes) -> Result<Seen> {
    match rmp_serde::from_slice(&bytes) {
        Ok(schedule) => Ok(Seen { schedule, bytes }),
        Err(error) => Err(StoreError::Corrupt { file: format!("schedule {name}"), what: error.to_string() }),
    }
}

impl Shared {
    pub(crate) async fn read_schedule(&self, name: &ScheduleName) -> Result<Option<Seen>> {
        let found = self.store.kv_get(vec![key(name)]).await?.pop().flatten();
        found.map(|record| decode(name.as_str(), record.value)).transpose()
    }

    /// In order of name. A schedule that does not decode is logged and left out.
    pub(crate) async fn list_schedules(
        &self,
        after: Option<&ScheduleName>,
        limit: usize,
    ) -> Result<Vec<Schedule>> {
        let mut schedules = Vec::new();
        let mut after = after.map(key);
        while schedules.len() < limit {
            let page = KvPage { prefix: PREFIX.to_owned(), after, limit: limit - schedules.len() };
            let records = self.store.kv_list(page).await?;
            let Some((last, _)) = records.last() else { break };
            after = Some(last.clone());
            for (key, record) in records {
                match decode(key.trim_start_matches(PREFIX), record.value) {
                    Ok(seen) => schedules.push(seen.schedule),
                    Err(error) => tracing::error!("{error}"),
                }
            }
        }
        Ok(schedules)
    }

    /// Whether the record had not changed since it was read. `None`: no schedule.
    pub(crate) async fn replace_schedule(
        self: &Arc<Self>,
        name: &ScheduleName,
        seen: Option<Bytes>,
        after: Option<&Schedule>,
    ) -> OperationResult<bool> {
        let value = after.map(encode).transpose()?;
        let command = KvCommand::Replace { seen, value, ttl: None };
        let mut answers = Arc::clone(self).update(vec![Operation::Kv { key: key(name), command }]).await?;
        match answers.pop() {
            Some(Ok(Reply::Kv(KvAnswer::Won(won)))) => {
                if won {
                    self.schedule_timers.put(name, after);
                }
                Ok(won)
            }
            Some(Err(error)) => Err(error),
            _ => Err(StoreError::Closed.into()),
        }
    }
}
