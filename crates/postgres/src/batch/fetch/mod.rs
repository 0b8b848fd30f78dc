//! The first round trip of a batch: takes locks, and reads everything that the operations name.

mod receive;
mod rows;
mod statements;

pub(crate) use self::rows::{counts_of, kv_record};

use self::receive::look_again;
use self::statements::{FetchParameters, FetchedRows};
use crate::batch::overlay::Overlay;
use crate::batch::plan::{FetchPlan, ItemLookup, read_replace_key};
use crate::batch::receive_hints::ReceiveStart;
use crate::catalog::Catalog;
use crate::connection::session::{Session, pipeline};
use crate::encoding::sql::timestamp;
use crate::error::Failure;
use crate::pages::snapshot::read_page;
use crate::store::Shared;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio_postgres::Row;
use towline_domain::{ItemId, QueueId, Timestamp};

/// How many items and pages one batch sweeps. The limit keeps a million leases that lapse at once from blocking callers.
pub(crate) const SWEEP_MAX: usize = 1024;

/// What a batch works on.
#[derive(Debug)]
pub(crate) struct Fetched {
    pub(crate) overlay: Overlay,
    pub(crate) begins: BTreeMap<QueueId, ReceiveStart>,
    /// Everything that was due has been fetched.
    pub(crate) all_due: bool,
    /// If all due terminal pages were removed: the generation of that knowledge, and when the next page is due.
    pub(crate) removal: Option<(u64, Timestamp)>,
}

pub(crate) enum Fetch {
    Done(Box<Fetched>),
    /// The cached queues were out of date. They are current now; start again.
    Stale,
    /// An item moved to another page before its page could be locked.
    Moved,
    /// Other transactions have locked everything that a receive could deliver.
    Contended,
}

pub(crate) async fn fetch(
    session: &Session,
    shared: &Shared,
    plan: &FetchPlan,
    catalog: &Arc<Catalog>,
    patient: bool,
) -> Result<Fetch, Failure> {
    let parameters = FetchParameters::new(shared, plan, catalog);
    let (steps, index) = parameters.statements(session, plan, catalog);
    let answers = FetchedRows { rows: pipeline(steps).await?, index };
    let FetchedRows { rows, index } = &answers;

    let known: i64 = rows[index.catalog].first().map_or(-1, |row| row.get(0));
    if known != catalog.version {
        refresh(session, shared, catalog, known).await?;
        return Ok(Fetch::Stale);
    }
    let clock: i64 = rows[index.clock].first().map_or(0, |row| row.get(0));
    let now = parameters.injected.unwrap_or_else(|| shared.clock.steady(timestamp(clock)));
    let mut overlay = rows::empty(now, shared, catalog);
    read_overlay(&mut overlay, plan, &answers)?;
    let mut short = Vec::new();
    for (receive, rows) in parameters.receives.iter().zip(&rows[index.first_receive..]) {
        for row in rows {
            overlay.fetched(read_page(row, shared.salt)?);
        }
        if receive.is_short(&overlay) {
            short.push(receive);
        }
    }
    rows::read_keys(&mut overlay, answers.at(index.keys))?;
    if overlay.replace_keys.values().any(|owner| !plan.named.contains(&owner.id)) {
        return Ok(Fetch::Moved);
    }
    if find_missing(session, shared, &mut overlay, plan).await? {
        return Ok(Fetch::Moved);
    }
    if look_again(session, shared, &mut overlay, &short, patient).await? {
        return Ok(Fetch::Contended);
    }
    let items_of = |row: &Row| (row.get::<_, i64>(1) - row.get::<_, i64>(0)).cast_unsigned() + 1;
    let due: u64 = answers.at(index.due).iter().map(items_of).sum();
    let removed_all = answers.at(index.removed).len() < SWEEP_MAX;
    let removal = parameters.removal.filter(|_| removed_all).map(|generation| {
        let next = answers.at(index.next_removal).first().and_then(|row| row.get::<_, Option<i64>>(0));
        (generation, next.map_or(Timestamp::MAX, timestamp))
    });
    let all_due = plan.sweeps && due < SWEEP_MAX as u64;
    Ok(Fetch::Done(Box::new(Fetched { overlay, begins: parameters.starts, all_due, removal })))
}

/// Reads everything but the pages of receives and the owners of keys.
fn read_overlay(overlay: &mut Overlay, plan: &FetchPlan, answers: &FetchedRows) -> Result<(), Failure> {
    let FetchedRows { rows, index } = answers;
    if let Some(row) = rows[index.catalog].first() {
        overlay.body_slot = u8::try_from(row.get::<_, i16>(1)).unwrap_or(0);
        overlay.event_slot = row.get(2);
    }
    rows::read_counts(overlay, &plan.locks, answers.at(index.counts));
    rows::read_flow(overlay, answers.at(index.rates), answers.at(index.round_robins));
    rows::read_leased(overlay, &plan.locks, answers.at(index.leased));
    for row in answers.at(index.named).iter().chain(answers.at(index.due)) {
        overlay.fetched(read_page(row, overlay.salt)?);
    }
    overlay.count_removed_pages(answers.at(index.removed));
    for row in index.rewritten.iter().flat_map(|&at| &rows[at]) {
        let page = read_page(row, overlay.salt)?;
        overlay.rewritten.insert(page.0.first);
        overlay.fetched(page);
    }
    rows::read_kv(overlay, &plan.kv_keys, answers.at(index.kv));
    let first = answers.at(index.new_seqs).first().map_or(0, |row| row.get::<_, i64>(0).cast_unsigned());
    overlay.fresh = first..first + plan.submits as u64;
    let new_queue = answers.at(index.new_queue).first().map(|row| row.get::<_, i64>(0));
    overlay.fresh_queue = new_queue.and_then(|id| u32::try_from(id).ok()).map(QueueId);
    Ok(())
}

/// Adds the items that own the replace keys of the batch to the plan, so that the fetch locks them with the other items. If
/// other items own the keys by then, the batch starts again.
pub(crate) async fn name_owners(
    session: &Session,
    plan: &mut FetchPlan,
    salt: u64,
    thorough: bool,
) -> Result<(), Failure> {
    let owners = &session.statements.read_key_owners;
    let rows = session.client.query(owners, &[&plan.key_queues, &plan.keys]).await?;
    let replaced = rows.iter().filter(|row| read_replace_key(row.get(1)).is_some());
    plan.name(replaced.map(|row| ItemId(row.get(3))), salt, thorough);
    Ok(())
}

/// Looks for items that were not found in `pages` among the terminal pages. Returns whether one of them is in `pages` after
/// all.
async fn find_missing(
    session: &Session,
    shared: &Shared,
    overlay: &mut Overlay,
    plan: &FetchPlan,
) -> Result<bool, Failure> {
    let unfound: Vec<ItemId> =
        plan.named.iter().filter(|id| !overlay.by_id.contains_key(*id)).copied().collect();
    if unfound.is_empty() {
        return Ok(false);
    }
    // An item that is missing in a locked page does not exist.
    let is_removed = |id: &ItemId| {
        let number = id.sequence(shared.salt);
        let page = number.and_then(|number| overlay.pages.range(..=number).next_back().zip(Some(number)));
        page.is_some_and(|((_, (page, _)), number)| number <= page.last)
    };
    let by_number: Vec<ItemId> = unfound.iter().copied().filter(|id| !is_removed(id)).collect();
    let missing = ItemLookup {
        chosen: unfound.iter().map(|id| id.0).collect(),
        ..ItemLookup::of(&by_number, shared.salt, false)
    };
    let statements = &session.statements;
    let steps = vec![
        session.step(&statements.lock_terminal_pages, missing.parameters()),
        session.step(&statements.find_pages, missing.parameters()),
    ];
    let rows = pipeline(steps).await?;
    for row in &rows[0] {
        overlay.fetched(read_page(row, shared.salt)?);
    }
    let is_fetched = |row: &Row| overlay.pages.contains_key(&row.get::<_, i64>(0).cast_unsigned());
    Ok(!rows[1].iter().all(is_fetched))
}

/// Reads the queues that changed since they were cached, under the lock that keeps them from changing.
async fn refresh(
    session: &Session,
    shared: &Shared,
    catalog: &Arc<Catalog>,
    known: i64,
) -> Result<(), Failure> {
    // A database that was restored from a backup may know less than the cache: read everything again.
    let mut fresh = if known < catalog.version { Catalog::default() } else { (**catalog).clone() };
    let rows = session.client.query(&session.statements.read_changed_queues, &[&fresh.version]).await?;
    fresh.learn(&rows)?;
    shared.catalog.put(Arc::new(fresh));
    Ok(())
}
