//! The statements of a fetch: their parameters, their order, and which rows answer which statement.

use super::SWEEP_MAX;
use super::receive::ReceiveRequest;
use crate::batch::plan::FetchPlan;
use crate::batch::receive_hints::ReceiveStart;
use crate::catalog::Catalog;
use crate::connection::session::{Parameters, Session, Step};
use crate::encoding::sql::{millis, queue_number};
use crate::store::Shared;
use std::collections::BTreeMap;
use tokio_postgres::{Row, Statement};
use towline_domain::{Flow, QueueId, Timestamp};

/// The parameters of a fetch. They must live until the rows arrive.
pub(super) struct FetchParameters {
    locks: i32,
    locked_queues: Vec<i32>,
    counts_leases: Option<i32>,
    /// What an injected clock says; `None` if the database's clock decides.
    pub(super) injected: Option<Timestamp>,
    /// The present time; `None` if it is that of the database's clock.
    until: Option<i64>,
    since: i64,
    pub(super) starts: BTreeMap<QueueId, ReceiveStart>,
    pub(super) receives: Vec<ReceiveRequest>,
    new_items: i32,
    sweep_max: i64,
    /// Set if terminal pages may be due for removal: the generation of that knowledge.
    pub(super) removal: Option<u64>,
    removes: bool,
}

impl FetchParameters {
    pub(super) fn new(shared: &Shared, plan: &FetchPlan, catalog: &Catalog) -> FetchParameters {
        let (injected, now) = (shared.clock.injected(), shared.clock.present());
        let starts: BTreeMap<QueueId, ReceiveStart> =
            plan.receives.keys().map(|&queue| (queue, shared.hints.begin(queue))).collect();
        let receive = |(&queue, &wanted): (&QueueId, &usize)| {
            let flow = catalog.by_id(queue).map(|queue| &queue.policy.flow);
            match flow.filter(|flow| flow.takes_turns()) {
                None => ReceiveRequest::new(queue, starts[&queue].after, wanted),
                Some(flow) => ReceiveRequest::by_key(queue, wanted, flow),
            }
        };
        let receives = plan.receives.iter().map(receive).collect();
        // Terminal pages are in many partitions. They are searched only if one may be due.
        let present = now.unwrap_or_else(|| shared.clock.latest());
        let removal = if plan.sweeps { shared.sweeps.removal(present) } else { None };
        FetchParameters {
            locks: shared.locks,
            locked_queues: plan.locks.iter().map(|&id| queue_number(id)).collect(),
            counts_leases: plan.counts_leases.map(queue_number),
            injected,
            until: now.map(millis),
            since: shared.sweeps.since(),
            starts,
            receives,
            new_items: i32::try_from(plan.submits).unwrap_or(i32::MAX),
            sweep_max: SWEEP_MAX as i64,
            removal,
            removes: removal.is_some() || plan.asked_to_sweep && plan.sweeps,
        }
    }

    /// The statements in the order in which they take locks, with the index of each one's rows.
    pub(super) fn statements<'a>(
        &'a self,
        session: &'a Session,
        plan: &'a FetchPlan,
        catalog: &Catalog,
    ) -> (Vec<Step<'a>>, RowIndex) {
        let statements = &session.statements;
        let mut sent = Pipeline { session, steps: vec![session.command("BEGIN")] };
        let (locks, locked) = (&self.locks, &self.locked_queues);
        sent.push(
            if plan.exclusive { &statements.lock_store } else { &statements.lock_store_shared },
            vec![locks],
        );
        if !locked.is_empty() {
            sent.push(&statements.lock_queues, vec![locks, locked]);
        }
        let mut index =
            RowIndex { catalog: sent.push(&statements.read_catalog, vec![]), ..RowIndex::default() };
        // Statements that may wait for a lock come before statements that lock without waiting.
        index.named =
            sent.push_if(!plan.named.is_empty(), &statements.lock_pages, || plan.items.parameters());
        index.kv = sent.push_if(!plan.kv_keys.is_empty(), &statements.lock_kv, || vec![&plan.kv_keys]);
        index.keys = sent.push_if(!plan.keys.is_empty(), &statements.read_key_owners, || {
            vec![&plan.key_queues, &plan.keys]
        });
        index.counts = sent.push_if(!locked.is_empty(), &statements.read_counts, || vec![locked]);
        let any = |has: fn(&Flow) -> bool| {
            plan.locks.iter().any(|id| catalog.by_id(*id).is_some_and(|queue| has(&queue.policy.flow)))
        };
        let fair = any(Flow::takes_turns);
        index.round_robins = sent.push_if(fair, &statements.read_round_robins, || vec![locked]);
        let limits_keys = any(Flow::limits_keys);
        index.leased = sent.push_if(limits_keys, &statements.read_leased_counts, || vec![locked]);
        if let Some(queue) = &self.counts_leases {
            index.rewritten.push(sent.push(&statements.lock_uncounted_pages, vec![queue]));
        }
        let rated = any(|flow| flow.rate.is_some());
        index.rates = sent.push_if(rated, &statements.read_rate_states, || vec![locked]);
        index.due = sent.push_if(plan.sweeps, &statements.lock_due_pages, || {
            vec![&self.since, &self.until, &self.sweep_max]
        });
        index.removed = sent.push_if(self.removes, &statements.remove_due_terminal_pages, || {
            vec![&self.until, &self.sweep_max]
        });
        index.next_removal = sent.push_if(self.removes, &statements.read_next_removal, Vec::new);
        index.first_receive = sent.steps.len();
        for receive in &self.receives {
            let (statement, parameters) = receive.statement(statements);
            sent.push(statement, parameters);
        }
        for receive in self.receives.iter().filter(|receive| receive.is_by_key()) {
            let parameters: Parameters<'a> = vec![&receive.queue, &self.sweep_max];
            index.rewritten.push(sent.push(&statements.lock_unkeyed_pages, parameters));
        }
        index.new_seqs =
            sent.push_if(self.new_items > 0, &statements.draw_item_seqs, || vec![locks, &self.new_items]);
        index.new_queue = sent.push_if(plan.creates_queue, &statements.draw_queue_id, Vec::new);
        // The clock comes last: a batch must not be decided at a time before that of a batch it waited for.
        index.clock = sent.push(&statements.read_clock, vec![]);
        (sent.steps, index)
    }
}

struct Pipeline<'a> {
    session: &'a Session,
    steps: Vec<Step<'a>>,
}

impl<'a> Pipeline<'a> {
    /// Adds a statement and returns the index of its rows.
    fn push(&mut self, statement: &'a Statement, parameters: Parameters<'a>) -> usize {
        self.steps.push(self.session.step(statement, parameters));
        self.steps.len() - 1
    }

    fn push_if(
        &mut self,
        needed: bool,
        statement: &'a Statement,
        parameters: impl FnOnce() -> Parameters<'a>,
    ) -> Option<usize> {
        needed.then(|| self.push(statement, parameters()))
    }
}

/// Which rows answer which statement. `None` if the statement was not sent.
#[derive(Debug, Default)]
pub(super) struct RowIndex {
    pub(super) catalog: usize,
    pub(super) named: Option<usize>,
    pub(super) kv: Option<usize>,
    pub(super) keys: Option<usize>,
    pub(super) counts: Option<usize>,
    pub(super) round_robins: Option<usize>,
    pub(super) leased: Option<usize>,
    pub(super) rates: Option<usize>,
    pub(super) due: Option<usize>,
    pub(super) removed: Option<usize>,
    pub(super) next_removal: Option<usize>,
    pub(super) first_receive: usize,
    /// Pages that are written again although their items do not change.
    pub(super) rewritten: Vec<usize>,
    pub(super) new_seqs: Option<usize>,
    pub(super) new_queue: Option<usize>,
    pub(super) clock: usize,
}

/// The rows of all statements.
pub(super) struct FetchedRows {
    pub(super) rows: Vec<Vec<Row>>,
    pub(super) index: RowIndex,
}

impl FetchedRows {
    pub(super) fn at(&self, index: Option<usize>) -> &[Row] {
        index.map_or(&[][..], |index| &self.rows[index][..])
    }
}
