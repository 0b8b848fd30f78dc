//! One attempt at a batch: fetch, decide, write.

use crate::batch::content_request::ContentRequest;
use crate::batch::fetch::{self, Fetch, Fetched};
use crate::batch::outcome::{Contents, Outcome};
use crate::batch::overlay::NeedsLock;
use crate::batch::plan::FetchPlan;
use crate::batch::receive_hints::OrderPosition;
use crate::batch::write;
use crate::connection::session::Session;
use crate::error::Failure;
use crate::inbox;
use crate::store::Shared;
use std::collections::{BTreeMap, BTreeSet};
use towline_domain::{CountKind, Effects, QueueId, Timestamp};
use towline_store::transaction::Deliveries;
use towline_store::{Operation, QueueLookup};

/// How an attempt ended.
pub(crate) enum Attempt {
    Done(Box<Done>),
    /// Try again, with these locks too.
    Again(BTreeSet<QueueId>),
    /// Try again after a pause.
    Later,
    /// Try again: items moved to other pages before these could be locked.
    Moved,
    /// The connection was lost while the commit was under way.
    Unknown {
        decided: Box<Decided>,
        cause: String,
    },
}

pub(crate) struct Done {
    pub(crate) outcomes: Vec<Outcome>,
    pub(crate) contents: Contents,
    pub(crate) swept: u64,
    pub(crate) effects: Effects,
}

/// A batch that was sent to the database, and how to answer it if it was committed.
pub(crate) struct Decided {
    pub(crate) fetched: Fetched,
    pub(crate) outcomes: Vec<Outcome>,
    pub(crate) wanted: ContentRequest,
    pub(crate) batch: i64,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct AttemptOptions<'a> {
    /// Queues that an earlier attempt found to need exact counts.
    pub(crate) locks: &'a BTreeSet<QueueId>,
    /// Carry out what is due.
    pub(crate) sweep: bool,
    /// If other transactions have locked all ready items, try again later instead of answering that there are none.
    pub(crate) patient: bool,
    /// Look items up by their ids as well as by their numbers.
    pub(crate) thorough: bool,
}

pub(crate) async fn attempt(
    session: &mut Session,
    shared: &Shared,
    operations: &[Operation],
    how: AttemptOptions<'_>,
) -> Result<Attempt, Failure> {
    let catalog = shared.catalog.get();
    let mut plan = FetchPlan::of(operations, &catalog, shared.salt, how.thorough);
    plan.locks.extend(how.locks);
    plan.sweeps = how.sweep;
    if plan.replaces {
        fetch::name_owners(session, &mut plan, shared.salt, how.thorough).await?;
    }
    let fetched = fetch::fetch(session, shared, &plan, &catalog, how.patient).await;
    let mut fetched = match fetched {
        Ok(Fetch::Done(fetched)) => *fetched,
        Ok(Fetch::Stale) => {
            session.rollback().await?;
            return Ok(Attempt::Again(BTreeSet::new()));
        }
        Ok(Fetch::Moved) => {
            session.rollback().await?;
            return Ok(Attempt::Moved);
        }
        Ok(Fetch::Contended) => {
            session.rollback().await?;
            return Ok(Attempt::Later);
        }
        Err(failure) => {
            if !matches!(failure, Failure::Lost(_)) {
                session.rollback().await?;
            }
            return Err(failure);
        }
    };
    let outcomes = match decide_all(&mut fetched, operations, how.sweep) {
        Ok(outcomes) => outcomes,
        Err(NeedsLock(queue)) => {
            session.rollback().await?;
            return Ok(Attempt::Again(BTreeSet::from([queue])));
        }
    };
    if let Err(failure) = inbox::settle(session, &outcomes).await {
        if !matches!(failure, Failure::Lost(_)) {
            session.rollback().await?;
        }
        return Err(failure);
    }
    let wanted = ContentRequest::of(&outcomes);
    let batch = session.batch + 1;
    let mut decided = Decided { fetched, outcomes, wanted, batch };
    match write::write(session, &decided.fetched.overlay, &mut decided.wanted, batch).await {
        Ok((contents, anything)) => {
            // A batch that wrote nothing recorded no batch number.
            session.batch = if anything { batch } else { session.batch };
            Ok(Attempt::Done(Box::new(decided.committed(shared, contents))))
        }
        Err(Failure::Lost(cause)) => Ok(Attempt::Unknown { decided: Box::new(decided), cause }),
        Err(failure) => Err(failure),
    }
}

fn decide_all(
    fetched: &mut Fetched,
    operations: &[Operation],
    sweep: bool,
) -> Result<Vec<Outcome>, NeedsLock> {
    let overlay = &mut fetched.overlay;
    if sweep {
        overlay.sweep()?;
    }
    let numbered = operations.iter().enumerate();
    numbered.map(|(number, operation)| overlay.run(operation.clone(), number)).collect()
}

impl Decided {
    /// Call this after the commit. Updates the receive hints before the callers get their answers.
    pub(crate) fn committed(self, shared: &Shared, contents: Contents) -> Done {
        let Decided { fetched: Fetched { mut overlay, begins, all_due, removal }, outcomes, .. } = self;
        let mut recorder = std::mem::take(&mut overlay.effects);
        let effects = recorder.take(|id| overlay.by_id(id).map(|(queue, _)| queue.name.clone()));
        shared.exchange.committed(&overlay, &effects);
        let mut metrics = shared.metrics.lock();
        *metrics = metrics.plus(&overlay.metrics);
        drop(metrics);
        let mut first: BTreeMap<QueueId, OrderPosition> = BTreeMap::new();
        let mut next_removal: Option<Timestamp> = None;
        for (&seq, entry) in overlay.entries.iter().filter(|(_, entry)| entry.changed) {
            if entry.head.is_terminal() {
                next_removal = [next_removal, entry.head.timer()].into_iter().flatten().min();
            }
            if entry.counted == CountKind::Pending
                && let Some(key) = overlay.key(&entry.head)
            {
                let place = first.entry(entry.head.queue).or_insert((key, seq));
                *place = (*place).min((key, seq));
            }
        }
        for (queue, place) in first {
            shared.hints.put(queue, place);
        }
        for outcome in &outcomes {
            // With fairness, items may remain before the last delivered position.
            if let Outcome::Received(Deliveries { queue, items: given, .. }) = outcome
                && !overlay.takes_turns(*queue)
                && let (Some(begin), Some(last)) = (begins.get(queue), given.last())
            {
                shared.hints.given(*queue, *begin, last.place);
            }
        }
        if let Some((generation, next)) = removal {
            shared.sweeps.removed(generation, next);
        }
        if let Some(at) = next_removal {
            shared.sweeps.finished(at);
        }
        if all_due {
            shared.sweeps.done(overlay.now);
        }
        Done { outcomes, contents, swept: overlay.swept, effects }
    }
}
