//! Tokens as the store keeps them: small records by key, which every kind of store has.
//!
//! **Invariant:** keys that begin with [`RESERVED`] are the server's own. No call of a client reaches them.

use super::scope::{Access, Scope};
use super::secret::{Hash, Secret, TokenId};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use towline_api::{NewToken, RateLimit, TokenShown};
use towline_broker::Broker;
use towline_domain::kv::{KvAnswer, KvCommand};
use towline_domain::{Millis, Refusal, Timestamp};
use towline_store::{Answered, Operation, Reply, Store, StoreError};

/// What the keys of the server's own records begin with.
const RESERVED: &str = "towline/";
const NAME_BYTES_MAX: usize = 200;
const SCOPES_MAX: usize = 100;
const RATE_MAX: u32 = 1_000_000;
/// A list looks at every number that was ever given.
const IDS_MAX: i64 = 1_000_000;
const EXPIRES_MAX: Millis = Millis::days(3650);
/// A token that has ended is shown for so long, so that it is known whose it was.
const SHOWN_AFTER_END: Millis = Millis::days(30);

/// Where tokens are: behind a server that runs, or in a store that none uses.
#[derive(Clone, Copy)]
pub(crate) enum Place<'a> {
    /// Whoever waits hears of what the update brings along.
    Served(&'a Broker),
    Alone(&'a dyn Store),
}

impl Place<'_> {
    fn store(&self) -> &dyn Store {
        match self {
            Place::Served(broker) => broker.store(),
            Place::Alone(store) => *store,
        }
    }

    async fn update(&self, batch: Vec<Operation>) -> Result<Vec<Answered>, StoreError> {
        match self {
            Place::Served(broker) => broker.update(batch).await,
            Place::Alone(store) => store.update(batch).await,
        }
    }
}

fn counter() -> String {
    format!("{RESERVED}tokens")
}

fn key(id: TokenId) -> String {
    format!("{RESERVED}token/{id}")
}

fn used_key(id: TokenId) -> String {
    format!("{RESERVED}token-used/{id}")
}

/// What is kept of a token. Its last use is a record of its own: writing it must not undo a revocation.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Kept {
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

/// A token, for who must decide about it.
#[derive(Debug, Clone)]
pub(crate) struct Record {
    pub(crate) id: TokenId,
    pub(crate) hash: Hash,
    pub(crate) access: Access,
    kept: Kept,
}

impl Record {
    fn read(id: TokenId, value: &[u8]) -> Result<Record, StoreError> {
        let damaged = |detail: String| StoreError::Unavailable { cause: format!("token {id}: {detail}") };
        let kept: Kept = serde_json::from_slice(value).map_err(|error| damaged(error.to_string()))?;
        let hash = Hash::parse(&kept.hash).ok_or_else(|| damaged("its hash cannot be read".to_owned()))?;
        // A scope that this version does not know allows nothing.
        let scopes = kept.scopes.iter().filter_map(|scope| scope.parse().ok()).collect();
        Ok(Record { id, hash, access: Access::new(scopes), kept })
    }

    pub(crate) fn name(&self) -> &str {
        &self.kept.name
    }

    pub(crate) fn rate_limit(&self) -> Option<RateLimit> {
        self.kept.rate_limit
    }

    /// Why it is good no longer.
    pub(crate) fn ended(&self, now: Timestamp) -> Option<&'static str> {
        match (self.kept.revoked_at, self.kept.expires_at) {
            (Some(_), _) => Some("was revoked"),
            (None, Some(at)) if at <= now.0 => Some("has expired"),
            _ => None,
        }
    }

    pub(crate) fn shown(&self, last_used: Option<Timestamp>) -> TokenShown {
        let time = |ms: u64| Timestamp(ms).into();
        TokenShown {
            id: self.id.to_string(),
            name: self.kept.name.clone(),
            scopes: self.kept.scopes.clone(),
            created_at: time(self.kept.created_at),
            expires_at: self.kept.expires_at.map(time),
            revoked_at: self.kept.revoked_at.map(time),
            last_used_at: last_used.map(Into::into),
            rate_limit: self.kept.rate_limit,
        }
    }
}

fn invalid(what: &'static str, message: String) -> Refusal {
    Refusal::Invalid { what, message }
}

/// What a new token shall be, checked.
fn check(new: NewToken, hash: Hash, now: Timestamp) -> Result<Kept, Refusal> {
    let NewToken { name, scopes, expires_in, rate_limit } = new;
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
        let message = format!("say who has the token, in 1 to {NAME_BYTES_MAX} bytes");
        return Err(invalid("name", message));
    }
    if scopes.is_empty() || scopes.len() > SCOPES_MAX {
        let message =
            format!("{} of them; use 1 to {SCOPES_MAX}, for instance queue:jobs:submit", scopes.len());
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
    Ok(Kept {
        name,
        hash: hash.to_hex(),
        scopes,
        created_at: now.0,
        expires_at: expires_in.map(|span| now.after(span).0),
        revoked_at: None,
        rate_limit,
    })
}

async fn carry_out(place: Place<'_>, key: String, command: KvCommand) -> Result<KvAnswer, StoreError> {
    let answer = place.update(vec![Operation::Kv { key, command }]).await?.pop();
    match answer {
        Some(Ok(Reply::Kv(answer))) => Ok(answer),
        Some(Err(refusal)) => Err(StoreError::Unavailable { cause: refusal.to_string() }),
        _ => Err(StoreError::Closed),
    }
}

async fn put(place: Place<'_>, record: &Record, now: Timestamp) -> Result<(), StoreError> {
    let Kept { expires_at, revoked_at, .. } = record.kept;
    let ends = revoked_at.or(expires_at);
    let ttl = ends.map(|at| Millis(at.saturating_sub(now.0).saturating_add(SHOWN_AFTER_END.0)));
    // Names and numbers always have a JSON form.
    let value = Bytes::from(serde_json::to_vec(&record.kept).unwrap_or_default());
    carry_out(place, key(record.id), KvCommand::Set { value, ttl }).await.map(drop)
}

/// Makes a token: the text that is told once, and what is kept.
pub(crate) async fn create(
    place: Place<'_>,
    new: NewToken,
    secret: [u8; 32],
    now: Timestamp,
) -> Result<Result<(String, Record), Refusal>, StoreError> {
    let hash = Secret::new(0, secret).hash();
    let kept = match check(new, hash, now) {
        Ok(kept) => kept,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let number = carry_out(place, counter(), KvCommand::Increment { by: 1, ttl: None }).await?;
    let id = match number {
        KvAnswer::Number(number @ 1..=IDS_MAX) => number.cast_unsigned(),
        KvAnswer::Number(_) => {
            return Ok(Err(invalid("tokens", format!("{IDS_MAX} were made; no more can be"))));
        }
        _ => return Err(StoreError::Closed),
    };
    let access = Access::new(kept.scopes.iter().filter_map(|scope| scope.parse().ok()).collect());
    let record = Record { id, hash, access, kept };
    put(place, &record, now).await?;
    Ok(Ok((Secret::new(id, secret).text(), record)))
}

/// Tokens by number, in the order asked for.
pub(crate) async fn find(place: Place<'_>, ids: &[TokenId]) -> Result<Vec<Option<Record>>, StoreError> {
    let found = place.store().kv_get(ids.iter().map(|id| key(*id)).collect()).await?;
    let read = |(id, record): (&TokenId, Option<towline_domain::kv::KvRecord>)| {
        record.map(|record| Record::read(*id, &record.value)).transpose()
    };
    ids.iter().zip(found).map(read).collect()
}

/// The highest number that was given to a token.
async fn last_id(place: Place<'_>) -> Result<TokenId, StoreError> {
    let found = place.store().kv_get(vec![counter()]).await?.pop().flatten();
    let text = found.and_then(|record| String::from_utf8(record.value.into()).ok());
    Ok(text.and_then(|text| text.parse().ok()).unwrap_or(0))
}

/// Whether one was ever made.
pub(crate) async fn any(place: Place<'_>) -> Result<bool, StoreError> {
    Ok(last_id(place).await? > 0)
}

/// Up to `limit` tokens after `after`, and where to go on.
pub(crate) async fn list(
    place: Place<'_>,
    after: TokenId,
    limit: usize,
) -> Result<(Vec<TokenShown>, Option<TokenId>), StoreError> {
    let last = last_id(place).await?;
    let ids: Vec<TokenId> = (after.saturating_add(1)..=last).take(limit).collect();
    let next = ids.last().copied().filter(|id| *id < last);
    let (records, used) = (find(place, &ids).await?, last_used(place, &ids).await?);
    let shown = records.into_iter().zip(used).filter_map(|(record, used)| Some(record?.shown(used)));
    Ok((shown.collect(), next))
}

pub(crate) async fn last_used(
    place: Place<'_>,
    ids: &[TokenId],
) -> Result<Vec<Option<Timestamp>>, StoreError> {
    let found = place.store().kv_get(ids.iter().map(|id| used_key(*id)).collect()).await?;
    let time = |value: Bytes| String::from_utf8(value.into()).ok()?.parse().ok().map(Timestamp);
    Ok(found.into_iter().map(|record| time(record?.value)).collect())
}

/// Ends a token. Once more is fine: the first time stands.
pub(crate) async fn revoke(
    place: Place<'_>,
    id: TokenId,
    now: Timestamp,
) -> Result<Option<Record>, StoreError> {
    let Some(mut record) = find(place, &[id]).await?.pop().flatten() else { return Ok(None) };
    if record.kept.revoked_at.is_none() {
        record.kept.revoked_at = Some(now.0);
        put(place, &record, now).await?;
    }
    Ok(Some(record))
}

/// Keeps when tokens were last used, all in one go.
pub(crate) async fn note_use(place: Place<'_>, used: &[(TokenId, Timestamp)]) -> Result<(), StoreError> {
    let note = |(id, at): &(TokenId, Timestamp)| {
        let value = Bytes::from(at.0.to_string());
        // For as long as the longest-lived token may be shown.
        let ttl = Some(Millis(EXPIRES_MAX.0 + SHOWN_AFTER_END.0));
        Operation::Kv { key: used_key(*id), command: KvCommand::Set { value, ttl } }
    };
    place.update(used.iter().map(note).collect()).await.map(drop)
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

    #[tokio::test]
    async fn made_found_listed_revoked() {
        let store = ReferenceStore::new(Arc::new(ManualClock::new(NOW)), 0);
        let place = Place::Alone(&store);
        assert!(!any(place).await.unwrap());
        let (text, made) = create(place, new(&["admin"]), [7; 32], NOW).await.unwrap().unwrap();
        let (_, other) = create(place, new(&["queue:a:read"]), [8; 32], NOW).await.unwrap().unwrap();
        assert!(any(place).await.unwrap());
        assert_ne!(made.id, other.id);
        let secret = Secret::parse(&text).unwrap();
        let found = find(place, &[secret.id, 99]).await.unwrap();
        assert!(found[1].is_none());
        let found = found[0].as_ref().unwrap();
        assert!(secret.is(&found.hash) && found.ended(NOW).is_none() && found.access.admin());
        let kept = store.kv_get(vec![key(made.id)]).await.unwrap().pop().flatten().unwrap();
        assert!(!String::from_utf8_lossy(&kept.value).contains(&"07".repeat(32)), "the secret is not kept");

        note_use(place, &[(made.id, Timestamp(5))]).await.unwrap();
        let (page, next) = list(place, 0, 1).await.unwrap();
        assert_eq!((page[0].id.as_str(), next), ("1", Some(1)));
        assert_eq!(page[0].last_used_at, Some(Timestamp(5).into()));
        let (page, next) = list(place, 1, 10).await.unwrap();
        assert_eq!((page[0].scopes.join(" "), next), ("queue:a:read".to_owned(), None));

        let first = revoke(place, made.id, NOW).await.unwrap().unwrap();
        let again = revoke(place, made.id, Timestamp(NOW.0 + 5)).await.unwrap().unwrap();
        assert_eq!(first.shown(None), again.shown(None));
        assert_eq!(again.ended(NOW), Some("was revoked"));
        assert!(revoke(place, 99, NOW).await.unwrap().is_none());
    }

    #[tokio::test]
    async fn what_a_token_cannot_be() {
        let store = ReferenceStore::new(Arc::new(ManualClock::new(NOW)), 0);
        let place = Place::Alone(&store);
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
            let refusal = create(place, wrong, [0; 32], NOW).await.unwrap().unwrap_err();
            assert!(refusal.to_string().contains(what), "{refusal}");
        }
        let brief = NewToken { expires_in: span("1m"), ..new(&["admin"]) };
        let (_, brief) = create(place, brief, [0; 32], NOW).await.unwrap().unwrap();
        assert_eq!(brief.ended(Timestamp(NOW.0 + 59_999)), None);
        assert_eq!(brief.ended(Timestamp(NOW.0 + 60_000)), Some("has expired"));
    }
}
