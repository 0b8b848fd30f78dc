//! Health, readiness and metrics of the server.

use crate::app::App;
use crate::auth::MaybeCaller;
use crate::request::NoQuery;
use crate::response::{ProblemResponse, Responder};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use serde::Serialize;
use towline_api::Code;
use utoipa::ToSchema;

/// Health of the server. Everything but the status needs a token, if the server requires tokens.
#[derive(Serialize, ToSchema)]
struct Health {
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<&'static str>,
}

/// Readiness of the server. Everything but the status needs a token, if the server requires tokens.
#[derive(Serialize, ToSchema)]
struct Readiness {
    /// `ok`, or `degraded` while a shard does not respond.
    status: &'static str,
    /// How many shards the store has, if it is sharded.
    #[serde(skip_serializing_if = "Option::is_none")]
    shards: Option<usize>,
    /// How many shards respond.
    #[serde(skip_serializing_if = "Option::is_none")]
    shards_up: Option<usize>,
}

/// Whether the store is available. Only a client that may see details gets the reason.
async fn check(app: &App, caller: &MaybeCaller) -> Result<(), ProblemResponse> {
    if app.is_stopping() {
        return Err(ProblemResponse::new(Code::Stopping, "the server is stopping"));
    }
    // Asks every shard, so that a shard that went down since the last call is noticed here.
    let checked = app.broker.store().next_wake().await;
    checked.map(drop).map_err(|fault| match (caller.may_see_details(app), ProblemResponse::from(fault)) {
        (true, problem) => problem,
        (false, _) => ProblemResponse::new(Code::Unavailable, "the store is not available"),
    })
}

/// Show metrics for Prometheus.
#[utoipa::path(get, path = "/metrics", operation_id = "show_metrics", tag = "server", security(("token" = ["metrics:read"])), responses(
    (status = 200, description = "Metrics in the text format of Prometheus.", body = String, content_type = "text/plain"),
    (status = 503, description = "The store is not available."),
))]
pub(super) async fn metrics(State(app): State<App>, _: NoQuery) -> Result<Response, ProblemResponse> {
    let text = app.metrics.render(&app).await?;
    Ok(([(CONTENT_TYPE, prometheus::TEXT_FORMAT)], text).into_response())
}

/// Show whether the server is up and its store is available.
#[utoipa::path(get, path = "/healthz", operation_id = "show_health", tag = "server", security((), ("token" = ["any"])), responses(
    (status = 200, description = "The server is healthy.", body = Health),
    (status = 503, description = "The server is stopping, or the store is not available."),
))]
pub(super) async fn healthz(
    State(app): State<App>,
    caller: MaybeCaller,
    respond: Responder,
) -> Result<Response, ProblemResponse> {
    check(&app, &caller).await?;
    let version = caller.may_see_details(&app).then_some(env!("CARGO_PKG_VERSION"));
    respond.with(&Health { status: "ok", version })
}

/// Show whether the server accepts work, for load balancers. Of several shards one is enough.
#[utoipa::path(get, path = "/readyz", operation_id = "show_readiness", tag = "server", security((), ("token" = ["any"])), responses(
    (status = 200, description = "The server is ready.", body = Readiness),
    (status = 503, description = "The server is stopping, or no store is available."),
))]
pub(super) async fn readyz(
    State(app): State<App>,
    _: NoQuery,
    caller: MaybeCaller,
    respond: Responder,
) -> Result<Response, ProblemResponse> {
    check(&app, &caller).await?;
    let shards = app.shard_health();
    let up = shards.iter().filter(|shard| shard.down.is_none()).count();
    let status = if up < shards.len() { "degraded" } else { "ok" };
    let is_sharded = !shards.is_empty() && caller.may_see_details(&app);
    let (shards, shards_up) = (is_sharded.then_some(shards.len()), is_sharded.then_some(up));
    respond.with(&Readiness { status, shards, shards_up })
}
