//! What a receive fetches: pages with ready items, and a second look if they hold too few.

use crate::batch::overlay::Overlay;
use crate::batch::receive_hints::{OrderPosition, START};
use crate::connection::session::{Parameters, Session, pipeline};
use crate::encoding::sql::{millis, queue_number};
use crate::error::Failure;
use crate::pages::snapshot::read_page;
use crate::statements::Statements;
use crate::store::Shared;
use std::collections::BTreeSet;
use tokio_postgres::Statement;
use towline_domain::{Flow, QueueId, Weights};

/// The receives of a batch from one queue.
pub(super) struct ReceiveRequest {
    pub(super) id: QueueId,
    pub(super) queue: i32,
    after_rank: i64,
    after_time: i64,
    after_seq: i64,
    pub(super) wanted: i64,
    /// Set if fairness keys take turns: the keys that have a weight, and their weights.
    weights: Option<(Vec<i64>, Vec<i32>)>,
    /// How many items of a key may be leased at once.
    leased_max: Option<i64>,
    /// Keys with ready items that cannot be delivered, and how many.
    unusable: (Vec<i64>, Vec<i64>),
}

impl ReceiveRequest {
    pub(super) fn new(id: QueueId, after: OrderPosition, wanted: usize) -> ReceiveRequest {
        let (key, seq) = after;
        ReceiveRequest {
            id,
            queue: queue_number(id),
            after_rank: key.rank,
            after_time: millis(key.time),
            after_seq: seq.cast_signed(),
            wanted: i64::try_from(wanted).unwrap_or(i64::MAX),
            weights: None,
            leased_max: None,
            unusable: (Vec::new(), Vec::new()),
        }
    }

    pub(super) fn by_key(id: QueueId, wanted: usize, flow: &Flow) -> ReceiveRequest {
        let weights = Weights::of(flow);
        let weights = weights.iter().map(|(key, weight)| (key.number(), weight.cast_signed())).unzip();
        let leased_max = flow.concurrency_per_key.map(i64::from);
        ReceiveRequest { weights: Some(weights), leased_max, ..ReceiveRequest::new(id, START, wanted) }
    }

    fn restarted(&self) -> ReceiveRequest {
        ReceiveRequest {
            weights: self.weights.clone(),
            leased_max: self.leased_max,
            ..ReceiveRequest::new(self.id, START, usize::try_from(self.wanted).unwrap_or(usize::MAX))
        }
    }

    fn is_from_the_start(&self) -> bool {
        self.after_rank == START.0.rank
    }

    pub(super) fn is_by_key(&self) -> bool {
        self.weights.is_some()
    }

    /// Whether the overlay has too few items for it. With fairness keys, items that were fetched for another reason may not be
    /// the next in turn, so any unusable item asks for a second look.
    pub(super) fn is_short(&self, overlay: &Overlay) -> bool {
        overlay.deliverable(self.id) < self.wanted
            || self.is_by_key() && !overlay.undeliverable(self.id).is_empty()
    }

    pub(super) fn statement<'a>(&'a self, statements: &'a Statements) -> (&'a Statement, Parameters<'a>) {
        match &self.weights {
            None => (
                &statements.lock_ready_pages,
                vec![&self.queue, &self.after_rank, &self.after_time, &self.after_seq, &self.wanted],
            ),
            Some((keys, weights)) => {
                let (unusable, counts) = &self.unusable;
                let parameters: Parameters<'a> =
                    vec![&self.queue, &self.wanted, keys, weights, &self.leased_max, unusable, counts];
                (&statements.lock_ready_pages_by_key, parameters)
            }
        }
    }
}

/// Receives that found too few items look again from the start of the order. Returns whether one of them has nothing to
/// deliver only because another transaction has locked the items. That transaction may leave them ready, and then sends no
/// notification.
pub(super) async fn look_again<'a>(
    session: &'a Session,
    shared: &Shared,
    overlay: &mut Overlay,
    short: &[&'a ReceiveRequest],
    patient: bool,
) -> Result<bool, Failure> {
    for receive in short {
        let hinted = !short.iter().any(|asked| asked.id == receive.id && asked.is_from_the_start());
        if hinted {
            shared.hints.reset(receive.id);
        }
        fetch_until_enough(session, shared, overlay, receive.restarted(), hinted).await?;
    }
    if !patient {
        return Ok(false);
    }
    let nothing = |receive: &&&ReceiveRequest| match receive.leased_max {
        None => overlay.ready.get(&receive.id).is_none_or(BTreeSet::is_empty),
        // Keys at their limit may have ready items. To the database, an expired item still counts as ready.
        Some(_) => overlay.deliverable(receive.id) == 0 && overlay.undeliverable(receive.id).is_empty(),
    };
    let statements = &session.statements;
    let is_receivable = |receive: &&'a ReceiveRequest| match &receive.leased_max {
        None => session.step(&statements.has_ready_page, vec![&receive.queue]),
        Some(leased_max) => session.step(&statements.has_receivable_key, vec![&receive.queue, leased_max]),
    };
    let steps = short.iter().filter(nothing).map(is_receivable).collect();
    let answers = pipeline(steps).await?;
    Ok(answers.iter().flatten().any(|row| row.get(0)))
}

/// Fetches pages until they have enough items that can be delivered, or there are no more. Some ready items cannot be
/// delivered: they have expired, or are not ready yet by this server's clock.
async fn fetch_until_enough(
    session: &Session,
    shared: &Shared,
    overlay: &mut Overlay,
    mut receive: ReceiveRequest,
    hinted: bool,
) -> Result<(), Failure> {
    let wanted = receive.wanted;
    loop {
        let unusable: (Vec<i64>, Vec<i64>) =
            overlay.undeliverable(receive.id).into_iter().map(|(key, count)| (key.number(), count)).unzip();
        let enough = match receive.weights {
            None => overlay.deliverable(receive.id) >= wanted,
            Some(_) => unusable == receive.unusable,
        };
        if enough || (!hinted && unusable.0.is_empty()) {
            return Ok(());
        }
        if !receive.is_by_key() {
            receive.wanted = wanted + unusable.1.iter().sum::<i64>();
        }
        receive.unusable = unusable;
        let pages = overlay.pages.len();
        let (statement, parameters) = receive.statement(&session.statements);
        let rows = pipeline(vec![session.step(statement, parameters)]).await?;
        for row in rows.iter().flatten() {
            overlay.fetched(read_page(row, shared.salt)?);
        }
        if overlay.pages.len() == pages {
            return Ok(());
        }
    }
}
