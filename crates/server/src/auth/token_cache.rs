//! A cache of the tokens in use. Cached tokens are verified without a read, and reloaded from the store every few seconds.
//!
//! **Invariant:** at most [`STALE_MS`] after a token is revoked on any server, this server rejects it and ends its requests. If
//! the store is not reachable, tokens become stale and the server rejects them.

use super::rate_limit::TokenBucket;
use super::revocations::Revocations;
use super::secret::{TokenId, TokenSecret};
use super::token_store::{TokenRecord, TokenStore};
use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use towline_broker::Broker;
use towline_domain::Timestamp;
use towline_store::StoreError;

/// How often cached tokens are reloaded.
pub(super) const REFRESH_INTERVAL: Duration = Duration::from_secs(5);
/// A token that was not reloaded for this long is loaded again before use.
const STALE_MS: u64 = 15_000;
/// How often the last use of a token is stored.
const RECORD_USE_INTERVAL_MS: u64 = 60_000;
/// A token that was not used for this long leaves the cache.
const IDLE_MAX_MS: u64 = 600_000;
/// Cached tokens. Above this, tokens without a request in progress leave the cache.
const CACHED_MAX: usize = 10_000;
const LOAD_BATCH: usize = 1000;

/// A token in use. Requests in progress hold it.
#[derive(Debug)]
pub(crate) struct ActiveToken {
    pub(crate) record: TokenRecord,
    pub(super) bucket: Option<TokenBucket>,
    /// When the store last confirmed the token.
    confirmed: AtomicU64,
    pub(super) used: AtomicU64,
    /// Requests in progress.
    pub(super) requests: AtomicUsize,
    /// When the last use was last stored.
    use_recorded: AtomicU64,
    ended: watch::Sender<bool>,
}

impl ActiveToken {
    fn new(record: TokenRecord, now: Timestamp) -> ActiveToken {
        let bucket = record.rate_limit().map(|limit| TokenBucket::new(limit, now));
        let at = || AtomicU64::new(now.0);
        ActiveToken {
            record,
            bucket,
            confirmed: at(),
            used: at(),
            requests: AtomicUsize::new(0),
            use_recorded: AtomicU64::new(0),
            ended: watch::Sender::new(false),
        }
    }

    /// Completes when the token ends.
    pub(super) fn ended(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut ended = self.ended.subscribe();
        async move {
            if ended.wait_for(|ended| *ended).await.is_err() {
                // The token left the cache but is still valid.
                std::future::pending::<()>().await;
            }
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct TokenCache {
    active: RwLock<HashMap<TokenId, Arc<ActiveToken>>>,
    revocations: Revocations,
}

/// The result of checking a token.
pub(super) enum TokenCheck {
    Valid(Arc<ActiveToken>),
    /// No token has this id and this secret.
    Unknown,
    Ended(&'static str),
}

const REVOKED: TokenCheck = TokenCheck::Ended("was revoked");

impl TokenCache {
    /// Checks a token against the cache. `None`: it must be loaded from the store.
    pub(super) fn cached(&self, secret: &TokenSecret, now: Timestamp) -> Option<TokenCheck> {
        if self.revocations.contains(secret.id) {
            return Some(REVOKED);
        }
        let active = self.active.read();
        let token = active.get(&secret.id)?;
        if now.0.saturating_sub(token.confirmed.load(Ordering::Relaxed)) > STALE_MS {
            return None;
        }
        Some(verify(token, secret, now))
    }

    /// Loads a token from the store and checks it.
    pub(super) async fn load(
        &self,
        broker: &Broker,
        secret: &TokenSecret,
        now: Timestamp,
    ) -> Result<TokenCheck, StoreError> {
        let found = TokenStore::Broker(broker).find(&[secret.id]).await?.pop().flatten();
        let Some(record) = found.filter(|record| secret.matches(&record.hash)) else {
            return Ok(TokenCheck::Unknown);
        };
        if let Some(why) = record.ended(now) {
            self.end(secret.id);
            return Ok(TokenCheck::Ended(why));
        }
        let mut active = self.active.write();
        // It may have been revoked since the read.
        if self.revocations.contains(secret.id) {
            return Ok(REVOKED);
        }
        if active.len() >= CACHED_MAX && !active.contains_key(&secret.id) {
            active.retain(|_, token| Arc::strong_count(token) > 1);
        }
        let token = active.entry(secret.id).or_insert_with(|| Arc::new(ActiveToken::new(record, now)));
        token.confirmed.store(now.0, Ordering::Relaxed);
        Ok(TokenCheck::Valid(Arc::clone(token)))
    }

    /// Revokes a token: first on this server, then in the store. If the store cannot write, the next refresh tries again.
    pub(super) async fn revoke(
        &self,
        broker: &Broker,
        id: TokenId,
        now: Timestamp,
    ) -> Result<Option<TokenRecord>, StoreError> {
        let at = self.revocations.add(id, now)?;
        self.end(id);
        self.store_revocation(broker, id, at).await
    }

    async fn store_revocation(
        &self,
        broker: &Broker,
        id: TokenId,
        at: Timestamp,
    ) -> Result<Option<TokenRecord>, StoreError> {
        let revoked = TokenStore::Broker(broker).revoke(id, at).await?;
        match &revoked {
            Some(_) => self.revocations.stored(id, broker.now()),
            None => self.revocations.forget(id),
        }
        Ok(revoked)
    }

    /// Ends the requests of a token.
    fn end(&self, id: TokenId) {
        let ended = self.active.write().remove(&id);
        if let Some(token) = ended {
            token.ended.send_replace(true);
        }
    }

    /// Reloads all cached tokens, stores revocations that could not be stored before, and stores when tokens were last used. A step that
    /// fails does not keep the others from their work.
    pub(super) async fn refresh(&self, broker: &Broker) -> Result<(), StoreError> {
        let reloaded = self.reload(broker).await;
        let stored = self.store_revocations(broker).await;
        let recorded = self.record_use(broker).await;
        let now = broker.now();
        self.active.write().retain(|_, token| {
            let idle = now.0.saturating_sub(token.used.load(Ordering::Relaxed));
            idle < IDLE_MAX_MS || Arc::strong_count(token) > 1
        });
        reloaded.and(stored).and(recorded)
    }

    async fn store_revocations(&self, broker: &Broker) -> Result<(), StoreError> {
        for (id, at) in self.revocations.unstored(broker.now()) {
            self.store_revocation(broker, id, at).await?;
        }
        Ok(())
    }

    fn all(&self) -> Vec<Arc<ActiveToken>> {
        self.active.read().values().cloned().collect()
    }

    /// Ends the cached tokens that are no longer valid, and confirms the others.
    async fn reload(&self, broker: &Broker) -> Result<(), StoreError> {
        let mut reloaded = Ok(());
        for some in self.all().chunks(LOAD_BATCH) {
            let ids: Vec<TokenId> = some.iter().map(|token| token.record.id).collect();
            let found = match TokenStore::Broker(broker).find(&ids).await {
                Ok(found) => found,
                Err(error) => {
                    reloaded = Err(error);
                    continue;
                }
            };
            let now = broker.now();
            for (token, found) in some.iter().zip(found) {
                if found.is_none_or(|record| record.ended(now).is_some()) {
                    self.end(token.record.id);
                } else {
                    token.confirmed.store(now.0, Ordering::Relaxed);
                }
            }
        }
        reloaded
    }

    async fn record_use(&self, broker: &Broker) -> Result<(), StoreError> {
        let tokens = self.all();
        for some in tokens.chunks(LOAD_BATCH) {
            let now = broker.now();
            let mut used = Vec::new();
            for token in some {
                let (last, recorded) =
                    (token.used.load(Ordering::Relaxed), token.use_recorded.load(Ordering::Relaxed));
                if last > recorded && now.0.saturating_sub(recorded) >= RECORD_USE_INTERVAL_MS {
                    token.use_recorded.store(now.0, Ordering::Relaxed);
                    used.push((&token.record, Timestamp(last)));
                }
            }
            if !used.is_empty() {
                TokenStore::Broker(broker).record_use(&used, now).await?;
            }
        }
        Ok(())
    }
}

fn verify(token: &Arc<ActiveToken>, secret: &TokenSecret, now: Timestamp) -> TokenCheck {
    if !secret.matches(&token.record.hash) {
        return TokenCheck::Unknown;
    }
    match token.record.ended(now) {
        Some(why) => TokenCheck::Ended(why),
        None => TokenCheck::Valid(Arc::clone(token)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;
    use towline_api::NewToken;
    use towline_broker::Sharing;
    use towline_conformance::{InterceptedStore, Interceptor, ReferenceStore};
    use towline_store::{BoxFuture, ManualClock, Operation, Store, Updated};

    #[tokio::test]
    async fn a_token_revoked_by_another_server_ends_at_the_next_refresh() {
        let clock = Arc::new(ManualClock::new(Timestamp(1_000_000)));
        let store = Arc::new(ReferenceStore::new(clock.clone(), 0));
        let broker = Broker::start(store.clone(), clock.clone(), None, Sharing::Alone);
        let new = NewToken { name: "a".to_owned(), scopes: vec!["admin".to_owned()], ..NewToken::default() };
        let elsewhere = TokenStore::Store(&*store);
        let (text, _) = elsewhere.create(new, [1; 32], broker.now()).await.unwrap();
        let secret = TokenSecret::parse(&text).unwrap();
        let tokens = TokenCache::default();
        assert!(tokens.cached(&secret, broker.now()).is_none(), "not cached yet");
        let TokenCheck::Valid(token) = tokens.load(&broker, &secret, broker.now()).await.unwrap() else {
            panic!()
        };
        let wrong = TokenSecret::new(secret.id, [2; 32]);
        assert!(matches!(tokens.cached(&wrong, broker.now()), Some(TokenCheck::Unknown)));

        elsewhere.revoke(secret.id, broker.now()).await.unwrap().unwrap();
        assert!(
            matches!(tokens.cached(&secret, broker.now()), Some(TokenCheck::Valid(_))),
            "the cache has not been refreshed"
        );
        tokens.refresh(&broker).await.unwrap();
        token.ended().await;
        assert!(tokens.cached(&secret, broker.now()).is_none());
        assert!(matches!(tokens.load(&broker, &secret, broker.now()).await.unwrap(), TokenCheck::Ended(_)));
    }

    #[derive(Debug, Default)]
    struct ReadOnly(AtomicBool);

    impl Interceptor for ReadOnly {
        fn update<'a>(
            &'a self,
            store: &'a ReferenceStore,
            batch: Vec<Operation>,
        ) -> BoxFuture<'a, Result<Updated, StoreError>> {
            match self.0.load(Ordering::Relaxed) {
                true => Box::pin(async { Err(StoreError::Unavailable { cause: "read-only".to_owned() }) }),
                false => store.update(batch),
            }
        }
    }

    #[tokio::test]
    async fn a_revocation_takes_effect_before_it_is_stored_and_is_stored_later() {
        let clock = Arc::new(ManualClock::new(Timestamp(1_000_000)));
        let reference = ReferenceStore::new(clock.clone(), 0);
        let store = Arc::new(InterceptedStore { store: reference, guard: ReadOnly::default() });
        let broker = Broker::start(store.clone(), clock.clone(), None, Sharing::Alone);
        let new = NewToken { name: "a".to_owned(), scopes: vec!["admin".to_owned()], ..NewToken::default() };
        let (text, _) = TokenStore::Store(&*store).create(new, [1; 32], broker.now()).await.unwrap();
        let secret = TokenSecret::parse(&text).unwrap();
        let tokens = TokenCache::default();
        let TokenCheck::Valid(token) = tokens.load(&broker, &secret, broker.now()).await.unwrap() else {
            panic!()
        };
        store.guard.0.store(true, Ordering::Relaxed);
        tokens.revoke(&broker, secret.id, broker.now()).await.unwrap_err();
        token.ended().await;
        assert!(matches!(tokens.cached(&secret, broker.now()), Some(TokenCheck::Ended(_))));
        assert!(matches!(tokens.load(&broker, &secret, broker.now()).await.unwrap(), TokenCheck::Ended(_)));
        // A store that cannot write does not keep a token valid that another server has revoked.
        let new = NewToken { name: "b".to_owned(), scopes: vec!["admin".to_owned()], ..NewToken::default() };
        let elsewhere = TokenStore::Store(&store.store);
        let (text, _) = elsewhere.create(new, [2; 32], broker.now()).await.unwrap();
        let other = TokenSecret::parse(&text).unwrap();
        let TokenCheck::Valid(token) = tokens.load(&broker, &other, broker.now()).await.unwrap() else {
            panic!()
        };
        elsewhere.revoke(other.id, broker.now()).await.unwrap().unwrap();
        tokens.refresh(&broker).await.unwrap_err();
        tokio::time::timeout(Duration::from_secs(60), token.ended()).await.expect("the refresh ends it");
        clock.advance(5000);
        store.guard.0.store(false, Ordering::Relaxed);
        tokens.refresh(&broker).await.unwrap();
        let stored = TokenStore::Store(&*store).find(&[secret.id]).await.unwrap().pop().flatten().unwrap();
        let shown = stored.describe(None);
        assert_eq!(shown.revoked_at, Some(Timestamp(1_000_000).into()), "the time of the revocation");
        clock.advance(60_000);
        tokens.refresh(&broker).await.unwrap();
        assert!(tokens.cached(&secret, broker.now()).is_none(), "the store knows it");
        assert!(matches!(tokens.load(&broker, &secret, broker.now()).await.unwrap(), TokenCheck::Ended(_)));
        assert!(tokens.revoke(&broker, 99, broker.now()).await.unwrap().is_none());
        assert!(tokens.revocations.unstored(broker.now()).is_empty());
    }

    #[tokio::test]
    async fn a_stale_token_is_loaded_again() {
        let clock = Arc::new(ManualClock::new(Timestamp(1_000_000)));
        let store = Arc::new(ReferenceStore::new(clock.clone(), 0));
        let broker = Broker::start(store.clone(), clock.clone(), None, Sharing::Alone);
        let new = NewToken { name: "a".to_owned(), scopes: vec!["admin".to_owned()], ..NewToken::default() };
        let (text, _) = TokenStore::Store(&*store).create(new, [1; 32], broker.now()).await.unwrap();
        let secret = TokenSecret::parse(&text).unwrap();
        let tokens = TokenCache::default();
        tokens.load(&broker, &secret, broker.now()).await.unwrap();
        clock.advance(STALE_MS);
        assert!(tokens.cached(&secret, broker.now()).is_some());
        clock.advance(1);
        assert!(tokens.cached(&secret, broker.now()).is_none());
        // The refresh confirms the token and stores its last use.
        tokens.refresh(&broker).await.unwrap();
        assert!(tokens.cached(&secret, broker.now()).is_some());
        let used = TokenStore::Store(&*store).last_used(&[secret.id]).await.unwrap();
        assert_eq!(used, [Some(Timestamp(1_000_000))]);
    }
}
