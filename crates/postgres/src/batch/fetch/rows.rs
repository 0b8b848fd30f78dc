//! Rows of a fetch as parts of the overlay.

use crate::batch::overlay::{KeyOwner, Overlay, ReplaceOwner, RoundRobinSlot, Slot};
use crate::batch::plan::read_replace_key;
use crate::batch::tally::Tallies;
use crate::catalog::Catalog;
use crate::encoding::sql::{queue_id, timestamp};
use crate::error::damaged;
use crate::store::Shared;
use bytes::Bytes;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio_postgres::Row;
use towline_domain::kv::KvRecord;
use towline_domain::select::READ_BYTES_MAX;
use towline_domain::{Counts, ItemId, KeyTag, QueueId, RateState, RoundRobin, Timestamp};
use towline_store::{StoreError, StoreMetrics};

pub(super) fn empty(now: Timestamp, shared: &Shared, catalog: &Arc<Catalog>) -> Overlay {
    Overlay {
        now,
        salt: shared.salt,
        catalog: catalog.clone(),
        locked: FxHashMap::default(),
        rates: BTreeMap::new(),
        round_robins: BTreeMap::new(),
        leased: FxHashMap::default(),
        leases: FxHashMap::default(),
        rewritten: BTreeSet::new(),
        entries: FxHashMap::default(),
        by_id: FxHashMap::default(),
        ready: FxHashMap::default(),
        keys: FxHashMap::default(),
        earlier_owners: Vec::new(),
        replace_keys: FxHashMap::default(),
        kv: BTreeMap::new(),
        fresh: 0..0,
        fresh_queue: None,
        pages: BTreeMap::new(),
        touch: 0,
        removed: FxHashMap::default(),
        removed_pages: Vec::new(),
        body_slot: 0,
        counted: FxHashMap::default(),
        tallies: Tallies::default(),
        metrics: StoreMetrics::default(),
        queues: BTreeMap::new(),
        writes_events: shared.events.is_some(),
        events: Vec::new(),
        event_slot: 0,
        swept: 0,
        read_budget: READ_BYTES_MAX,
        effects: Default::default(),
    }
}

pub(super) fn read_counts(overlay: &mut Overlay, locks: &BTreeSet<QueueId>, rows: &[Row]) {
    // A queue without a row in `counters` has no items.
    overlay.locked = locks.iter().map(|&id| (id, Counts::default())).collect();
    for row in rows {
        let counts = counts_of(row, 1);
        overlay.locked.insert(queue_id(row.get(0)), counts);
    }
}

/// How much of the rates is used up, and which fairness keys had the last deliveries.
pub(super) fn read_flow(overlay: &mut Overlay, rates: &[Row], round_robins: &[Row]) {
    let rate = |row: &Row| (queue_id(row.get(0)), (RateState(row.get::<_, i64>(1).cast_unsigned()), false));
    overlay.rates = rates.iter().map(rate).collect();
    for row in round_robins {
        let round_robin =
            RoundRobin { key: KeyTag::from_number(row.get(1)), given: row.get::<_, i32>(2).cast_unsigned() };
        overlay
            .round_robins
            .insert(queue_id(row.get(0)), RoundRobinSlot { round_robin, ..RoundRobinSlot::default() });
    }
}

/// How many items of each key are leased, in the locked queues that limit it.
pub(super) fn read_leased(overlay: &mut Overlay, locks: &BTreeSet<QueueId>, rows: &[Row]) {
    let limits_keys =
        |id: &QueueId| overlay.catalog.by_id(*id).is_some_and(|queue| queue.policy.flow.limits_keys());
    overlay.leased = locks.iter().copied().filter(limits_keys).map(|id| (id, FxHashMap::default())).collect();
    for row in rows {
        if let Some(leased) = overlay.leased.get_mut(&queue_id(row.get(0))) {
            leased.insert(KeyTag::from_number(row.get(1)), row.get(2));
        }
    }
}

/// Reads six columns of counts, beginning with this one.
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

pub(super) fn read_keys(overlay: &mut Overlay, rows: &[Row]) -> Result<(), StoreError> {
    for row in rows {
        let wrong = |what: &str| damaged("of keys", what);
        let text = |key: &[u8]| String::from_utf8(key.to_vec()).map_err(|_| wrong("a key that is not UTF-8"));
        let (queue, stored): (QueueId, &[u8]) = (queue_id(row.get(0)), row.get(1));
        if let Some(key) = read_replace_key(stored) {
            let seq = row.get::<_, i64>(2).cast_unsigned();
            let owner = ReplaceOwner { seq, id: ItemId(row.get(3)), stored: Some(seq) };
            overlay.replace_keys.insert((queue, text(key)?), owner);
            continue;
        }
        let key = text(stored)?;
        let content = row.get::<_, &[u8]>(4).try_into().map_err(|_| wrong("a digest of the wrong length"))?;
        let seq = row.get::<_, i64>(2).cast_unsigned();
        let owner = KeyOwner { seq, id: ItemId(row.get(3)), content, stored: true };
        overlay.keys.insert((queue, key), owner);
    }
    Ok(())
}

pub(super) fn read_kv(overlay: &mut Overlay, asked: &[Vec<u8>], rows: &[Row]) {
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
