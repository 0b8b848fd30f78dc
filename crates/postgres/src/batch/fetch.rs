//! The first round trip of a batch: locks, and all that its operations name.

use crate::batch::overlay::operations::READ_BYTES_MAX;
use crate::batch::overlay::{KeyOwner, Overlay, ReplaceOwner, Slot, TurnSlot};
use crate::batch::plan::{Items, Plan, read_replace_key};
use crate::batch::receive_hints::{Begin, Place, START};
use crate::batch::tally::Tallies;
use crate::catalog::Catalog;
use crate::connection::session::{Parameters, Session, Step, pipeline};
use crate::encoding::sql::{millis, queue_id, queue_number, timestamp};
use crate::error::{Failure, damaged};
use crate::pages::snapshot::read_page;
use crate::statements::Statements;
use crate::store::Shared;
use bytes::Bytes;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio_postgres::{Row, Statement};
use towline_domain::kv::KvRecord;
use towline_domain::{Counts, Flow, ItemId, KeyTag, QueueId, RateState, RoundRobin, Timestamp, Weights};
use towline_store::{StoreError, StoreMetrics};

/// Items carried out by time in one batch, so that a million leases lapsing at once do not hold everybody up.
pub(crate) const SWEEP_MAX: usize = 1024;

/// What a batch works on.
#[derive(Debug)]
pub(crate) struct Fetched {
    pub(crate) overlay: Overlay,
    pub(crate) begins: BTreeMap<QueueId, Begin>,
    /// Everything that was due has been fetched.
    pub(crate) all_due: bool,
    /// When the next finished item goes, once what has to is gone; with what to show for it.
    pub(crate) removal: Option<(u64, Timestamp)>,
}

pub(crate) enum Fetch {
    Done(Box<Fetched>),
    /// The queues are not as remembered; now they are. Begin anew.
    Stale,
    /// An item was put elsewhere, before its page could be locked.
    Moved,
    /// Everything a receive could have given is in somebody else's hands for a moment.
    Contended,
}

/// A row of answers for each step that was sent.
struct Pipeline<'a> {
    session: &'a Session,
    steps: Vec<Step<'a>>,
}

impl<'a> Pipeline<'a> {
    fn push(&mut self, statement: &'a Statement, parameters: Parameters<'a>) -> usize {
        self.steps.push(self.session.step(statement, parameters));
        self.steps.len() - 1
    }
}

pub(crate) async fn fetch(
    session: &Session,
    shared: &Shared,
    plan: &Plan,
    catalog: &Arc<Catalog>,
    patient: bool,
) -> Result<Fetch, Failure> {
    let statements = &session.statements;
    let locks = shared.locks;
    let lock_list: Vec<i32> = plan.locks.iter().map(|&id| queue_number(id)).collect();
    let counts_leases = plan.counts_leases.map(queue_number);
    let injected = shared.clock.injected();
    let until = injected.map(millis);
    let since = shared.sweeps.since();
    let begins: BTreeMap<QueueId, Begin> =
        plan.receives.keys().map(|&queue| (queue, shared.hints.begin(queue))).collect();
    let receives: Vec<ReceiveFrom> = plan
        .receives
        .iter()
        .map(|(&queue, &wanted)| {
            let flow = catalog.by_id(queue).map(|queue| &queue.policy.flow);
            match flow.filter(|flow| flow.takes_turns()) {
                None => ReceiveFrom::new(queue, begins[&queue].after, wanted),
                Some(flow) => ReceiveFrom::in_turn(queue, wanted, flow),
            }
        })
        .collect();
    let submits = i32::try_from(plan.submits).unwrap_or(i32::MAX);
    let sweep_max = SWEEP_MAX as i64;
    // What goes is looked for when something has to, as far as is known: it is in many partitions.
    let present = injected.unwrap_or_else(|| shared.clock.latest());
    let removal = if plan.sweeps { shared.sweeps.removal(present) } else { None };
    let removes = removal.is_some() || plan.asked_to_sweep && plan.sweeps;

    let mut sent = Pipeline { session, steps: vec![session.command("BEGIN")] };
    sent.push(
        if plan.exclusive { &statements.lock_store } else { &statements.lock_store_shared },
        vec![&locks],
    );
    if !lock_list.is_empty() {
        sent.push(&statements.lock_queues, vec![&locks, &lock_list]);
    }
    let version = sent.push(&statements.read_catalog, vec![]);
    // Whatever may wait comes before what locks without waiting.
    let named = (!plan.named.is_empty()).then(|| sent.push(&statements.lock_pages, plan.items.parameters()));
    let kv = (!plan.kv_keys.is_empty()).then(|| sent.push(&statements.lock_kv, vec![&plan.kv_keys]));
    let keys = (!plan.keys.is_empty())
        .then(|| sent.push(&statements.read_key_owners, vec![&plan.key_queues, &plan.keys]));
    let counts = (!lock_list.is_empty()).then(|| sent.push(&statements.read_counts, vec![&lock_list]));
    let rated = |id: &QueueId| catalog.by_id(*id).is_some_and(|queue| queue.policy.flow.rate.is_some());
    let turning = |id: &QueueId| catalog.by_id(*id).is_some_and(|queue| queue.policy.flow.takes_turns());
    let limiting = |id: &QueueId| catalog.by_id(*id).is_some_and(|queue| queue.policy.flow.limits_keys());
    let turns =
        plan.locks.iter().any(turning).then(|| sent.push(&statements.read_round_robins, vec![&lock_list]));
    let leases =
        plan.locks.iter().any(limiting).then(|| sent.push(&statements.read_leased_counts, vec![&lock_list]));
    let uncounted =
        counts_leases.as_ref().map(|queue| sent.push(&statements.lock_uncounted_pages, vec![queue]));
    let rates =
        plan.locks.iter().any(rated).then(|| sent.push(&statements.read_rate_states, vec![&lock_list]));
    let due = plan.sweeps.then(|| sent.push(&statements.lock_due_pages, vec![&since, &until, &sweep_max]));
    let gone = removes.then(|| sent.push(&statements.remove_due_terminal_pages, vec![&until, &sweep_max]));
    let next_removal = removes.then(|| sent.push(&statements.read_next_removal, vec![]));
    let first_receive = sent.steps.len();
    for receive in &receives {
        let (statement, parameters) = receive.statement(statements);
        sent.push(statement, parameters);
    }
    let without_key: Vec<usize> = receives
        .iter()
        .filter(|receive| receive.weights.is_some())
        .map(|receive| sent.push(&statements.lock_unkeyed_pages, vec![&receive.queue, &sweep_max]))
        .collect();
    let numbers = (submits > 0).then(|| sent.push(&statements.draw_item_seqs, vec![&locks, &submits]));
    let queue_number = plan.creates_queue.then(|| sent.push(&statements.draw_queue_id, vec![]));
    // Last: not before the time of anything that was waited for and is seen here.
    let clock = sent.push(&statements.read_clock, vec![]);
    let rows = pipeline(sent.steps).await?;

    let known: i64 = rows[version].first().map_or(-1, |row| row.get(0));
    if known != catalog.version {
        refresh(session, shared, catalog, known).await?;
        return Ok(Fetch::Stale);
    }
    let said: i64 = rows[clock].first().map_or(0, |row| row.get(0));
    let now = injected.unwrap_or_else(|| shared.clock.steady(timestamp(said)));
    let mut overlay = empty(now, shared, catalog);
    overlay.body_slot =
        rows[version].first().and_then(|row| u8::try_from(row.get::<_, i16>(1)).ok()).unwrap_or(0);
    let at = |index: Option<usize>| index.map_or(&[][..], |index| &rows[index][..]);
    read_counts(&mut overlay, &plan.locks, at(counts));
    let spent = |row: &Row| (queue_id(row.get(0)), (RateState(row.get::<_, i64>(1).cast_unsigned()), false));
    overlay.spent = at(rates).iter().map(spent).collect();
    for row in at(turns) {
        let turn =
            RoundRobin { key: KeyTag::from_number(row.get(1)), given: row.get::<_, i32>(2).cast_unsigned() };
        overlay.turns.insert(queue_id(row.get(0)), TurnSlot { turn, ..TurnSlot::default() });
    }
    overlay.leased =
        plan.locks.iter().filter(|id| limiting(id)).map(|&id| (id, FxHashMap::default())).collect();
    for row in at(leases) {
        if let Some(leased) = overlay.leased.get_mut(&queue_id(row.get(0))) {
            leased.insert(KeyTag::from_number(row.get(1)), row.get(2));
        }
    }
    for row in at(named).iter().chain(at(due)) {
        overlay.fetched(read_page(row, shared.salt)?);
    }
    overlay.event_slot = rows[version].first().map_or(0, |row| row.get(2));
    overlay.removed_whole(at(gone));
    for row in without_key.iter().flat_map(|&at| &rows[at]).chain(at(uncounted)) {
        let page = read_page(row, shared.salt)?;
        overlay.anew.insert(page.0.first);
        overlay.fetched(page);
    }
    let mut short = Vec::new();
    for (receive, rows) in receives.iter().zip(&rows[first_receive..]) {
        for row in rows {
            overlay.fetched(read_page(row, shared.salt)?);
        }
        // Where keys take turns, what is there by chance may not be next.
        let is_short = overlay.usable(receive.id) < receive.wanted;
        if is_short || receive.weights.is_some() && !overlay.spoiled(receive.id).is_empty() {
            short.push(receive);
        }
    }
    read_keys(&mut overlay, at(keys))?;
    if overlay.replace_keys.values().any(|owner| !plan.named.contains(&owner.id)) {
        return Ok(Fetch::Moved);
    }
    read_kv(&mut overlay, &plan.kv_keys, at(kv));
    let first = at(numbers).first().map_or(0, |row| row.get::<_, i64>(0).cast_unsigned());
    overlay.fresh = first..first + plan.submits as u64;
    let new_queue = at(queue_number).first().map(|row| row.get::<_, i64>(0));
    overlay.fresh_queue = new_queue.and_then(|id| u32::try_from(id).ok()).map(QueueId);
    if find_missing(session, shared, &mut overlay, plan).await? {
        return Ok(Fetch::Moved);
    }
    if look_again(session, shared, &mut overlay, &short, patient).await? {
        return Ok(Fetch::Contended);
    }
    let fetched: u64 =
        at(due).iter().map(|row| (row.get::<_, i64>(1) - row.get::<_, i64>(0)).cast_unsigned() + 1).sum();
    let all_due = plan.sweeps && fetched < SWEEP_MAX as u64;
    let removal = removal.filter(|_| at(gone).len() < SWEEP_MAX).map(|generation| {
        let next = at(next_removal).first().and_then(|row| row.get::<_, Option<i64>>(0));
        (generation, next.map_or(Timestamp::MAX, timestamp))
    });
    Ok(Fetch::Done(Box::new(Fetched { overlay, begins, all_due, removal })))
}

/// Names the items that have the replace keys of the batch: whoever is about to take their places locks them with all else
/// that it names. If others have the keys by the time they are locked, it begins anew.
pub(crate) async fn name_owners(
    session: &Session,
    plan: &mut Plan,
    salt: u64,
    thorough: bool,
) -> Result<(), Failure> {
    let rows =
        session.client.query(&session.statements.read_key_owners, &[&plan.key_queues, &plan.keys]).await?;
    let replaced = rows.iter().filter(|row| read_replace_key(row.get(1)).is_some());
    plan.name(replaced.map(|row| ItemId(row.get(3))), salt, thorough);
    Ok(())
}

struct ReceiveFrom {
    id: QueueId,
    queue: i32,
    rank: i64,
    place: i64,
    seq: i64,
    wanted: i64,
    /// Of its keys, if they take turns: those that have a weight, and which.
    weights: Option<(Vec<i64>, Vec<i32>)>,
    /// Items of each key that may be in hand at once.
    most: Option<i64>,
    /// Ready items that cannot be given out, as far as is known: of these keys, so many.
    spoiled: (Vec<i64>, Vec<i64>),
}

impl ReceiveFrom {
    fn new(id: QueueId, after: Place, wanted: usize) -> ReceiveFrom {
        let (key, seq) = after;
        ReceiveFrom {
            id,
            queue: queue_number(id),
            rank: key.rank,
            place: millis(key.time),
            seq: seq.cast_signed(),
            wanted: i64::try_from(wanted).unwrap_or(i64::MAX),
            weights: None,
            most: None,
            spoiled: (Vec::new(), Vec::new()),
        }
    }

    fn in_turn(id: QueueId, wanted: usize, flow: &Flow) -> ReceiveFrom {
        let weights = Weights::of(flow);
        let weights = weights.iter().map(|(key, weight)| (key.number(), weight.cast_signed())).unzip();
        let most = flow.concurrency_per_key.map(i64::from);
        ReceiveFrom { weights: Some(weights), most, ..ReceiveFrom::new(id, START, wanted) }
    }

    fn restarted(&self) -> ReceiveFrom {
        ReceiveFrom {
            weights: self.weights.clone(),
            most: self.most,
            ..ReceiveFrom::new(self.id, START, usize::try_from(self.wanted).unwrap_or(usize::MAX))
        }
    }

    fn is_from_the_start(&self) -> bool {
        self.rank == START.0.rank
    }

    fn statement<'a>(&'a self, statements: &'a Statements) -> (&'a Statement, Parameters<'a>) {
        match &self.weights {
            None => (
                &statements.lock_ready_pages,
                vec![&self.queue, &self.rank, &self.place, &self.seq, &self.wanted],
            ),
            Some((keys, weights)) => {
                let (spoiled, counts) = &self.spoiled;
                let parameters: Parameters<'a> =
                    vec![&self.queue, &self.wanted, keys, weights, &self.most, spoiled, counts];
                (&statements.lock_ready_pages_by_key, parameters)
            }
        }
    }
}

/// Looks among the finished for what was named and not found. Returns whether something is among the others after all.
async fn find_missing(
    session: &Session,
    shared: &Shared,
    overlay: &mut Overlay,
    plan: &Plan,
) -> Result<bool, Failure> {
    let unfound: Vec<ItemId> =
        plan.named.iter().filter(|id| !overlay.by_id.contains_key(*id)).copied().collect();
    if unfound.is_empty() {
        return Ok(false);
    }
    // What is missing in a page that is held is not there.
    let gone = |id: &ItemId| {
        let number = id.sequence(shared.salt);
        let page = number.and_then(|number| overlay.pages.range(..=number).next_back().zip(Some(number)));
        page.is_some_and(|((_, (page, _)), number)| number <= page.last)
    };
    let missing = Items {
        chosen: unfound.iter().map(|id| id.0).collect(),
        ..Items::of(&unfound.iter().copied().filter(|id| !gone(id)).collect::<Vec<_>>(), shared.salt, false)
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
    let held = |row: &Row| overlay.pages.contains_key(&row.get::<_, i64>(0).cast_unsigned());
    Ok(!rows[1].iter().all(held))
}

/// Receives that found less than they want look from the start. Returns whether one found nothing only because
/// somebody else holds it: it may well be put back, and nobody would tell.
async fn look_again<'a>(
    session: &'a Session,
    shared: &Shared,
    overlay: &mut Overlay,
    short: &[&'a ReceiveFrom],
    patient: bool,
) -> Result<bool, Failure> {
    for receive in short {
        let mut receive = receive.restarted();
        let hinted = !short.iter().any(|asked| asked.id == receive.id && asked.is_from_the_start());
        if hinted {
            shared.hints.reset(receive.id);
        }
        let wanted = receive.wanted;
        loop {
            // Some of what is held cannot be given: it has expired, or is not ready by this clock.
            let spoiled = overlay.spoiled(receive.id);
            let spoiled: (Vec<i64>, Vec<i64>) =
                spoiled.into_iter().map(|(key, count)| (key.number(), count)).unzip();
            let enough = match receive.weights {
                None => overlay.usable(receive.id) >= wanted,
                Some(_) => spoiled == receive.spoiled,
            };
            if enough || (!hinted && spoiled.0.is_empty()) {
                break;
            }
            if receive.weights.is_none() {
                receive.wanted = wanted + spoiled.1.iter().sum::<i64>();
            }
            receive.spoiled = spoiled;
            let pages = overlay.pages.len();
            let (statement, parameters) = receive.statement(&session.statements);
            let rows = pipeline(vec![session.step(statement, parameters)]).await?;
            for row in rows.iter().flatten() {
                overlay.fetched(read_page(row, shared.salt)?);
            }
            if overlay.pages.len() == pages {
                break;
            }
        }
    }
    if !patient {
        return Ok(false);
    }
    let nothing = |receive: &&&ReceiveFrom| match receive.most {
        None => overlay.ready.get(&receive.id).is_none_or(BTreeSet::is_empty),
        // There may be something of keys that are at their limit. What has expired is ready to the database.
        Some(_) => overlay.usable(receive.id) == 0 && overlay.spoiled(receive.id).is_empty(),
    };
    let statements = &session.statements;
    let is_receivable = |receive: &&'a ReceiveFrom| match &receive.most {
        None => session.step(&statements.has_ready_page, vec![&receive.queue]),
        Some(most) => session.step(&statements.has_receivable_key, vec![&receive.queue, most]),
    };
    let steps = short.iter().filter(nothing).map(is_receivable).collect();
    let answers = pipeline(steps).await?;
    Ok(answers.iter().flatten().any(|row| row.get(0)))
}

/// Learns what changed since the catalog was remembered, under the lock that keeps it from changing.
async fn refresh(
    session: &Session,
    shared: &Shared,
    catalog: &Arc<Catalog>,
    known: i64,
) -> Result<(), Failure> {
    // A database put back to an earlier day knows less than is remembered: begin from nothing.
    let mut fresh = if known < catalog.version { Catalog::default() } else { (**catalog).clone() };
    let rows = session.client.query(&session.statements.read_changed_queues, &[&fresh.version]).await?;
    fresh.learn(&rows)?;
    shared.catalog.put(Arc::new(fresh));
    Ok(())
}

fn empty(now: Timestamp, shared: &Shared, catalog: &Arc<Catalog>) -> Overlay {
    Overlay {
        now,
        salt: shared.salt,
        catalog: catalog.clone(),
        locked: FxHashMap::default(),
        spent: BTreeMap::new(),
        turns: BTreeMap::new(),
        leased: FxHashMap::default(),
        leases: FxHashMap::default(),
        anew: BTreeSet::new(),
        entries: FxHashMap::default(),
        by_id: FxHashMap::default(),
        ready: FxHashMap::default(),
        keys: FxHashMap::default(),
        replace_keys: FxHashMap::default(),
        kv: BTreeMap::new(),
        fresh: 0..0,
        fresh_queue: None,
        pages: BTreeMap::new(),
        touch: 0,
        removed: FxHashMap::default(),
        gone: Vec::new(),
        body_slot: 0,
        counted: FxHashMap::default(),
        tallies: Tallies::default(),
        figures: StoreMetrics::default(),
        queues: BTreeMap::new(),
        tells: shared.events.is_some(),
        told: Vec::new(),
        event_slot: 0,
        swept: 0,
        read_budget: READ_BYTES_MAX,
    }
}

fn read_counts(overlay: &mut Overlay, locks: &BTreeSet<QueueId>, rows: &[Row]) {
    // A queue that was never counted has nothing.
    overlay.locked = locks.iter().map(|&id| (id, Counts::default())).collect();
    for row in rows {
        let counts = counts_of(row, 1);
        overlay.locked.insert(queue_id(row.get(0)), counts);
    }
}

/// Six columns of counts, from this one on.
pub(crate) fn counts_of(row: &Row, from: usize) -> Counts {
    let count = |at: usize| u64::try_from(row.get::<_, i64>(from + at)).unwrap_or(0);
    Counts {
        pending: count(0),
        scheduled: count(1),
        processing: count(2),
        paused: count(3),
        completed: count(4),
        failed: count(5),
    }
}

fn read_keys(overlay: &mut Overlay, rows: &[Row]) -> Result<(), StoreError> {
    for row in rows {
        let wrong = |what: &str| damaged("of keys", what);
        let text = |key: &[u8]| String::from_utf8(key.to_vec()).map_err(|_| wrong("not text"));
        let (queue, stored): (QueueId, &[u8]) = (queue_id(row.get(0)), row.get(1));
        if let Some(key) = read_replace_key(stored) {
            let seq = row.get::<_, i64>(2).cast_unsigned();
            let owner = ReplaceOwner { seq, id: ItemId(row.get(3)), stored: Some(seq) };
            overlay.replace_keys.insert((queue, text(key)?), owner);
            continue;
        }
        let key = text(stored)?;
        let content = row.get::<_, &[u8]>(4).try_into().map_err(|_| wrong("not a digest"))?;
        let seq = row.get::<_, i64>(2).cast_unsigned();
        let owner = KeyOwner { seq, id: ItemId(row.get(3)), content, stored: true };
        overlay.keys.insert((queue, key), owner);
    }
    Ok(())
}

fn read_kv(overlay: &mut Overlay, asked: &[Vec<u8>], rows: &[Row]) {
    let text = |key: &[u8]| String::from_utf8_lossy(key).into_owned();
    for key in asked {
        overlay.kv.insert(text(key), Slot::default());
    }
    for row in rows {
        let record = kv_record(row);
        overlay.kv.insert(text(row.get(0)), Slot { record: Some(record), stored: true, changed: false });
    }
}

pub(crate) fn kv_record(row: &Row) -> KvRecord {
    let expires_at = row.get::<_, Option<i64>>(2).map(timestamp);
    KvRecord { value: Bytes::copy_from_slice(row.get(1)), expires_at }
}
