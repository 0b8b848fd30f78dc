//! A worker: gathers calls into batches, carries them out, and answers each call.

use crate::batch::attempt::{Attempt, AttemptOptions, Decided, Done, attempt};
use crate::batch::outcome;
use crate::batch::plan::is_structural;
use crate::connection::session::Session;
use crate::error::Failure;
use crate::maintenance::reclaim::reclaim_if_due;
use crate::store::Shared;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, mpsc, oneshot};
use towline_domain::command::Verb;
use towline_domain::{Effects, Field};
use towline_store::{Answered, Operation, Reply, Result, StoreError, Updated};

/// A batch is closed when its operations and the items they hand off are this many, or have this many bytes of payload.
const OPERATIONS_MAX: usize = 2048;
const BYTES_MAX: usize = 8 << 20;
/// After this many conflicts with other transactions, the callers get an error.
const CONFLICTS_MAX: u32 = 64;
/// How often a receive waits for items that other transactions have locked.
const LATER_MAX: u32 = 4;
/// How often to check whether a commit took place, and the pause between.
const RESOLVE_MAX: u32 = 60;
const RESOLVE_PAUSE: Duration = Duration::from_millis(250);

/// A caller's batch that is being carried out.
pub(crate) struct Call {
    operations: VecDeque<Operation>,
    updated: Updated,
    /// How many items its sweeps changed so far; `None` before its first batch.
    swept: Option<u64>,
    reply: oneshot::Sender<Result<Updated>>,
}

impl Call {
    pub(crate) fn new(operations: Vec<Operation>, reply: oneshot::Sender<Result<Updated>>) -> Call {
        Call { updated: Updated::default(), operations: operations.into(), swept: None, reply }
    }
}

/// Runs until the store is dropped.
pub(crate) async fn run(shared: Arc<Shared>, taken: Arc<Mutex<mpsc::Receiver<Call>>>) {
    let mut worker = Worker { shared, session: None };
    while let Some(calls) = gather(&taken).await {
        worker.serve(calls).await;
        if let Some(session) = &worker.session {
            reclaim_if_due(session, &worker.shared).await;
        }
    }
}

/// Waits for a call, then takes all other waiting calls. An idle store adds no delay, a busy one makes large batches.
async fn gather(taken: &Mutex<mpsc::Receiver<Call>>) -> Option<Vec<Call>> {
    let mut taken = taken.lock().await;
    let mut calls = vec![taken.recv().await?];
    let mut operations = calls[0].operations.len();
    while operations < OPERATIONS_MAX
        && let Ok(call) = taken.try_recv()
    {
        operations += call.operations.len();
        calls.push(call);
    }
    Some(calls)
}

struct Worker {
    shared: Arc<Shared>,
    session: Option<Session>,
}

impl Worker {
    /// Carries out the calls in one or more batches. An operation on a whole queue gets its own batch.
    async fn serve(&mut self, calls: Vec<Call>) {
        let mut waiting = calls;
        while !waiting.is_empty() {
            let (operations, parts) = next_batch(&mut waiting);
            // A call sweeps once, in its first batch.
            let begins = |(call, part): (&Call, &Option<usize>)| part.is_some() && call.swept.is_none();
            let sweep = waiting.iter().zip(&parts).any(begins);
            let mut result = self.carry_out(&operations, sweep).await.map(|done| self.answers(done));
            let mut left = Vec::with_capacity(waiting.len());
            for (mut call, part) in waiting.into_iter().zip(parts) {
                match (&mut result, part) {
                    (_, None) => left.push(call),
                    (Err(error), Some(_)) => drop(call.reply.send(Err(error.clone()))),
                    (Ok(batch), Some(part)) => {
                        call.take(batch, part);
                        match call.operations.is_empty() {
                            // The caller may have disconnected.
                            true => {
                                call.updated.effects.merge(std::mem::take(&mut batch.effects));
                                drop(call.reply.send(Ok(call.updated)));
                            }
                            false => left.push(call),
                        }
                    }
                }
            }
            // If no call ended with this batch, the next unfinished call reports its effects.
            if let (Ok(batch), Some(call)) = (result, left.first_mut()) {
                call.updated.effects.merge(batch.effects);
            }
            waiting = left;
        }
    }

    async fn carry_out(&mut self, operations: &[Operation], sweep: bool) -> Result<Done> {
        let mut locks = BTreeSet::new();
        let (mut conflicts, mut later, mut lost) = (0, 0, 0);
        let mut thorough = false;
        loop {
            let shared = self.shared.clone();
            let session = self.session().await?;
            let how = AttemptOptions { locks: &locks, sweep, patient: later < LATER_MAX, thorough };
            let ended = attempt(session, &shared, operations, how).await;
            match ended {
                Ok(Attempt::Done(done)) => return Ok(*done),
                Ok(Attempt::Again(more)) => locks.extend(more),
                Ok(Attempt::Later) => {
                    later += 1;
                    tokio::time::sleep(Duration::from_millis(1 << later)).await;
                }
                Ok(Attempt::Moved) => {
                    thorough = true;
                    conflicts += 1;
                    if conflicts > CONFLICTS_MAX {
                        let cause =
                            "other batches keep moving its items to other pages; try again".to_owned();
                        return Err(StoreError::Unavailable { cause });
                    }
                }
                Ok(Attempt::Unknown { decided, cause }) => {
                    if let Some(done) = self.resolve(*decided, &cause).await? {
                        return Ok(done);
                    }
                    lost += 1;
                    if lost > 1 {
                        return Err(StoreError::Unavailable { cause });
                    }
                }
                Err(Failure::Conflict(cause)) => {
                    conflicts += 1;
                    if conflicts > CONFLICTS_MAX {
                        return Err(StoreError::Unavailable { cause });
                    }
                }
                Err(Failure::Lost(cause)) => {
                    self.forget_session();
                    lost += 1;
                    if lost > 1 {
                        return Err(StoreError::Unavailable { cause });
                    }
                }
                Err(Failure::Fault(error)) => {
                    // The cause of the fault may be in the connection.
                    self.forget_session();
                    return Err(error);
                }
            }
        }
    }

    async fn session(&mut self) -> Result<&mut Session> {
        let session = match self.session.take().filter(|session| !session.client.is_closed()) {
            Some(session) => session,
            None => {
                let Shared { target, schema, locks, .. } = &*self.shared;
                Session::open(target, schema, *locks).await?
            }
        };
        Ok(self.session.insert(session))
    }

    fn forget_session(&mut self) {
        self.session = None;
        // The items of this batch may be ready again before the hints.
        self.shared.hints.forget_all();
    }

    /// Finds out whether the commit that was under way took place. Returns `None` if it did not.
    async fn resolve(&mut self, mut decided: Decided, cause: &str) -> Result<Option<Done>> {
        let lost = self.session.take().map_or(0, |session| session.number);
        self.forget_session();
        let mut last = cause.to_owned();
        for _ in 0..RESOLVE_MAX {
            match self.last_batch_of(lost).await {
                Ok(Some(batch)) if batch == decided.batch => {
                    let wanted = std::mem::take(&mut decided.wanted);
                    let contents = wanted.read(self.session().await?).await?;
                    return Ok(Some(decided.committed(&self.shared, contents)));
                }
                Ok(Some(_)) => return Ok(None),
                Ok(None) => "the lost session has not ended".clone_into(&mut last),
                Err(error) => last = error.to_string(),
            }
            tokio::time::sleep(RESOLVE_PAUSE).await;
        }
        let cause = format!("{cause}; unknown whether the commit took place: {last}");
        Err(StoreError::Unavailable { cause })
    }

    fn answers(&self, done: Done) -> BatchAnswers {
        let Done { outcomes, mut contents, swept, effects } = done;
        let answers: Vec<Answered> =
            outcomes.into_iter().map(|outcome| outcome::answer(outcome, &mut contents)).collect();
        self.shared.metrics.lock().damages += contents.damages;
        BatchAnswers { answers: answers.into_iter(), swept, effects }
    }

    async fn last_batch_of(&mut self, session: i32) -> Result<Option<i64>> {
        let locks = self.shared.locks;
        self.session().await?.last_batch_of(session, locks).await
    }
}

impl Call {
    /// Takes the answers to its operations from a batch.
    fn take(&mut self, batch: &mut BatchAnswers, part: usize) {
        let so_far = self.swept.unwrap_or(0) + batch.swept;
        self.swept = Some(so_far);
        self.updated.answers.extend(batch.answers.by_ref().take(part).map(|answered| match answered {
            Ok(Reply::Swept { .. }) => Ok(Reply::Swept { changed: so_far }),
            other => other,
        }));
    }
}

/// The answers of a batch, how many items its sweep changed, and its effects, which one of its calls reports.
struct BatchAnswers {
    answers: std::vec::IntoIter<Answered>,
    swept: u64,
    effects: Effects,
}

/// The operations of the next batch, and how many of them each call has; `None` if a call has no part in it. A call without
/// operations has a part, too: it sweeps.
fn next_batch(calls: &mut [Call]) -> (Vec<Operation>, Vec<Option<usize>>) {
    let mut batch = Vec::new();
    let mut parts = vec![None; calls.len()];
    let (mut items, mut bytes) = (0, 0);
    for (call, part) in calls.iter_mut().zip(&mut parts) {
        if call.operations.front().is_some_and(is_structural) {
            if batch.is_empty() {
                batch.extend(call.operations.pop_front());
                *part = Some(1);
                return (batch, parts);
            }
            continue;
        }
        if items >= OPERATIONS_MAX || bytes >= BYTES_MAX {
            break;
        }
        let before = batch.len();
        while items < OPERATIONS_MAX
            && bytes < BYTES_MAX
            && call.operations.front().is_some_and(|operation| !is_structural(operation))
            && let Some(operation) = call.operations.pop_front()
        {
            items += 1 + operation.handed_off().len();
            bytes += payload_bytes(&operation);
            batch.push(operation);
        }
        *part = Some(batch.len() - before);
    }
    (batch, parts)
}

fn payload_bytes(operation: &Operation) -> usize {
    match operation {
        Operation::Submit { submission, .. } => submission.fields.bytes(),
        Operation::Restore(restore) => restore.item.fields.bytes(),
        Operation::Lease { call, .. } => {
            let handed_off = call.adjust.then_submit.iter().map(|item| item.submission.fields.bytes());
            let edited = Field::ALL.iter().filter_map(|&field| call.adjust.edits.get(field)?.as_ref());
            let outcome = match &call.verb {
                Verb::Commit(outcome) => {
                    outcome.output_params.values().map(|value| value.as_str().len()).sum()
                }
                _ => 0,
            };
            edited.map(bytes::Bytes::len).sum::<usize>() + outcome + handed_off.sum::<usize>()
        }
        _ => 0,
    }
}
