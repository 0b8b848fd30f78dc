//! Tokens that were revoked through this server. A revocation takes effect here before it is stored, so a store that cannot
//! write does not keep a token valid on this server.

use super::secret::TokenId;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use towline_domain::{Millis, Timestamp};
use towline_store::StoreError;

/// Revocations that wait to be stored.
const UNSTORED_MAX: usize = 10_000;
/// A load that began before the revocation was stored may end after it, but no later than this.
const KEPT: Millis = Millis::seconds(60);

#[derive(Debug, Clone, Copy)]
struct Revocation {
    at: Timestamp,
    /// When it was stored.
    stored: Option<Timestamp>,
}

#[derive(Debug, Default)]
pub(super) struct Revocations(Mutex<BTreeMap<TokenId, Revocation>>);

impl Revocations {
    pub(super) fn contains(&self, id: TokenId) -> bool {
        self.0.lock().contains_key(&id)
    }

    /// Adds a revocation. Returns its time: the first one if the token was revoked before.
    pub(super) fn add(&self, id: TokenId, now: Timestamp) -> Result<Timestamp, StoreError> {
        let mut known = self.0.lock();
        if known.len() >= UNSTORED_MAX && !known.contains_key(&id) {
            let cause = format!("{} revocations already wait to be stored", known.len());
            return Err(StoreError::Unavailable { cause });
        }
        Ok(known.entry(id).or_insert(Revocation { at: now, stored: None }).at)
    }

    pub(super) fn stored(&self, id: TokenId, now: Timestamp) {
        if let Some(known) = self.0.lock().get_mut(&id) {
            known.stored = Some(now);
        }
    }

    /// Removes the revocation of a token that does not exist.
    pub(super) fn forget(&self, id: TokenId) {
        self.0.lock().remove(&id);
    }

    /// The revocations to store, with their times. Removes those that were stored long enough ago.
    pub(super) fn unstored(&self, now: Timestamp) -> Vec<(TokenId, Timestamp)> {
        let mut known = self.0.lock();
        known.retain(|_, known| known.stored.is_none_or(|at| at.after(KEPT) > now));
        let unstored = known.iter().filter(|(_, known)| known.stored.is_none());
        unstored.map(|(id, known)| (*id, known.at)).collect()
    }
}
