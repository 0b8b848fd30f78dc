//! What was enqueued in SQL becomes items: the inbox is taken over in batches, in order, by whichever server comes first.
//!
//! **Invariant:** an entry leaves the inbox in the transaction that submits it or records why it was refused. Two servers
//! that take the same entries meet at their deletion: one of them begins anew.

use crate::batch::attempt::{Attempt, How, attempt};
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

/// Entries, and bytes of payload, in one batch.
const ENTRIES_MAX: i64 = 512;
const BYTES_MAX: i64 = 8 << 20;
/// How often the inbox is looked at when nobody tells that there is something; seldom while others are heard.
const LOOK_EVERY: Duration = Duration::from_millis(500);
const LOOK_SELDOM: Duration = Duration::from_secs(5);
/// After somebody else came first, or a fault.
const BACK_OFF_MIN: Duration = Duration::from_millis(25);
const BACK_OFF_MAX: Duration = Duration::from_secs(2);
/// A batch of one entry after this many tries: what is wrong with one must not hold up the others.
const TRIES: u32 = 64;

/// An entry on its way: what to submit, or why it cannot be.
#[derive(Debug)]
struct Entry {
    position: i64,
    id: ItemId,
    wrong: Option<(&'static str, String)>,
}

/// The entries that a session takes over with its next batch.
#[derive(Debug, Default)]
pub(crate) struct Taken(Vec<Entry>);

/// Until it is dropped.
pub(crate) async fn run(shared: Arc<Shared>, reader: Reader) {
    let mut taker = Taker { shared, reader, session: None, full: BTreeSet::new() };
    let mut back_off = BACK_OFF_MIN;
    let mut most = ENTRIES_MAX;
    loop {
        match taker.take_over(most).await {
            Ok(0) => {
                back_off = BACK_OFF_MIN;
                taker.wait().await;
                taker.full.clear();
            }
            Ok(_) => {
                back_off = BACK_OFF_MIN;
                most = ENTRIES_MAX.min(most * 2);
            }
            Err(failure) => {
                taker.session = None;
                if let Failure::Fault(error) = &failure {
                    tracing::warn!(%error, "cannot take over what was enqueued; it stays in the inbox");
                    most = 1;
                }
                tokio::time::sleep(back_off).await;
                back_off = BACK_OFF_MAX.min(back_off * 2);
            }
        }
    }
}

struct Taker {
    shared: Arc<Shared>,
    reader: Reader,
    session: Option<Session>,
    /// Queues that had no room.
    full: BTreeSet<String>,
}

impl Taker {
    async fn wait(&self) {
        let news = &self.shared.news;
        let every = if news.hears() { LOOK_SELDOM } else { LOOK_EVERY };
        let _ = tokio::time::timeout(every, news.inbox.notified()).await;
    }

    /// How many entries left the inbox.
    async fn take_over(&mut self, most: i64) -> Result<usize, Failure> {
        let Some(rows) = self.look(most).await? else { return Ok(0) };
        let shared = Arc::clone(&self.shared);
        let (mut taken, mut operations, mut queues) = (Vec::new(), Vec::new(), Vec::new());
        for row in &rows {
            let read = read(row);
            let wrong = read.as_ref().err().map(|refusal| (refusal.code(), refusal.to_string()));
            taken.push(Entry { position: row.get(0), id: ItemId(row.get(1)), wrong });
            queues.push(row.get::<_, String>(2));
            operations.extend(read.ok());
        }
        let session = self.session().await?;
        session.taken = Some(Taken(taken));
        let mut locks = BTreeSet::new();
        for _ in 0..TRIES {
            let how = How { locks: &locks, sweep: false, patient: false, thorough: true };
            match attempt(session, &shared, &operations, how).await? {
                Attempt::Done(done) => {
                    let taken = session.taken.take().unwrap_or_default();
                    let kept = taken.kept(&done.outcomes);
                    self.full.extend(kept.iter().map(|&at| queues[at].clone()));
                    for operation in &operations {
                        if let Operation::Submit { queue, .. } = operation {
                            shared.news.brought_here(queue);
                        }
                    }
                    return Ok(rows.len() - kept.len());
                }
                Attempt::Again(more) => locks.extend(more),
                Attempt::Later | Attempt::Moved => {}
                // Committed or not, the inbox tells.
                Attempt::Unknown { cause, .. } => return Err(Failure::Lost(cause)),
            }
        }
        Err(Failure::Conflict("others change the queues all the time".to_owned()))
    }

    /// The next entries, as many as fit into a batch.
    async fn look(&mut self, most: i64) -> Result<Option<Vec<Row>>, Failure> {
        let full: Vec<String> = self.full.iter().cloned().collect();
        let client = self.reader.client().await?;
        let positions = client.prepare_cached(query!("find_inbox_entries")).await?;
        let positions: Vec<i64> = client
            .query(&positions, &[&full, &most, &BYTES_MAX])
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

/// What becomes of an entry.
enum End {
    Submitted,
    /// Its queue has no room: it stays.
    Kept,
    Refused(&'static str, String),
}

impl Taken {
    /// In order; entries that make no sense have no outcome.
    fn ends(&self, outcomes: &[Outcome]) -> Vec<End> {
        let mut outcomes = outcomes.iter();
        let end = |entry: &Entry| match &entry.wrong {
            Some((code, reason)) => End::Refused(code, reason.clone()),
            None => match outcomes.next() {
                Some(Outcome::Answered(Err(Refusal::QueueFull { .. }))) => End::Kept,
                Some(Outcome::Answered(Err(refusal))) => End::Refused(refusal.code(), refusal.to_string()),
                Some(Outcome::Answered(Ok(Reply::Answer(Answer::Submitted { id, created: false })))) => {
                    let reason =
                        format!("its idempotency key belongs to item {id}, which was submitted before it");
                    if *id == entry.id { End::Submitted } else { End::Refused("key_known", reason) }
                }
                _ => End::Submitted,
            },
        };
        self.0.iter().map(end).collect()
    }

    fn kept(&self, outcomes: &[Outcome]) -> Vec<usize> {
        let ends = self.ends(outcomes);
        (0..ends.len()).filter(|&at| matches!(ends[at], End::Kept)).collect()
    }
}

/// In the transaction that submits them: entries leave the inbox, and what was refused is written down.
pub(crate) async fn settle(session: &Session, outcomes: &[Outcome]) -> Result<(), Failure> {
    let Some(taken) = &session.taken else { return Ok(()) };
    let (mut gone, mut refused, mut codes, mut reasons) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (entry, end) in taken.0.iter().zip(taken.ends(outcomes)) {
        match end {
            End::Kept => continue,
            End::Submitted => {}
            End::Refused(code, reason) => {
                tracing::warn!(id = %entry.id, code, reason, "what was enqueued was refused; see inbox_refused");
                refused.push(entry.position);
                codes.push(code);
                reasons.push(reason.replace('\0', "\u{fffd}"));
            }
        }
        gone.push(entry.position);
    }
    if !refused.is_empty() {
        session.client.execute(query!("refuse_inbox_entries"), &[&refused, &codes, &reasons]).await?;
    }
    let deleted = session.client.execute(query!("delete_inbox_entries"), &[&gone]).await?;
    if deleted != gone.len() as u64 {
        return Err(Failure::Conflict("somebody else takes over the same entries".to_owned()));
    }
    Ok(())
}

fn read(row: &Row) -> Result<Operation, Refusal> {
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
