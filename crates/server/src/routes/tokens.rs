//! Tokens: made, listed, revoked; and as whom the server takes a caller.

use super::queues::check_limit;
use crate::answer::Reply;
use crate::app::App;
use crate::auth::Caller;
use crate::auth::audit::About;
use crate::auth::records::{self, Place};
use crate::auth::secret::{TokenId, parse_id};
use crate::body::Wire;
use crate::path::TokenPath;
use crate::query::{NoQuery, Query};
use crate::refuse::Refused;
use axum::extract::State;
use axum::response::Response;
use towline_api::{
    Code, NewToken, PAGE_DEFAULT, Problem, Secret, TokenCreated, TokenPage, TokenShown, Whoami,
};
use towline_broker::entropy;

/// Makes a token. It is told once: only its hash is kept.
#[utoipa::path(post, path = "/v1/tokens", operation_id = "create_token", tag = "tokens", security(("token" = ["admin"])),
    request_body = NewToken,
    responses(
        (status = 200, description = "The token.", body = TokenCreated),
        (status = 400, description = "Refused.", body = Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn create(
    State(app): State<App>,
    _: NoQuery,
    reply: Reply,
    Wire(body): Wire<NewToken>,
) -> Result<Response, Refused> {
    let made =
        records::create(Place::Served(&app.broker), body, entropy::token_seed().0, app.now()).await??;
    let (text, record) = made;
    let shown = record.shown(None);
    let about = About(format!("token {} {:?} {}", shown.id, shown.name, shown.scopes.join(" ")));
    let mut response = reply.with(&TokenCreated { token: Secret(text), shown })?;
    response.extensions_mut().insert(about);
    Ok(response)
}

/// Tokens in the order in which they were made; those that ended, for 30 days after.
#[utoipa::path(get, path = "/v1/tokens", operation_id = "list_tokens", tag = "tokens", security(("token" = ["admin"])),
    params(
        ("cursor" = Option<String>, Query, description = "`next` of the page before"),
        ("limit" = Option<usize>, Query, description = "Look at no more than so many: 100, up to 10000", minimum = 1, maximum = 10000),
    ),
    responses(
        (status = 200, description = "A page of them; one with few, or none, may still go on.", body = TokenPage),
        (status = 400, description = "Refused.", body = Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn list(
    State(app): State<App>,
    reply: Reply,
    mut query: Query,
) -> Result<Response, Refused> {
    let after: TokenId = query.parse("cursor")?.unwrap_or(0);
    let limit = query.parse("limit")?.unwrap_or(PAGE_DEFAULT);
    query.end()?;
    check_limit(limit)?;
    let (tokens, next) = records::list(Place::Served(&app.broker), after, limit).await?;
    let count = tokens.len();
    reply.with_long(&TokenPage { tokens, next: next.map(|id| id.to_string()) }, count)
}

/// Ends a token, and calls that go on under it: at once on this server, within seconds on others. Once more is fine.
#[utoipa::path(post, path = "/v1/tokens/{id}/revoke", operation_id = "revoke_token", tag = "tokens", security(("token" = ["admin"])),
    params(("id" = String, Path)),
    responses(
        (status = 200, description = "The token.", body = TokenShown),
        (status = 404, description = "There is no such token.", body = Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn revoke(
    State(app): State<App>,
    _: NoQuery,
    reply: Reply,
    TokenPath(text): TokenPath,
) -> Result<Response, Refused> {
    let place = Place::Served(&app.broker);
    let absent = || {
        let shown: String = text.chars().take(64).collect();
        Refused::new(Code::TokenNotFound, format!("there is no token {shown:?}; see `towline token list`"))
    };
    let id = parse_id(&text).ok_or_else(absent)?;
    let record = records::revoke(place, id, app.now()).await?.ok_or_else(absent)?;
    let last_used = records::last_used(place, &[id]).await?.pop().flatten();
    let response = reply.with(&record.shown(last_used))?;
    app.auth.end(id);
    Ok(response)
}

/// As whom the server takes the caller.
#[utoipa::path(get, path = "/v1/whoami", operation_id = "whoami", tag = "tokens", security(("token" = ["any"])),
    responses((status = 200, description = "The token that was shown, and what it allows.", body = Whoami)))]
pub(super) async fn whoami(
    State(app): State<App>,
    _: NoQuery,
    reply: Reply,
    caller: Caller,
) -> Result<Response, Refused> {
    let token = caller.record().map(|record| record.shown(None));
    reply.with(&Whoami { tokens_required: app.auth.required, token })
}
