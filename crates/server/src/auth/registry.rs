//! Tokens that were shown lately: verified without asking the store, and asked about again every few seconds.
//!
//! **Invariant:** a token that was revoked, anywhere, is refused at the latest [`STALE_MS`] later, and calls that go on
//! under it end. A store that cannot be asked lets nobody in.

use super::rate::Bucket;
use super::records::{self, Place, Record};
use super::secret::{Secret, TokenId};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tokio::sync::watch;
use towline_broker::Broker;
use towline_domain::Timestamp;
use towline_store::StoreError;

/// How often the store is asked about tokens that are in use.
pub(super) const CHECK_EVERY: Duration = Duration::from_secs(5);
/// What was not confirmed for so long is asked about before it is used.
const STALE_MS: u64 = 15_000;
/// How often it is kept when a token was last used.
const NOTE_EVERY_MS: u64 = 60_000;
/// What nobody has shown for so long is forgotten.
const FORGET_AFTER_MS: u64 = 600_000;
/// Tokens held; with more, those go that nobody uses at the moment.
const HELD_MAX: usize = 10_000;
const ASK_AT_ONCE: usize = 1000;

/// A token in use.
#[derive(Debug)]
pub(crate) struct Holder {
    pub(crate) record: Record,
    pub(super) bucket: Option<Bucket>,
    checked: AtomicU64,
    pub(super) used: AtomicU64,
    noted: AtomicU64,
    ended: watch::Sender<bool>,
}

impl Holder {
    fn new(record: Record, now: Timestamp) -> Holder {
        let bucket = record.rate_limit().map(|limit| Bucket::new(limit, now));
        let at = || AtomicU64::new(now.0);
        Holder {
            record,
            bucket,
            checked: at(),
            used: at(),
            noted: AtomicU64::new(0),
            ended: watch::Sender::new(false),
        }
    }

    /// Ready when the token is good no longer.
    pub(super) fn ended(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut ended = self.ended.subscribe();
        async move {
            if ended.wait_for(|ended| *ended).await.is_err() {
                // Forgotten, not ended.
                std::future::pending::<()>().await;
            }
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Registry {
    held: RwLock<HashMap<TokenId, Arc<Holder>>>,
}

/// What became of a token that was shown.
pub(super) enum Shown {
    Good(Arc<Holder>),
    /// Not one of ours, or not with this secret.
    Unknown,
    Ended(&'static str),
}

impl Registry {
    /// Without asking anybody; `None`: the store must be asked.
    pub(super) fn recall(&self, secret: &Secret, now: Timestamp) -> Option<Shown> {
        let held = self.held.read().unwrap_or_else(PoisonError::into_inner);
        let holder = held.get(&secret.id)?;
        if now.0.saturating_sub(holder.checked.load(Ordering::Relaxed)) > STALE_MS {
            return None;
        }
        Some(judge(holder, secret, now))
    }

    pub(super) async fn ask(
        &self,
        broker: &Broker,
        secret: &Secret,
        now: Timestamp,
    ) -> Result<Shown, StoreError> {
        let found = records::find(Place::Served(broker), &[secret.id]).await?.pop().flatten();
        let Some(record) = found.filter(|record| secret.is(&record.hash)) else { return Ok(Shown::Unknown) };
        if let Some(why) = record.ended(now) {
            self.end(secret.id);
            return Ok(Shown::Ended(why));
        }
        let mut held = self.held.write().unwrap_or_else(PoisonError::into_inner);
        if held.len() >= HELD_MAX && !held.contains_key(&secret.id) {
            held.retain(|_, holder| Arc::strong_count(holder) > 1);
        }
        let holder = held.entry(secret.id).or_insert_with(|| Arc::new(Holder::new(record, now)));
        holder.checked.store(now.0, Ordering::Relaxed);
        Ok(Shown::Good(Arc::clone(holder)))
    }

    /// Ends what goes on under a token.
    pub(super) fn end(&self, id: TokenId) {
        let ended = self.held.write().unwrap_or_else(PoisonError::into_inner).remove(&id);
        if let Some(holder) = ended {
            holder.ended.send_replace(true);
        }
    }

    /// Asks about all tokens that are held, and keeps when they were used.
    pub(super) async fn check(&self, broker: &Broker) -> Result<(), StoreError> {
        let holders: Vec<Arc<Holder>> =
            self.held.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
        for some in holders.chunks(ASK_AT_ONCE) {
            let ids: Vec<TokenId> = some.iter().map(|holder| holder.record.id).collect();
            let found = records::find(Place::Served(broker), &ids).await?;
            let now = broker.now();
            let mut used = Vec::new();
            for (holder, found) in some.iter().zip(found) {
                if found.is_none_or(|record| record.ended(now).is_some()) {
                    self.end(holder.record.id);
                    continue;
                }
                holder.checked.store(now.0, Ordering::Relaxed);
                let (last, noted) =
                    (holder.used.load(Ordering::Relaxed), holder.noted.load(Ordering::Relaxed));
                if last > noted && now.0.saturating_sub(noted) >= NOTE_EVERY_MS {
                    holder.noted.store(now.0, Ordering::Relaxed);
                    used.push((holder.record.id, Timestamp(last)));
                }
            }
            if !used.is_empty() {
                records::note_use(Place::Served(broker), &used).await?;
            }
        }
        drop(holders);
        let now = broker.now();
        let mut held = self.held.write().unwrap_or_else(PoisonError::into_inner);
        held.retain(|_, holder| {
            let idle = now.0.saturating_sub(holder.used.load(Ordering::Relaxed));
            idle < FORGET_AFTER_MS || Arc::strong_count(holder) > 1
        });
        Ok(())
    }
}

fn judge(holder: &Arc<Holder>, secret: &Secret, now: Timestamp) -> Shown {
    if !secret.is(&holder.record.hash) {
        return Shown::Unknown;
    }
    match holder.record.ended(now) {
        Some(why) => Shown::Ended(why),
        None => Shown::Good(Arc::clone(holder)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use towline_api::NewToken;
    use towline_broker::Sharing;
    use towline_conformance::ReferenceStore;
    use towline_store::ManualClock;

    #[tokio::test]
    async fn what_another_server_revokes_ends_here_at_the_next_look() {
        let clock = Arc::new(ManualClock::new(Timestamp(1_000_000)));
        let store = Arc::new(ReferenceStore::new(clock.clone(), 0));
        let broker = Broker::start(store.clone(), clock.clone(), None, Sharing::Alone);
        let new = NewToken { name: "a".to_owned(), scopes: vec!["admin".to_owned()], ..NewToken::default() };
        let elsewhere = Place::Alone(&*store);
        let (text, _) = records::create(elsewhere, new, [1; 32], broker.now()).await.unwrap().unwrap();
        let secret = Secret::parse(&text).unwrap();
        let registry = Registry::default();
        assert!(registry.recall(&secret, broker.now()).is_none(), "not known yet");
        let Shown::Good(holder) = registry.ask(&broker, &secret, broker.now()).await.unwrap() else {
            panic!()
        };
        let wrong = Secret::new(secret.id, [2; 32]);
        assert!(matches!(registry.recall(&wrong, broker.now()), Some(Shown::Unknown)));

        records::revoke(elsewhere, secret.id, broker.now()).await.unwrap().unwrap();
        assert!(matches!(registry.recall(&secret, broker.now()), Some(Shown::Good(_))), "nobody has told it");
        registry.check(&broker).await.unwrap();
        holder.ended().await;
        assert!(registry.recall(&secret, broker.now()).is_none());
        assert!(matches!(registry.ask(&broker, &secret, broker.now()).await.unwrap(), Shown::Ended(_)));
    }

    #[tokio::test]
    async fn what_was_not_confirmed_for_long_is_asked_about() {
        let clock = Arc::new(ManualClock::new(Timestamp(1_000_000)));
        let store = Arc::new(ReferenceStore::new(clock.clone(), 0));
        let broker = Broker::start(store.clone(), clock.clone(), None, Sharing::Alone);
        let new = NewToken { name: "a".to_owned(), scopes: vec!["admin".to_owned()], ..NewToken::default() };
        let (text, _) =
            records::create(Place::Alone(&*store), new, [1; 32], broker.now()).await.unwrap().unwrap();
        let secret = Secret::parse(&text).unwrap();
        let registry = Registry::default();
        registry.ask(&broker, &secret, broker.now()).await.unwrap();
        clock.advance(STALE_MS);
        assert!(registry.recall(&secret, broker.now()).is_some());
        clock.advance(1);
        assert!(registry.recall(&secret, broker.now()).is_none());
        // Confirmed anew, and its use is kept.
        registry.check(&broker).await.unwrap();
        assert!(registry.recall(&secret, broker.now()).is_some());
        let used = records::last_used(Place::Alone(&*store), &[secret.id]).await.unwrap();
        assert_eq!(used, [Some(Timestamp(1_000_000))]);
    }
}
