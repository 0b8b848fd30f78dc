//! The inbox of `enqueue`: servers submit its entries in batches, in order.
//!
//! **Invariant:** an entry leaves the inbox in the transaction that submits it or records why it was refused. If two servers
//! submit the same entries, the second one to delete them finds fewer rows and starts again.

use crate::batch::attempt::{Attempt, AttemptOptions, attempt};
use crate::batch::outcome::Outcome;
use crate::connection::session::Session;
use crate::encoding::sql::timestamp;
use crate::error::Failure;
use crate::read::Reader;
use crate::statements::query;
use crate::store::Shared;
use bytes::Bytes;
use serde_json::value::RawValue;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio_postgres::Row;
use towline_domain::change::Answer;
use towline_domain::command::When;
use towline_domain::{Body, Fields, ItemId, Json, Millis, Overrides, QueueName, Refusal, Submission};
use towline_store::{Operation, Reply, StoreError};

/// How many entries, and how many bytes of payload, one batch submits.
const ENTRIES_MAX: i64 = 512;
const BYTES_MAX: i64 = 8 << 20;
/// How often the inbox is checked without a notification, and how often while notifications arrive.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
const POLL_INTERVAL_NOTIFIED: Duration = Duration::from_secs(5);
/// Pause after a conflict with another server, or a fault.
const BACK_OFF_MIN: Duration = Duration::from_millis(25);
const BACK_OFF_MAX: Duration = Duration::from_secs(2);
/// How often one batch is attempted.
const ATTEMPTS_MAX: u32 = 64;

/// An entry that is being submitted.
#[derive(Debug)]
struct InboxEntry {
    position: i64,
    id: ItemId,
    /// Set if the entry is not a valid submit: the code and the reason.
    invalid: Option<(&'static str, String)>,
}

/// The entries that the next batch of a session submits.
#[derive(Debug, Default)]
pub(crate) struct InboxBatch(Vec<InboxEntry>);

/// Submits entries until it is dropped.
pub(crate) async fn run(shared: Arc<Shared>, reader: Reader) {
    let mut drainer = InboxDrainer { shared, reader, session: None, full: BTreeSet::new() };
    let mut back_off = BACK_OFF_MIN;
    let mut entries_max = ENTRIES_MAX;
    loop {
        match drainer.submit_next(entries_max).await {
            Ok(0) => {
                back_off = BACK_OFF_MIN;
                drainer.wait().await;
                drainer.full.clear();
            }
            Ok(_) => {
                back_off = BACK_OFF_MIN;
                entries_max = ENTRIES_MAX.min(entries_max * 2);
            }
            Err(failure) => {
                drainer.session = None;
                if let Failure::Fault(error) = &failure {
                    tracing::warn!(%error, "cannot submit entries of the inbox; they stay there");
                    // One at a time, so that one bad entry does not block the next.
                    entries_max = 1;
                }
                tokio::time::sleep(back_off).await;
                back_off = BACK_OFF_MAX.min(back_off * 2);
            }
        }
    }
}

struct InboxDrainer {
    shared: Arc<Shared>,
    reader: Reader,
    session: Option<Session>,
    /// Queues that were full.
    full: BTreeSet<String>,
}

impl InboxDrainer {
    async fn wait(&self) {
        let exchange = &self.shared.exchange;
        let interval = if exchange.is_listening() { POLL_INTERVAL_NOTIFIED } else { POLL_INTERVAL };
        let _ = tokio::time::timeout(interval, exchange.inbox.notified()).await;
    }

    /// Submits the next entries. Returns how many left the inbox.
    async fn submit_next(&mut self, entries_max: i64) -> Result<usize, Failure> {
        let Some(rows) = self.read_next(entries_max).await? else { return Ok(0) };
        let shared = Arc::clone(&self.shared);
        let (mut entries, mut operations, mut queues) = (Vec::new(), Vec::new(), Vec::new());
        for row in &rows {
            let operation = read_operation(row);
            let invalid = operation.as_ref().err().map(|refusal| (refusal.code(), refusal.to_string()));
            entries.push(InboxEntry { position: row.get(0), id: ItemId(row.get(1)), invalid });
            queues.push(row.get::<_, String>(2));
            operations.extend(operation.ok());
        }
        let session = self.session().await?;
        session.inbox_batch = Some(InboxBatch(entries));
        let mut locks = BTreeSet::new();
        for _ in 0..ATTEMPTS_MAX {
            let options = AttemptOptions { locks: &locks, sweep: false, patient: false, thorough: true };
            match attempt(session, &shared, &operations, options).await? {
                Attempt::Done(done) => {
                    let batch = session.inbox_batch.take().unwrap_or_default();
                    let deferred = batch.deferred(&done.outcomes);
                    self.full.extend(deferred.iter().map(|&at| queues[at].clone()));
                    shared.exchange.submitted_from_inbox(&operations, &done.effects);
                    return Ok(rows.len() - deferred.len());
                }
                Attempt::Again(more) => locks.extend(more),
                Attempt::Later | Attempt::Moved => {}
                // If the commit took place, the entries are not in the inbox any more.
                Attempt::Unknown { cause, .. } => return Err(Failure::Lost(cause)),
            }
        }
        Err(Failure::Conflict("other batches change the queues all the time".to_owned()))
    }

    /// Reads the next entries, as many as fit into a batch.
    async fn read_next(&mut self, entries_max: i64) -> Result<Option<Vec<Row>>, Failure> {
        let full: Vec<String> = self.full.iter().cloned().collect();
        let client = self.reader.client().await?;
        let positions = client.prepare_cached(query!("find_inbox_entries")).await?;
        let positions: Vec<i64> = client
            .query(&positions, &[&full, &entries_max, &BYTES_MAX])
            .await?
            .iter()
            .map(|row| row.get(0))
            .collect();
        if positions.is_empty() {
            return Ok(None);
        }
        let entries = client.prepare_cached(query!("read_inbox_entries")).await?;
        Ok(Some(client.query(&entries, &[&positions]).await?))
    }

    async fn session(&mut self) -> Result<&mut Session, StoreError> {
        let session = match self.session.take().filter(|session| !session.client.is_closed()) {
            Some(session) => session,
            None => {
                let Shared { target, schema, locks, .. } = &*self.shared;
                Session::open(target, schema, *locks).await?
            }
        };
        Ok(self.session.insert(session))
    }
}

/// How the submit of an entry ended.
enum EntryEnd {
    Submitted,
    /// Its queue is full: the entry stays in the inbox.
    Deferred,
    Refused(&'static str, String),
}

impl InboxBatch {
    /// How each entry ended, in order. Invalid entries have no outcome.
    fn ends(&self, outcomes: &[Outcome]) -> Vec<EntryEnd> {
        let mut outcomes = outcomes.iter();
        let end = |entry: &InboxEntry| match &entry.invalid {
            Some((code, reason)) => EntryEnd::Refused(code, reason.clone()),
            None => match outcomes.next() {
                Some(Outcome::Decided(Err(Refusal::QueueFull { .. }))) => EntryEnd::Deferred,
                Some(Outcome::Decided(Err(refusal))) => {
                    EntryEnd::Refused(refusal.code(), refusal.to_string())
                }
                // `enqueue` promised its caller another id.
                Some(Outcome::Decided(Ok(Reply::Answer(Answer::Submitted { id, created: false }))))
                    if *id != entry.id =>
                {
                    EntryEnd::Refused(
                        "key_conflict",
                        format!("its idempotency key belongs to item {id}, which was submitted earlier"),
                    )
                }
                _ => EntryEnd::Submitted,
            },
        };
        self.0.iter().map(end).collect()
    }

    /// Indexes of the entries that stay in the inbox.
    fn deferred(&self, outcomes: &[Outcome]) -> Vec<usize> {
        let ends = self.ends(outcomes);
        (0..ends.len()).filter(|&at| matches!(ends[at], EntryEnd::Deferred)).collect()
    }
}

/// Deletes the entries of the session's batch from the inbox and records the refused ones, in the batch's transaction.
pub(crate) async fn settle(session: &Session, outcomes: &[Outcome]) -> Result<(), Failure> {
    let Some(batch) = &session.inbox_batch else { return Ok(()) };
    let (mut deleted, mut refused, mut codes, mut reasons) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (entry, end) in batch.0.iter().zip(batch.ends(outcomes)) {
        match end {
            EntryEnd::Deferred => continue,
            EntryEnd::Submitted => {}
            EntryEnd::Refused(code, reason) => {
                tracing::warn!(id = %entry.id, code, reason, "an entry of the inbox was refused; see inbox_refused");
                refused.push(entry.position);
                codes.push(code);
                reasons.push(reason.replace('\0', "\u{fffd}"));
            }
        }
        deleted.push(entry.position);
    }
    if !refused.is_empty() {
        session.client.execute(query!("refuse_inbox_entries"), &[&refused, &codes, &reasons]).await?;
    }
    let count = session.client.execute(query!("delete_inbox_entries"), &[&deleted]).await?;
    if count != deleted.len() as u64 {
        return Err(Failure::Conflict("another server submits the same entries".to_owned()));
    }
    Ok(())
}

fn read_operation(row: &Row) -> Result<Operation, Refusal> {
    let queue: &str = row.get(2);
    let queue: QueueName = queue.parse().map_err(|_| Refusal::QueueNotFound { name: queue.to_owned() })?;
    let params = object(row.get(6)).map_err(|error| invalid("params", error))?;
    let params = params.iter().map(|(name, value)| {
        let value = Json::parse(value.get()).map_err(|error| invalid("params", error.to_string()))?;
        Ok((name.clone(), value))
    });
    let texts = |column: usize, what: &'static str| {
        serde_json::from_str::<BTreeMap<String, String>>(row.get(column))
            .map_err(|error| invalid(what, error.to_string()))
    };
    let wrong = |error: &dyn std::fmt::Display| invalid("inputs", error.to_string());
    let inputs = texts(8, "inputs")?.into_iter().map(|(slot, buffer)| {
        let slot = slot.parse().map_err(|error| wrong(&error))?;
        Ok((slot, buffer.parse().map_err(|error| wrong(&error))?))
    });
    let body = Body {
        idempotency_key: row.get(5),
        tags: texts(7, "tags")?,
        fairness_key: row.get(11),
        group: row.get(10),
        parent: row.get::<_, Option<_>>(13).map(ItemId),
        source: row.get(12),
        inputs: inputs.collect::<Result<_, Refusal>>()?,
        params: params.collect::<Result<_, Refusal>>()?,
        ..Body::default()
    };
    let blob = row.get::<_, Option<&[u8]>>(9).map(Bytes::copy_from_slice);
    let submission = Submission {
        id: Some(ItemId(row.get(1))),
        record_guard: None,
        after: None,
        priority: row.get(3),
        ready: row.get::<_, Option<i64>>(4).map_or(When::NOW, |at| When::At(timestamp(at))),
        delay_max: None,
        overrides: Overrides {
            max_retries: row.get::<_, Option<i32>>(14).map(i32::cast_unsigned),
            expire_after: row.get::<_, Option<i64>>(15).map(|span| Millis(span.cast_unsigned())),
            ..Overrides::default()
        },
        body,
        fields: Fields { blob, ..Fields::default() },
    };
    Ok(Operation::Submit { queue, submission: Box::new(submission) })
}

fn invalid(what: &'static str, message: String) -> Refusal {
    Refusal::Invalid { what, message }
}

fn object(text: &str) -> Result<BTreeMap<String, &RawValue>, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use towline_domain::limits::*;

    /// `enqueue` refuses early what a server would refuse. Its numbers are those of the API.
    #[test]
    fn enqueue_has_the_limits_of_the_domain() {
        let sql = include_str!("../migrations/0001_store_enqueue.sql");
        let days = Millis::MAX.0 / Millis::days(1).0;
        for expected in [
            format!("'params', enqueue.params, {PARAMS_MAX}, {PARAM_NAME_BYTES_MAX}, NULL)"),
            format!("'tags', enqueue.tags, {TAGS_MAX}, {TAG_KEY_BYTES_MAX}, {TAG_VALUE_BYTES_MAX})"),
            format!("'inputs', enqueue.inputs, {SLOTS_MAX}, {SLOT_NAME_BYTES_MAX}, {BUFFER_ID_BYTES_MAX})"),
            format!("'idempotency_key', enqueue.idempotency_key, {KEY_BYTES_MAX})"),
            format!("'item_group', enqueue.item_group, {LABEL_BYTES_MAX})"),
            format!("'fairness_key', enqueue.fairness_key, {LABEL_BYTES_MAX})"),
            format!("'source', enqueue.source, {LABEL_BYTES_MAX})"),
            format!("octet_length(enqueue.params::text) > {PARAMS_BYTES_MAX} THEN"),
            format!("enqueue.priority BETWEEN {} AND {},", i16::MIN, i16::MAX),
            format!("enqueue.max_retries NOT BETWEEN 0 AND {RETRIES_MAX} THEN"),
            format!("enqueue.expire_after > interval '{days} days'"),
            format!("enqueue.delay NOT BETWEEN interval '0' AND interval '{days} days'"),
            format!("octet_length(body) > {FIELD_BYTES_MAX} THEN"),
        ] {
            assert!(sql.contains(&expected), "`enqueue` has no {expected:?}");
        }
        // The hints name them in other words.
        assert_eq!((PARAMS_BYTES_MAX, FIELD_BYTES_MAX), (1 << 20, 4 << 20));
    }
}
