//! Tokens of replicas and of slots of triggers: `towl_...`. What such a token permits follows from a leased item, and it is valid
//! as long as the lease. A server that requires no tokens checks them, too: a replica may do no more than its token permits.
//!
//! **Invariant:** at most [`STALE_MS`] after the lease has ended, the token is refused, and its requests end.

use super::scope::Access;
use super::token_cache::ActiveToken;
use super::token_store::TokenRecord;
use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::Arc;
use towline_api::compute::LeaseSecret;
use towline_compute::{Compute, ComputeError, Rights};
use towline_domain::Timestamp;

/// A token that was not confirmed for this long is looked up again.
const STALE_MS: u64 = 1000;
const CACHED_MAX: usize = 10_000;

#[derive(Debug, Default)]
pub(super) struct LeaseTokens(RwLock<HashMap<LeaseSecret, Arc<ActiveToken>>>);

impl LeaseTokens {
    /// `None`: the lease has ended, or there never was one.
    pub(super) async fn check(
        &self,
        compute: &Compute,
        secret: &LeaseSecret,
        now: Timestamp,
    ) -> Result<Option<Arc<ActiveToken>>, ComputeError> {
        let cached = self.0.read().get(secret).cloned();
        if let Some(token) = cached.filter(|token| !token.is_stale(now, STALE_MS)) {
            return Ok(Some(token));
        }
        let Some(rights) = compute.rights(secret).await? else {
            self.end(secret);
            return Ok(None);
        };
        let mut tokens = self.0.write();
        if tokens.len() >= CACHED_MAX && !tokens.contains_key(secret) {
            tokens.retain(|_, token| Arc::strong_count(token) > 1);
        }
        let token = tokens.entry(*secret).or_insert_with(|| Arc::new(ActiveToken::new(record(rights), now)));
        token.confirm(now);
        Ok(Some(Arc::clone(token)))
    }

    /// Ends the requests of tokens whose lease has ended.
    pub(super) async fn refresh(&self, compute: &Compute, now: Timestamp) -> Result<(), ComputeError> {
        let secrets: Vec<LeaseSecret> = self.0.read().keys().copied().collect();
        for secret in secrets {
            self.check(compute, &secret, now).await?;
        }
        Ok(())
    }

    fn end(&self, secret: &LeaseSecret) {
        let ended = self.0.write().remove(secret);
        if let Some(token) = ended {
            token.end();
        }
    }
}

fn record(rights: Rights) -> TokenRecord {
    TokenRecord::of_lease(rights.name, Access::of_queues(&rights.queues))
}
