//! Authentication and authorization: tokens, scopes, rate limits, and the audit log.

pub(crate) mod audit;
mod lease_tokens;
mod lookups;
mod middleware;
mod rate_limit;
mod requirement;
mod revocable_body;
mod revocations;
mod scope;
pub(crate) mod secret;
mod token_cache;
mod token_request;
pub(crate) mod token_store;

pub(crate) use middleware::authorize;
pub(crate) use requirement::{RouteRequirements, SCHEME};
pub(crate) use scope::{Resource, Right};
pub(crate) use token_store::{TokenStore, VALID_MAX};

use crate::app::App;
use crate::connection::share_of_one_client;
use crate::response::ProblemResponse;
use audit::AuditLog;
use axum::extract::FromRequestParts;
use http::request::Parts;
use lease_tokens::LeaseTokens;
use lookups::Lookups;
use middleware::{forbidden, hidden_items};
use scope::Access;
pub(crate) use secret::InternalSecret;
use secret::TokenId;
use std::sync::Arc;
use token_cache::{ActiveToken, TokenCache};
use token_request::TokenRequest;
use token_store::TokenRecord;
use towline_api::Code;
use towline_broker::Broker;
use towline_domain::{ItemId, QueueName, Timestamp};

#[derive(Debug)]
pub(crate) struct Auth {
    /// Whether requests need a token.
    pub(crate) required: bool,
    tokens: TokenCache,
    leases: LeaseTokens,
    /// The token of the node inside this server.
    internal: Option<(InternalSecret, Arc<ActiveToken>)>,
    lookups: Lookups,
    /// Requests in progress with one token.
    requests_max: usize,
    audit: Arc<AuditLog>,
}

/// The `error` parameter of a `WWW-Authenticate` header (RFC 6750).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AuthChallenge {
    InvalidToken,
    InsufficientScope,
}

impl Auth {
    pub(crate) fn new(
        required: bool,
        connections_max: usize,
        audit: Arc<AuditLog>,
        internal: Option<InternalSecret>,
        now: Timestamp,
    ) -> Auth {
        let node = |secret| {
            let record = TokenRecord::of_lease("node of this server".to_owned(), Access::of_node());
            (secret, Arc::new(ActiveToken::new(record, now)))
        };
        let requests_max = share_of_one_client(connections_max);
        Auth {
            required,
            tokens: TokenCache::default(),
            leases: LeaseTokens::default(),
            internal: internal.map(node),
            lookups: Lookups::new(),
            requests_max,
            audit,
        }
    }

    /// Revokes a token and ends its requests.
    pub(crate) async fn revoke(
        &self,
        broker: &Broker,
        id: TokenId,
        now: Timestamp,
    ) -> Result<Option<TokenRecord>, ProblemResponse> {
        self.tokens.revoke(broker, id, now).await.map_err(|error| {
            let done = format!(
                "this server refuses token {id} from now on, but the revocation is not stored, so other servers and the next start \
                 accept the token; the server tries again every {} s",
                token_cache::REFRESH_INTERVAL.as_secs()
            );
            ProblemResponse::from(error).prefixed(&done)
        })
    }

    /// Reloads the tokens in use from the store, again and again.
    pub(crate) async fn keep_tokens_fresh(app: App) {
        loop {
            tokio::time::sleep(token_cache::REFRESH_INTERVAL).await;
            if let Err(error) = app.auth.tokens.refresh(&app.broker).await {
                tracing::warn!("cannot reload tokens: {error}");
            }
            if let Err(error) = app.auth.leases.refresh(&app.compute, app.now()).await {
                tracing::warn!("cannot look up the leases of tokens: {error}");
            }
        }
    }
}

/// The client of a request. Without a token it may do everything: then the server does not require tokens.
#[derive(Debug, Clone)]
pub(crate) struct Caller(Option<Arc<TokenRequest>>);

impl Caller {
    fn token(request: Arc<TokenRequest>) -> Caller {
        Caller(Some(request))
    }

    #[cfg(test)]
    pub(crate) fn without_token() -> Caller {
        Caller(None)
    }

    pub(crate) fn record(&self) -> Option<&TokenRecord> {
        self.0.as_ref().map(|token| &token.record)
    }

    pub(crate) fn may(&self, queue: &QueueName, right: Right) -> bool {
        self.0.as_ref().is_none_or(|token| token.record.access.queue(queue, right))
    }

    pub(crate) fn may_all(&self, right: Right) -> bool {
        self.0.as_ref().is_none_or(|token| token.record.access.every_queue(right))
    }

    /// Completes when the client's token ends.
    pub(crate) async fn ended(&self) {
        match &self.0 {
            Some(token) => token.ended().await,
            None => std::future::pending().await,
        }
    }

    /// Rejects a request about a queue for which the client lacks the right.
    pub(crate) fn check(&self, queue: &QueueName, right: Right) -> Result<(), ProblemResponse> {
        match &self.0 {
            Some(token) if !token.record.access.queue(queue, right) => {
                Err(forbidden(token, &format!("queue:{queue}:{right}")))
            }
            _ => Ok(()),
        }
    }

    /// Rejects a request that sends items to a queue to which the client may not submit.
    pub(crate) fn check_target(&self, queue: Option<&QueueName>) -> Result<(), ProblemResponse> {
        queue.map_or(Ok(()), |queue| self.check(queue, Right::Submit))
    }

    /// Rejects a call about records whose keys begin with `prefix` if the client lacks the right.
    pub(crate) fn check_records(&self, prefix: &str, right: Right) -> Result<(), ProblemResponse> {
        match &self.0 {
            Some(token) if !token.record.access.has(Resource::Records, prefix, right) => {
                Err(forbidden(token, &format!("kv:{}:{right}", if prefix.is_empty() { "*" } else { prefix })))
            }
            _ => Ok(()),
        }
    }

    /// Rejects an item for a group that the client may not change.
    pub(crate) fn check_group(&self, group: Option<&str>) -> Result<(), ProblemResponse> {
        match (&self.0, group) {
            (Some(token), Some(group)) if !token.record.access.group(group, Right::Submit) => {
                Err(forbidden(token, &format!("group:{group}:admin")))
            }
            _ => Ok(()),
        }
    }

    /// The items for which the client lacks the right. To this client they do not exist.
    pub(crate) async fn hidden_items(
        &self,
        app: &App,
        ids: &[ItemId],
        right: Right,
    ) -> Result<Vec<ItemId>, ProblemResponse> {
        match &self.0 {
            Some(token) if !token.record.access.every_queue(right) => {
                hidden_items(app, token, ids, right).await
            }
            _ => Ok(Vec::new()),
        }
    }
}

impl FromRequestParts<App> for Caller {
    type Rejection = ProblemResponse;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Caller, ProblemResponse> {
        match parts.extensions.get::<Caller>() {
            Some(caller) => Ok(caller.clone()),
            None if !app.auth.required => Ok(Caller(None)),
            // Unreachable: the middleware runs before every route.
            None => Err(ProblemResponse::new(Code::Internal, "the request was not authenticated")),
        }
    }
}

/// The client of a request that needs no token.
#[derive(Debug)]
pub(crate) struct MaybeCaller(Option<Caller>);

impl MaybeCaller {
    /// Whether the client may see what is inside the server.
    pub(crate) fn may_see_details(&self, app: &App) -> bool {
        self.0.is_some() || !app.auth.required
    }
}

impl FromRequestParts<App> for MaybeCaller {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<MaybeCaller, Self::Rejection> {
        Ok(MaybeCaller(parts.extensions.get::<Caller>().cloned()))
    }
}
