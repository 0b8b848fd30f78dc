//! The pages that the functions in SQL fetch for a receive have every item that the rules of `domain::select` take.
//!
//! The rules run twice: in the reference store, and in PostgreSQL on the pages that were fetched. A receive that finds too
//! few items there looks again, which would hide a function that fetches too few pages. So the test calls the functions
//! itself, on random histories. Expired items are left out: for them, the second look is meant.

use crate::calls::*;
use crate::harness::{new_schema, open};
use crate::server::{RUNTIME, SHARED, connect};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use tokio_postgres::Client;
use tokio_postgres::types::ToSql;
use towline_conformance::ReferenceStore;
use towline_domain::{
    Body, Fairness, Flow, ItemId, LeaseToken, Millis, Order, Policy, Submission, Timestamp, Weights,
};
use towline_postgres::{Postgres, Time};
use towline_store::{ManualClock, Operation};

const HISTORIES: u64 = 12;
const STEPS: usize = 60;
/// More items than one page holds are submitted at once now and then.
const LARGE_SUBMIT: u64 = 700;

/// Random numbers from a seed (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

struct World {
    random: Random,
    policy: Policy,
    reference: ReferenceStore,
    subject: Postgres,
    client: Client,
    queue: i32,
    salt: u64,
    /// The id in the reference store of each item of the subject.
    ids: BTreeMap<ItemId, ItemId>,
    leased: Vec<(ItemId, LeaseToken)>,
    receives: usize,
}

impl World {
    fn new(seed: u64) -> World {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let weights = [("a".to_owned(), 3), ("b".to_owned(), 2)].into();
        let fairness = match seed % 4 {
            0 => None,
            1 => Some(Fairness::default()),
            _ => Some(Fairness { weights }),
        };
        let concurrency_per_key = (seed % 4 == 3).then(|| 1 + random.below(4) as u32);
        let flow = Flow { fairness, concurrency_per_key, ..Flow::default() };
        let order = if random.below(2) == 0 { Order::Fifo } else { Order::Priority };
        let policy = Policy { order, flow, visibility_timeout: Millis::days(1), ..Policy::default() };
        let clock = Arc::new(ManualClock::new(Timestamp(1_800_000_000_000)));
        let reference = ReferenceStore::new(clock.clone(), 1);
        let schema = new_schema();
        let subject = open(&SHARED.config(), &schema, Time::Injected(clock)).unwrap();
        run(&reference, create("jobs", policy.clone())).unwrap();
        run(&subject, create("jobs", policy.clone())).unwrap();
        let client =
            RUNTIME.block_on(connect(SHARED.config().options(format!("-c search_path={schema}")))).unwrap();
        let row =
            RUNTIME.block_on(client.query_one("SELECT queues.id, salt FROM queues, catalog", &[])).unwrap();
        World {
            random,
            policy,
            reference,
            subject,
            client,
            queue: row.get(0),
            salt: row.get::<_, i64>(1).cast_unsigned(),
            ids: BTreeMap::new(),
            leased: Vec::new(),
            receives: 0,
        }
    }

    fn step(&mut self) {
        match self.random.below(10) {
            0..=3 => self.submit(),
            4..=7 => self.receive(),
            _ => self.settle(),
        }
    }

    fn submit(&mut self) {
        let count = if self.random.below(20) == 0 { LARGE_SUBMIT } else { 1 + self.random.below(20) };
        let mut batch = Vec::new();
        for _ in 0..count {
            let key = self.random.below(8);
            let fairness_key = (key > 0).then(|| char::from(b'a' + key as u8 - 1).to_string());
            let body = Body { fairness_key, ..Body::default() };
            let priority = self.random.below(3) as i16 - 1;
            let submission = Box::new(Submission { priority, body, ..Submission::default() });
            batch.push(Operation::Submit { queue: "jobs".parse().unwrap(), submission });
        }
        let ours = update(&self.reference, batch.clone());
        let theirs = update(&self.subject, batch);
        let ids = theirs.iter().zip(&ours).map(|(theirs, ours)| (submitted(theirs).0, submitted(ours).0));
        self.ids.extend(ids);
    }

    fn receive(&mut self) {
        let max = 1 + self.random.below(12) as u32;
        let pages = self.prefetched_pages(max);
        self.receives += 1;
        let seed = seed(0, self.receives);
        let expected = receive(&self.reference, "jobs", max, seed);
        let taken = receive(&self.subject, "jobs", max, seed);
        let as_ours: Vec<ItemId> = taken.iter().map(|(id, _)| self.ids[id]).collect();
        assert_eq!(as_ours, expected.iter().map(|(id, _)| *id).collect::<Vec<_>>(), "{:?}", self.policy);
        for (id, _) in &taken {
            let sequence = id.sequence(self.salt).unwrap().cast_signed();
            assert!(
                pages.iter().any(|page| page.contains(&sequence)),
                "item {sequence} of a receive of {max} is not in the pages {pages:?}; {:?}",
                self.policy.flow
            );
        }
        self.leased.extend(taken);
    }

    /// The pages that a receive fetches at first, without locking them for it.
    fn prefetched_pages(&mut self, max: u32) -> Vec<RangeInclusive<i64>> {
        let flow = &self.policy.flow;
        let wanted = i64::from(max);
        let (keys, weights): (Vec<i64>, Vec<i32>) =
            Weights::of(flow).iter().map(|(key, weight)| (key.number(), weight.cast_signed())).unzip();
        let leased_max = flow.concurrency_per_key.map(i64::from);
        let none = Vec::<i64>::new();
        let (start, zero) = (i64::MIN, 0_i64);
        let (sql, parameters): (&str, Vec<&(dyn ToSql + Sync)>) = match flow.takes_turns() {
            false => (
                include_str!("../../queries/lock_ready_pages.sql"),
                vec![&self.queue, &start, &zero, &zero, &wanted],
            ),
            true => (
                include_str!("../../queries/lock_ready_pages_by_key.sql"),
                vec![&self.queue, &wanted, &keys, &weights, &leased_max, &none, &none],
            ),
        };
        let rows = RUNTIME.block_on(async {
            let transaction = self.client.transaction().await.unwrap();
            let rows = transaction.query(sql, &parameters).await.unwrap();
            transaction.rollback().await.unwrap();
            rows
        });
        rows.iter().map(|row| row.get(0)..=row.get(1)).collect()
    }

    fn settle(&mut self) {
        for _ in 0..self.random.below(6) {
            if self.leased.is_empty() {
                return;
            }
            let at = self.random.below(self.leased.len() as u64) as usize;
            let (id, token) = self.leased.swap_remove(at);
            let verb = if self.random.below(3) == 0 { commit() } else { release() };
            run(&self.reference, lease(self.ids[&id], token, verb.clone())).unwrap();
            run(&self.subject, lease(id, token, verb)).unwrap();
        }
    }
}

#[test]
fn the_fetched_pages_have_every_item_that_a_receive_takes() {
    for seed in 0..HISTORIES {
        let mut world = World::new(seed);
        for _ in 0..STEPS {
            world.step();
        }
        world.receive();
    }
}
