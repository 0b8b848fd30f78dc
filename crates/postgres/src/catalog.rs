//! A server's cache of the queues, with the catalog version that it was read at.

use crate::encoding::code;
use crate::encoding::sql::queue_id;
use crate::error::damaged;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio_postgres::Row;
use towline_domain::{Queue, QueueId, QueueName};
use towline_store::StoreError;

/// **Invariant:** a batch uses it only if the catalog version, read under the store's lock, is the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct Catalog {
    pub(crate) version: i64,
    by_id: FxHashMap<QueueId, Arc<Queue>>,
    by_name: BTreeMap<QueueName, QueueId>,
}

impl Catalog {
    pub(crate) fn by_id(&self, id: QueueId) -> Option<&Queue> {
        self.by_id.get(&id).map(AsRef::as_ref)
    }

    pub(crate) fn by_name(&self, name: &QueueName) -> Option<&Queue> {
        self.by_name.get(name).and_then(|&id| self.by_id(id))
    }

    pub(crate) fn len(&self) -> usize {
        self.by_name.len()
    }

    fn forget(&mut self, id: QueueId) {
        if let Some(removed) = self.by_id.remove(&id)
            && self.by_name.get(&removed.name) == Some(&id)
        {
            self.by_name.remove(&removed.name);
        }
    }

    /// Takes the rows of `read_changed_queues.sql`.
    pub(crate) fn learn(&mut self, rows: &[Row]) -> Result<(), StoreError> {
        for row in rows {
            let id = queue_id(row.get(0));
            self.forget(id);
            if let Some(text) = row.get::<_, Option<&str>>(1) {
                let queue = read_queue(text)?;
                self.by_name.insert(queue.name.clone(), id);
                self.by_id.insert(id, Arc::new(queue));
            }
            self.version = self.version.max(row.get(2));
        }
        Ok(())
    }
}

pub(crate) fn read_queue(definition: &str) -> Result<Queue, StoreError> {
    code::from_json(definition).map_err(|error| damaged("of queues", error))
}

/// The latest catalog that a worker of this server has read.
#[derive(Debug, Default)]
pub(crate) struct CatalogCache(Mutex<Arc<Catalog>>);

impl CatalogCache {
    pub(crate) fn get(&self) -> Arc<Catalog> {
        self.0.lock().clone()
    }

    pub(crate) fn put(&self, catalog: Arc<Catalog>) {
        *self.0.lock() = catalog;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use towline_domain::{
        Backoff, FailureKind, Fairness, Flow, LeaseRule, Millis, Order, Policy, QueueState, Rate, Schema,
        Timestamp, Unique,
    };

    #[test]
    fn a_stored_queue_stays_readable() {
        let policy = Policy {
            visibility_timeout: Millis(1),
            max_retries: 2,
            backoff: Backoff::default(),
            completed_ttl: Some(Millis(3)),
            failed_ttl: None,
            output_ttl: Some(Millis(4)),
            expire_after: Some(Millis(5)),
            give_up_after: Some(Millis(6)),
            poison_after: Some(7),
            order: Order::Fifo,
            depth_limit: Some(8),
            dead_letter_queue: Some("dead".parse().unwrap()),
            dead_letter: [FailureKind::Explicit].into(),
            unique: Unique::WhileUnfinished,
            lease: LeaseRule::default(),
            tally_tags: ["region".to_owned()].into(),
            tally_values_max: 16,
            flow: Flow {
                concurrency: Some(9),
                rate: Some(Rate::new(10, Millis(1000))),
                fairness: Some(Fairness { weights: [("k".to_owned(), 2)].into() }),
                concurrency_per_key: Some(11),
            },
        };
        let mut queue = Queue {
            id: QueueId(12),
            name: "jobs".parse().unwrap(),
            schema: Schema {
                inputs: [("in".parse().unwrap(), true)].into(),
                output_params: [("out".parse().unwrap(), false)].into(),
                ..Schema::default()
            },
            policy,
            state: QueueState::Closed { since: Timestamp(13) },
            paused: true,
            created_at: Timestamp(14),
            revision: 15,
        };
        assert_eq!(code::to_json(&queue), GOLDEN);
        assert_eq!(read_queue(GOLDEN).unwrap(), queue);
        let later = GOLDEN.replacen('{', r#"{"added_later":[1],"#, 1);
        assert_eq!(read_queue(&later).unwrap(), queue);
        // Written before there was this setting.
        let earlier = GOLDEN.replacen(r#""tally_values_max":16,"#, "", 1);
        assert_ne!(earlier, GOLDEN);
        queue.policy.tally_values_max = 100;
        assert_eq!(read_queue(&earlier).unwrap(), queue);
    }

    const GOLDEN: &str = concat!(
        r#"{"id":12,"name":"jobs","schema":{"inputs":{"in":true},"outputs":{},"input_params":{},"#,
        r#""output_params":{"out":false}},"policy":{"visibility_timeout":1,"max_retries":2,"#,
        r#""backoff":{"growth":{"exponential":{"base":1000,"factor_permille":2000,"cap":300000}},"#,
        r#""jitter":{"random":{"permille":500}}},"completed_ttl":3,"failed_ttl":null,"output_ttl":4,"#,
        r#""expire_after":5,"give_up_after":6,"poison_after":7,"order":"fifo","depth_limit":8,"#,
        r#""dead_letter_queue":"dead","dead_letter":["explicit"],"unique":"while_unfinished","#,
        r#""lease":{"ack_timeout":null,"renewal_permille":null,"renewals_max":null},"#,
        r#""tally_tags":["region"],"tally_values_max":16,"flow":{"concurrency":9,"rate":{"count":10,"per":1000,"burst":1},"#,
        r#""fairness":{"weights":{"k":2}},"concurrency_per_key":11}},"state":{"closed":{"since":13}},"#,
        r#""paused":true,"created_at":14,"revision":15}"#,
    );
}
