//! Tokens as key-value records, which every kind of store has.
//!
//! **Invariant:** keys with the prefix [`RESERVED`] belong to the server. No request of a client can read or write them.

use super::scope::{Access, Scope};
use super::secret::{SecretHash, TokenId, TokenSecret};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use towline_api::{NewToken, RateLimit, TokenShown};
use towline_broker::Broker;
use towline_domain::kv::{KvAnswer, KvCommand, KvRecord, TOKENS};
use towline_domain::limits::KV_PAGE_MAX;
use towline_domain::{Millis, Refusal, Timestamp};
use towline_store::{Answered, KvPage, Operation, OperationResult, Reply, Store, StoreError};

const NAME_BYTES_MAX: usize = 200;
const SCOPES_MAX: usize = 100;
const RATE_MAX: u32 = 1_000_000;
/// Valid tokens. A token that has ended leaves room for a new one.
pub(crate) const VALID_MAX: usize = 10_000;
const EXPIRES_MAX: Millis = Millis::days(3650);
/// Lists show a token for this long after it ended.
const LISTED_AFTER_END: Millis = Millis::days(30);

/// The store that contains the tokens.
#[derive(Clone, Copy)]
pub(crate) enum TokenStore<'a> {
    /// Through the broker of a running server, so that it wakes waiters after each update.
    Broker(&'a Broker),
    /// Directly, without a server.
    Store(&'a dyn Store),
}

fn counter() -> String {
    format!("{TOKENS}s")
}

/// With leading zeros, so that the order of the keys is the order of creation.
fn key(id: TokenId) -> String {
    format!("{TOKENS}/{id:020}")
}

/// Whether a key is that of a token.
pub(crate) fn is_token(key: &str) -> bool {
    key.strip_prefix(TOKENS).is_some_and(|rest| rest.starts_with('/'))
}

fn used_key(id: TokenId) -> String {
    format!("{TOKENS}-used/{id}")
}

/// The stored form of a token. Its last use is a separate record, because writing it must not undo a revocation.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct StoredToken {
    name: String,
    hash: String,
    scopes: Vec<String>,
    created_at: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires_at: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    revoked_at: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rate_limit: Option<RateLimit>,
}

/// A stored token with its parsed scopes.
#[derive(Debug, Clone)]
pub(crate) struct TokenRecord {
    pub(crate) id: TokenId,
    pub(crate) hash: SecretHash,
    pub(crate) access: Access,
    stored: StoredToken,
}

impl TokenRecord {
    fn read(id: TokenId, value: &[u8]) -> Result<TokenRecord, StoreError> {
        let damaged = |detail: String| StoreError::Unavailable { cause: format!("token {id}: {detail}") };
        let stored: StoredToken =
            serde_json::from_slice(value).map_err(|error| damaged(error.to_string()))?;
        let hash =
            SecretHash::parse(&stored.hash).ok_or_else(|| damaged("its hash is not valid".to_owned()))?;
        // A scope that this version does not know permits nothing.
        let scopes = stored.scopes.iter().filter_map(|scope| scope.parse().ok()).collect();
        Ok(TokenRecord { id, hash, access: Access::new(scopes), stored })
    }

    /// The record of a token that is not stored: it is derived from a lease.
    pub(super) fn of_lease(name: String, access: Access) -> TokenRecord {
        let hash = SecretHash::unmatched();
        let stored = StoredToken {
            name,
            hash: String::new(),
            scopes: Vec::new(),
            created_at: 0,
            expires_at: None,
            revoked_at: None,
            rate_limit: None,
        };
        TokenRecord { id: 0, hash, access, stored }
    }

    pub(crate) fn name(&self) -> &str {
        &self.stored.name
    }

    /// For the audit log.
    pub(crate) fn audit_subject(&self) -> String {
        format!("token {} {:?} {}", self.id, self.stored.name, self.stored.scopes.join(" "))
    }

    pub(crate) fn rate_limit(&self) -> Option<RateLimit> {
        self.stored.rate_limit
    }

    /// How long to keep what is stored about the token. `None`: as long as it is valid.
    fn kept(&self, now: Timestamp) -> Option<Millis> {
        let ends = self.stored.revoked_at.or(self.stored.expires_at);
        ends.map(|at| Millis(at.saturating_sub(now.0).saturating_add(LISTED_AFTER_END.0)))
    }

    /// Why the token is no longer valid.
    pub(crate) fn ended(&self, now: Timestamp) -> Option<&'static str> {
        match (self.stored.revoked_at, self.stored.expires_at) {
            (Some(_), _) => Some("was revoked"),
            (None, Some(at)) if at <= now.0 => Some("has expired"),
            _ => None,
        }
    }

    pub(crate) fn describe(&self, last_used: Option<Timestamp>) -> TokenShown {
        let time = |ms: u64| Timestamp(ms).into();
        TokenShown {
            id: self.id.to_string(),
            name: self.stored.name.clone(),
            scopes: self.stored.scopes.clone(),
            created_at: time(self.stored.created_at),
            expires_at: self.stored.expires_at.map(time),
            revoked_at: self.stored.revoked_at.map(time),
            last_used_at: last_used.map(Into::into),
            rate_limit: self.stored.rate_limit,
        }
    }
}

fn invalid(what: &'static str, message: String) -> Refusal {
    Refusal::Invalid { what, message }
}

/// Checks a request for a new token.
fn check(new: NewToken, hash: SecretHash, now: Timestamp) -> Result<StoredToken, Refusal> {
    let NewToken { name, scopes, expires_in, rate_limit } = new;
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
        let message = format!("use 1 to {NAME_BYTES_MAX} bytes that name the owner of the token");
        return Err(invalid("name", message));
    }
    if scopes.is_empty() || scopes.len() > SCOPES_MAX {
        let message = format!("{} given; use 1 to {SCOPES_MAX}, for example queue:jobs:submit", scopes.len());
        return Err(invalid("scopes", message));
    }
    for scope in &scopes {
        scope.parse::<Scope>().map_err(|why| invalid("scopes", why))?;
    }
    let expires_in = expires_in.map(|span| span.into_domain("expires_in")).transpose()?;
    if let Some(span) = expires_in.filter(|span| !(Millis::seconds(1)..=EXPIRES_MAX).contains(span)) {
        return Err(invalid("expires_in", format!("{span} is out of range; use 1s to {EXPIRES_MAX}")));
    }
    if let Some(RateLimit { per_second, burst }) = rate_limit {
        let wrong = |number| !(1..=RATE_MAX).contains(&number);
        if wrong(per_second) || burst.is_some_and(wrong) {
            return Err(invalid("rate_limit", format!("use 1 to {RATE_MAX}")));
        }
    }
    Ok(StoredToken {
        name,
        hash: hash.to_hex(),
        scopes,
        created_at: now.0,
        expires_at: expires_in.map(|span| now.after(span).0),
        revoked_at: None,
        rate_limit,
    })
}

impl<'a> TokenStore<'a> {
    fn store(self) -> &'a dyn Store {
        match self {
            TokenStore::Broker(broker) => broker.store(),
            TokenStore::Store(store) => store,
        }
    }

    async fn update(self, batch: Vec<Operation>) -> Result<Vec<Answered>, StoreError> {
        match self {
            TokenStore::Broker(broker) => broker.update(batch).await,
            TokenStore::Store(store) => Ok(store.update(batch).await?.answers),
        }
    }

    async fn run(self, key: String, command: KvCommand) -> Result<KvAnswer, StoreError> {
        match self.update(vec![Operation::Kv { key, command }]).await?.pop() {
            Some(Ok(Reply::Kv(answer))) => Ok(answer),
            Some(Err(error)) => Err(error.into_fault()),
            _ => Err(StoreError::Closed),
        }
    }

    async fn put(self, record: &TokenRecord, now: Timestamp) -> Result<(), StoreError> {
        let ttl = record.kept(now);
        // Cannot fail: strings and numbers always have a JSON form.
        let value = Bytes::from(serde_json::to_vec(&record.stored).unwrap_or_default());
        self.run(key(record.id), KvCommand::Set { value, ttl }).await.map(drop)
    }

    pub(crate) async fn valid_tokens(self, now: Timestamp) -> Result<usize, StoreError> {
        let (mut count, mut after) = (0, 0);
        loop {
            let (records, next) = self.page(after, KV_PAGE_MAX).await?;
            count += records.iter().filter(|record| record.ended(now).is_none()).count();
            let Some(next) = next else { return Ok(count) };
            after = next;
        }
    }

    /// Creates a token. Returns its text, which is not stored, and its record.
    pub(crate) async fn create(
        self,
        new: NewToken,
        secret: [u8; 32],
        now: Timestamp,
    ) -> OperationResult<(String, TokenRecord)> {
        let hash = TokenSecret::new(0, secret).hash();
        let stored = check(new, hash, now)?;
        let held = self.valid_tokens(now).await?;
        if held >= VALID_MAX {
            return Err(Refusal::StoreFull { what: "valid tokens", held: held as u64 }.into());
        }
        let KvAnswer::Number(id) = self.run(counter(), KvCommand::Increment { by: 1, ttl: None }).await?
        else {
            return Err(StoreError::Closed.into());
        };
        let id = id.cast_unsigned();
        let access = Access::new(stored.scopes.iter().filter_map(|scope| scope.parse().ok()).collect());
        let record = TokenRecord { id, hash, access, stored };
        self.put(&record, now).await?;
        Ok((TokenSecret::new(id, secret).text(), record))
    }

    /// Reads tokens by id, in the order of `ids`.
    pub(crate) async fn find(self, ids: &[TokenId]) -> Result<Vec<Option<TokenRecord>>, StoreError> {
        let found = self.store().kv_get(ids.iter().map(|id| key(*id)).collect()).await?;
        let read = |(id, record): (&TokenId, Option<KvRecord>)| {
            record.map(|record| TokenRecord::read(*id, &record.value)).transpose()
        };
        ids.iter().zip(found).map(read).collect()
    }

    /// Whether a token was ever created.
    pub(crate) async fn any(self) -> Result<bool, StoreError> {
        Ok(self.store().kv_get(vec![counter()]).await?.pop().flatten().is_some())
    }

    /// Up to `limit` tokens with ids above `after`. Also returns the cursor of the next page.
    async fn page(
        self,
        after: TokenId,
        limit: usize,
    ) -> Result<(Vec<TokenRecord>, Option<TokenId>), StoreError> {
        let page = KvPage { prefix: format!("{TOKENS}/"), after: Some(key(after)), limit };
        let found = self.store().kv_list(page).await?;
        let id = |key: &str| key.rsplit('/').next().and_then(|id| id.parse().ok()).unwrap_or_default();
        let next = found.last().map(|(key, _)| id(key));
        // A damaged token must not hide the others, nor keep an operator from creating one.
        let read = |(key, record): &(String, KvRecord)| {
            TokenRecord::read(id(key), &record.value).inspect_err(|error| tracing::error!("{error}")).ok()
        };
        Ok((found.iter().filter_map(read).collect(), next))
    }

    /// Lists up to `limit` tokens with ids above `after`. Also returns the cursor of the next page.
    pub(crate) async fn list(
        self,
        mut after: TokenId,
        limit: usize,
    ) -> Result<(Vec<TokenShown>, Option<TokenId>), StoreError> {
        let mut listed = Vec::new();
        while listed.len() < limit {
            let (records, next) = self.page(after, limit - listed.len()).await?;
            let Some(next) = next else { return Ok((listed, None)) };
            let used = self.last_used(&records.iter().map(|record| record.id).collect::<Vec<_>>()).await?;
            listed.extend(records.iter().zip(used).map(|(record, used)| record.describe(used)));
            after = next;
        }
        Ok((listed, Some(after)))
    }

    pub(crate) async fn last_used(self, ids: &[TokenId]) -> Result<Vec<Option<Timestamp>>, StoreError> {
        let found = self.store().kv_get(ids.iter().map(|id| used_key(*id)).collect()).await?;
        let time = |value: Bytes| String::from_utf8(value.into()).ok()?.parse().ok().map(Timestamp);
        Ok(found.into_iter().map(|record| time(record?.value)).collect())
    }

    /// Revokes a token. A second call changes nothing: the first time of revocation stays.
    pub(crate) async fn revoke(self, id: TokenId, now: Timestamp) -> Result<Option<TokenRecord>, StoreError> {
        let Some(mut record) = self.find(&[id]).await?.pop().flatten() else { return Ok(None) };
        if record.stored.revoked_at.is_none() {
            record.stored.revoked_at = Some(now.0);
            self.put(&record, now).await?;
            if let Some(used) = self.last_used(&[id]).await?.pop().flatten() {
                // Its time to live was that of a valid token.
                self.record_use(&[(&record, used)], now).await?;
            }
        }
        Ok(Some(record))
    }

    /// Stores when tokens were last used, in one update.
    pub(crate) async fn record_use(
        self,
        used: &[(&TokenRecord, Timestamp)],
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let set = |(token, at): &(&TokenRecord, Timestamp)| {
            let value = Bytes::from(at.0.to_string());
            // If another server revokes a token without an expiry meanwhile, its record does not stay for ever.
            let ttl = Some(token.kept(now).unwrap_or(EXPIRES_MAX));
            Operation::Kv { key: used_key(token.id), command: KvCommand::Set { value, ttl } }
        };
        self.update(used.iter().map(set).collect()).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use towline_conformance::ReferenceStore;
    use towline_store::ManualClock;

    const NOW: Timestamp = Timestamp(1_000_000);

    fn new(scopes: &[&str]) -> NewToken {
        NewToken {
            name: "ops".to_owned(),
            scopes: scopes.iter().map(|scope| (*scope).to_owned()).collect(),
            ..NewToken::default()
        }
    }

    #[test]
    fn a_stored_token_stays_readable() {
        let stored = StoredToken {
            name: "ops".to_owned(),
            hash: "00".repeat(32),
            scopes: vec!["admin".to_owned(), "queue:a:read".to_owned()],
            created_at: 1,
            expires_at: Some(2),
            revoked_at: Some(3),
            rate_limit: Some(RateLimit { per_second: 4, burst: Some(5) }),
        };
        let text = format!(
            "{{\"name\":\"ops\",\"hash\":\"{}\",\"scopes\":[\"admin\",\"queue:a:read\"],\"created_at\":1,\"expires_at\":2,\
             \"revoked_at\":3,\"rate_limit\":{{\"per_second\":4,\"burst\":5}}}}",
            "00".repeat(32)
        );
        assert_eq!(serde_json::to_string(&stored).unwrap(), text);
        let later = text.replacen('{', "{\"added_later\":[1],", 1);
        for text in [&text, &later] {
            let read: StoredToken = serde_json::from_str(text).unwrap();
            assert_eq!(serde_json::to_string(&read).unwrap(), serde_json::to_string(&stored).unwrap());
        }
    }

    #[tokio::test]
    async fn tokens_are_created_found_listed_and_revoked() {
        let store = ReferenceStore::new(Arc::new(ManualClock::new(NOW)), 0);
        let tokens = TokenStore::Store(&store);
        assert!(!tokens.any().await.unwrap());
        let (text, created) = tokens.create(new(&["admin"]), [7; 32], NOW).await.unwrap();
        let (_, other) = tokens.create(new(&["queue:a:read"]), [8; 32], NOW).await.unwrap();
        assert!(tokens.any().await.unwrap());
        assert_ne!(created.id, other.id);
        let secret = TokenSecret::parse(&text).unwrap();
        let found = tokens.find(&[secret.id, 99]).await.unwrap();
        assert!(found[1].is_none());
        let found = found[0].as_ref().unwrap();
        assert!(secret.matches(&found.hash) && found.ended(NOW).is_none() && found.access.admin());
        let stored = store.kv_get(vec![key(created.id)]).await.unwrap().pop().flatten().unwrap();
        assert!(
            !String::from_utf8_lossy(&stored.value).contains(&"07".repeat(32)),
            "the secret is not stored"
        );

        tokens.record_use(&[(&created, Timestamp(5))], NOW).await.unwrap();
        let (page, next) = tokens.list(0, 1).await.unwrap();
        assert_eq!((page[0].id.as_str(), next), ("1", Some(1)));
        assert_eq!(page[0].last_used_at, Some(Timestamp(5).into()));
        let (page, next) = tokens.list(1, 10).await.unwrap();
        assert_eq!((page[0].scopes.join(" "), next), ("queue:a:read".to_owned(), None));

        let first = tokens.revoke(created.id, NOW).await.unwrap().unwrap();
        let again = tokens.revoke(created.id, Timestamp(NOW.0 + 5)).await.unwrap().unwrap();
        assert_eq!(first.describe(None), again.describe(None));
        assert_eq!(again.ended(NOW), Some("was revoked"));
        assert!(tokens.revoke(99, NOW).await.unwrap().is_none());
    }

    #[tokio::test]
    async fn the_last_use_of_a_token_is_kept_as_long_as_the_token_is_listed() {
        let store = ReferenceStore::new(Arc::new(ManualClock::new(NOW)), 0);
        let tokens = TokenStore::Store(&store);
        let expires_in = Some(serde_json::from_value("1m".into()).unwrap());
        let brief = NewToken { expires_in, ..new(&["admin"]) };
        let (_, brief) = tokens.create(brief, [1; 32], NOW).await.unwrap();
        let (_, lasting) = tokens.create(new(&["admin"]), [2; 32], NOW).await.unwrap();
        let kept = async |token: &TokenRecord| {
            let record = store.kv_get(vec![used_key(token.id)]).await.unwrap().pop().flatten().unwrap();
            Millis(record.expires_at.unwrap().0 - NOW.0)
        };
        tokens.record_use(&[(&brief, NOW), (&lasting, NOW)], NOW).await.unwrap();
        assert_eq!(kept(&brief).await, Millis(60_000 + LISTED_AFTER_END.0));
        assert_eq!(kept(&lasting).await, EXPIRES_MAX);
        for token in [&brief, &lasting] {
            tokens.revoke(token.id, NOW).await.unwrap().unwrap();
            assert_eq!(kept(token).await, LISTED_AFTER_END);
            assert_eq!(tokens.last_used(&[token.id]).await.unwrap(), [Some(NOW)]);
        }
    }

    #[tokio::test]
    async fn invalid_new_tokens_are_refused() {
        let store = ReferenceStore::new(Arc::new(ManualClock::new(NOW)), 0);
        let tokens = TokenStore::Store(&store);
        let span = |text: &str| Some(serde_json::from_value(text.into()).unwrap());
        let rate = |per_second, burst| Some(RateLimit { per_second, burst });
        for (wrong, what) in [
            (NewToken { name: String::new(), ..new(&["admin"]) }, "name"),
            (NewToken { name: "x".repeat(201), ..new(&["admin"]) }, "name"),
            (NewToken { name: "a\nb".to_owned(), ..new(&["admin"]) }, "name"),
            (new(&[]), "scopes"),
            (new(&["admin"; 101]), "scopes"),
            (new(&["everything"]), "everything"),
            (NewToken { expires_in: span("0s"), ..new(&["admin"]) }, "expires_in"),
            (NewToken { expires_in: span("4000d"), ..new(&["admin"]) }, "expires_in"),
            (NewToken { rate_limit: rate(0, None), ..new(&["admin"]) }, "rate_limit"),
            (NewToken { rate_limit: rate(1, Some(0)), ..new(&["admin"]) }, "rate_limit"),
        ] {
            let refusal = tokens.create(wrong, [0; 32], NOW).await.unwrap_err();
            assert!(refusal.to_string().contains(what), "{refusal}");
        }
        let brief = NewToken { expires_in: span("1m"), ..new(&["admin"]) };
        let (_, brief) = tokens.create(brief, [0; 32], NOW).await.unwrap();
        assert_eq!(brief.ended(Timestamp(NOW.0 + 59_999)), None);
        assert_eq!(brief.ended(Timestamp(NOW.0 + 60_000)), Some("has expired"));
    }
}
