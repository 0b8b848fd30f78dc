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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::golden;
    use towline_domain::schedule::{CatchUp, Overlap, Rhythm, ScheduleError, ScheduleTally, Spec, Template};
    use towline_domain::{Body, ItemId, Millis, Overrides, Timestamp};

    #[test]
    fn a_stored_schedule_stays_readable() {
        let body = Body { tags: [("k".to_owned(), "v".to_owned())].into(), ..Body::default() };
        let item = Template {
            priority: -1,
            delay: Millis(5),
            overrides: Overrides { max_retries: Some(2), ..Overrides::default() },
            body,
            blob: Some(Bytes::from_static(b"payload")),
            ..Template::default()
        };
        let spec = Spec {
            queue: "jobs".parse().unwrap(),
            rhythm: Rhythm::Cron { cron: "0 6 * * *".to_owned(), time_zone: "Europe/Berlin".to_owned() },
            start: Some(Timestamp(1)),
            end: Some(Timestamp(2)),
            jitter: Some(Millis(3)),
            catch_up: CatchUp::All { max: 4 },
            overlap: Overlap::Skip,
            item,
        };
        let error = ScheduleError {
            at: Timestamp(5),
            occurrence: Timestamp(6),
            code: "queue_full".to_owned(),
            message: "no room".to_owned(),
        };
        let schedule = Schedule {
            name: "nightly".parse().unwrap(),
            uid: uuid::Uuid::from_u128(7),
            spec,
            created_at: Timestamp(8),
            changed_at: Timestamp(9),
            anchor: Timestamp(10),
            paused: true,
            next: Some(Timestamp(11)),
            last: Some(Timestamp(12)),
            last_item: Some(ItemId(uuid::Uuid::from_u128(13))),
            tally: ScheduleTally { submitted: 14, missed: 15, skipped: 16, refused: 17 },
            error: Some(error),
        };
        golden::check(&schedule, GOLDEN);
    }

    const GOLDEN: &str = concat!(
        "8ca46e616d65a76e696768746c79a3756964c41000000000000000000000000000000007a47370656388a57175657565",
        "a46a6f6273a672687974686d81a443726f6e82a463726f6ea9302036202a202a202aa974696d655f7a6f6e65ad457572",
        "6f70652f4265726c696ea5737461727401a3656e6402a66a697474657203a863617463685f757081a3416c6c81a36d61",
        "7804a76f7665726c6170a4536b6970a46974656d88a87072696f72697479ffa564656c617905a96f7665727269646573",
        "87ab6d61785f7265747269657302a76261636b6f6666c0ad636f6d706c657465645f74746cc0aa6661696c65645f7474",
        "6cc0ac6578706972655f6166746572c0ad676976655f75705f6166746572c0a6756e69717565c0a4626f64798eaf6964",
        "656d706f74656e63795f6b6579c0a5636c61696dc0a47461677381a16ba176ac666169726e6573735f6b6579c0a56772",
        "6f7570c0a6706172656e74c0a6736f75726365c0a6696e7075747380a6706172616d7380a3666565c0aa73697a655f62",
        "79746573c0a474696572c0a57472616365c0ab7265706c6163655f6b6579c0aa73746174655f626c6f62c0a4626c6f62",
        "c4077061796c6f6164a86d65746164617461c0aa706172616d6574657273c0aa637265617465645f617408aa6368616e",
        "6765645f617409a6616e63686f720aa6706175736564c3a46e6578740ba46c6173740ca96c6173745f6974656dc41000",
        "00000000000000000000000000000da574616c6c7984a97375626d69747465640ea66d69737365640fa7736b69707065",
        "6410a77265667573656411a56572726f7284a2617405aa6f6363757272656e636506a4636f6465aa71756575655f6675",
        "6c6ca76d657373616765a76e6f20726f6f6d",
    );
}
