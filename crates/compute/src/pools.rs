//! Pools: names of sets of nodes. The work of a pool is in a queue of its own.

use crate::{Compute, Result};
use towline_api::compute::{POOL_DEFAULT, pool_queue};
use towline_broker::store::{Operation, OperationError};
use towline_domain::name::NameError;
use towline_domain::policy::Unique;
use towline_domain::{Backoff, Millis, Policy, QueueName, Refusal, Schema};

/// Names of pools are part of the names of queues.
const POOL_BYTES_MAX: usize = 100;
/// How long a node may be silent before another node gets its work.
pub(crate) const NODE_LEASE: Millis = Millis::seconds(30);

/// Codespecs, services, triggers and nodes follow the rule for names of queues.
pub(crate) fn check_name(what: &'static str, name: &str) -> Result<()> {
    let checked = name.parse::<QueueName>();
    checked.map_err(|error: NameError| Refusal::Invalid { what, message: error.about(what).to_string() })?;
    if name.len() > 200 {
        let message = format!("a name of {} bytes; use at most 200", name.len());
        return Err(Refusal::Invalid { what, message }.into());
    }
    Ok(())
}

/// The name of a pool: the first that is given.
pub(crate) fn choose_pool(given: [Option<String>; 2]) -> Result<String> {
    let pool = given.into_iter().flatten().next().unwrap_or_else(|| POOL_DEFAULT.to_owned());
    check_name("pool", &pool)?;
    if pool.len() > POOL_BYTES_MAX {
        let message = format!("a name of {} bytes; use at most {POOL_BYTES_MAX}", pool.len());
        return Err(Refusal::Invalid { what: "pool", message }.into());
    }
    Ok(pool)
}

pub(crate) fn queue_of_pool(pool: &str) -> Result<QueueName> {
    let parsed = pool_queue(pool).parse();
    Ok(parsed.map_err(|error: NameError| Refusal::Invalid { what: "pool", message: error.to_string() })?)
}

fn policy() -> Policy {
    Policy {
        visibility_timeout: NODE_LEASE,
        max_retries: 3,
        // A node that gives work back says when it may be tried again.
        backoff: Backoff::NONE,
        unique: Unique::WhileUnfinished,
        ..Policy::default()
    }
}

impl Compute {
    /// The queue of a pool. It is created when it is first used.
    pub async fn pool(&self, pool: &str) -> Result<QueueName> {
        let name = queue_of_pool(pool)?;
        if self.broker().store().queue(name.clone()).await?.is_some() {
            return Ok(name);
        }
        let (schema, policy) = (Box::new(Schema::default()), Box::new(policy()));
        let create = Operation::CreateQueue { queue: name.clone(), schema, policy };
        match self.broker().update(vec![create]).await?.pop() {
            // An operator may have changed the policy of a queue that another server just created.
            Some(Err(OperationError::Refused(Refusal::QueueExists { .. }))) | Some(Ok(_)) => Ok(name),
            Some(Err(error)) => Err(error.into()),
            None => Err(towline_broker::store::StoreError::Closed.into()),
        }
    }
}
