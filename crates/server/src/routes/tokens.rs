//! Tokens: create, list, revoke, and the identity of the client.

use crate::app::App;
use crate::auth::Caller;
use crate::auth::audit::AuditSubject;
use crate::auth::secret::{TokenId, parse_id};
use crate::auth::token_store::TokenStore;
use crate::request::{DecodedBody, NoQuery, Query, TokenPath, excerpt};
use crate::response::{ProblemResponse, Responder};
use axum::extract::State;
use axum::response::Response;
use towline_api::{Code, NewToken, Secret, TokenCreated, TokenPage, TokenShown, Whoami};
use towline_broker::entropy;

/// Create a token.
///
/// The response is the only place where the token appears: the server stores its hash.
#[utoipa::path(post, path = "/v1/tokens", operation_id = "create_token", tag = "tokens", security(("token" = ["admin"])),
    request_body = NewToken,
    responses(
        (status = 200, description = "The token.", body = TokenCreated),
    ))]
pub(super) async fn create(
    State(app): State<App>,
    _: NoQuery,
    respond: Responder,
    DecodedBody(body, ..): DecodedBody<NewToken>,
) -> Result<Response, ProblemResponse> {
    let seed = entropy::token_seed().0;
    let (text, record) = TokenStore::Broker(&app.broker).create(body, seed, app.now()).await?;
    let subject = AuditSubject(record.audit_subject());
    let mut response = respond.with(&TokenCreated { token: Secret(text), shown: record.describe(None) })?;
    response.extensions_mut().insert(subject);
    Ok(response)
}

/// List tokens in order of creation.
///
/// The list contains revoked and expired tokens for 30 days.
#[utoipa::path(get, path = "/v1/tokens", operation_id = "list_tokens", tag = "tokens", security(("token" = ["admin"])),
    params(
        ("cursor" = Option<String>, Query, description = "`next` of the previous page"),
        ("limit" = Option<usize>, Query, description = "Maximum number of entries to look at, up to 1000. Default: 100", minimum = 1, maximum = 1000),
    ),
    responses(
        (status = 200, description = "A page.", body = TokenPage),
    ))]
pub(super) async fn list(
    State(app): State<App>,
    respond: Responder,
    mut query: Query,
) -> Result<Response, ProblemResponse> {
    let after: TokenId = query.parse("cursor")?.unwrap_or(0);
    let limit = query.limit()?;
    query.end()?;
    let (tokens, next) = TokenStore::Broker(&app.broker).list(after, limit).await?;
    let count = tokens.len();
    respond.with_many(&TokenPage { tokens, next: next.map(|id| id.to_string()) }, count)
}

/// Revoke a token and end its requests: at once on this server, within seconds on its peers.
///
/// Revoking a token again changes nothing.
#[utoipa::path(post, path = "/v1/tokens/{id}/revoke", operation_id = "revoke_token", tag = "tokens", security(("token" = ["admin"])),
    params(("id" = String, Path)),
    responses(
        (status = 200, description = "The token.", body = TokenShown),
    ))]
pub(super) async fn revoke(
    State(app): State<App>,
    _: NoQuery,
    respond: Responder,
    TokenPath(text): TokenPath,
) -> Result<Response, ProblemResponse> {
    let not_found = || {
        let detail = format!("there is no token {:?}; run `towline token list`", excerpt(&text));
        ProblemResponse::new(Code::TokenNotFound, detail)
    };
    let id = parse_id(&text).ok_or_else(not_found)?;
    let record = app.auth.revoke(&app.broker, id, app.now()).await?.ok_or_else(not_found)?;
    let last_used = TokenStore::Broker(&app.broker).last_used(&[id]).await?.pop().flatten();
    respond.with(&record.describe(last_used))
}

/// Show the identity and scopes of the current token.
#[utoipa::path(get, path = "/v1/whoami", operation_id = "whoami", tag = "tokens", security(("token" = ["any"])),
    responses((status = 200, description = "The token of the request, and its scopes.", body = Whoami)))]
pub(super) async fn whoami(
    State(app): State<App>,
    _: NoQuery,
    respond: Responder,
    caller: Caller,
) -> Result<Response, ProblemResponse> {
    let token = caller.record().map(|record| record.describe(None));
    respond.with(&Whoami { tokens_required: app.auth.required, token })
}
