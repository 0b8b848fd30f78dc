//! Whether the server can do its work.

use crate::answer::Reply;
use crate::app::App;
use crate::query::NoQuery;
use crate::refuse::Refused;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use serde::Serialize;
use towline_api::{Code, Problem};
use utoipa::ToSchema;

#[derive(Serialize, ToSchema)]
struct Health {
    status: &'static str,
    version: &'static str,
}

/// Whether it can be given work, and by how many of its databases. Which they are is not for everybody: `/metrics` tells.
#[derive(Serialize, ToSchema)]
struct Readiness {
    /// `ok`, or `degraded` while a database is gone.
    status: &'static str,
    /// Of several databases: how many there are.
    #[serde(skip_serializing_if = "Option::is_none")]
    shards: Option<usize>,
    /// How many of them answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    shards_up: Option<usize>,
}

/// Figures for Prometheus.
#[utoipa::path(get, path = "/metrics", operation_id = "show_metrics", tag = "server", security(("token" = ["queue:*:read"])), responses(
    (status = 200, description = "The figures, in Prometheus' text format.", body = String, content_type = "text/plain"),
    (status = 503, description = "The store cannot be used.", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn metrics(State(app): State<App>, _: NoQuery) -> Result<Response, Refused> {
    let text = app.metrics.tell(&app).await?;
    Ok(([(CONTENT_TYPE, prometheus::TEXT_FORMAT)], text).into_response())
}

/// Whether the server is up and its store can be used.
#[utoipa::path(get, path = "/healthz", operation_id = "show_health", tag = "server", security(()), responses(
    (status = 200, description = "It is.", body = Health),
    (status = 503, description = "It is stopping, or the store cannot be used.", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn healthz(State(app): State<App>, reply: Reply) -> Result<Response, Refused> {
    if app.is_stopping() {
        return Err(Refused::new(Code::Stopping, "the server is stopping"));
    }
    app.broker.store().next_wake().await?;
    reply.with(&Health { status: "ok", version: env!("CARGO_PKG_VERSION") })
}

/// Whether the server can be given work: for balancers. Of several databases one is enough.
#[utoipa::path(get, path = "/readyz", operation_id = "show_readiness", tag = "server", security(()), responses(
    (status = 200, description = "It can.", body = Readiness),
    (status = 503, description = "It is stopping, or no store can be used.", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn readyz(State(app): State<App>, _: NoQuery, reply: Reply) -> Result<Response, Refused> {
    if app.is_stopping() {
        return Err(Refused::new(Code::Stopping, "the server is stopping"));
    }
    // Asks every store that is up: one that went away unnoticed is noticed here.
    app.broker.store().next_wake().await?;
    let shards = app.shards();
    let up = shards.iter().filter(|shard| shard.down.is_none()).count();
    let status = if up < shards.len() { "degraded" } else { "ok" };
    let several = !shards.is_empty();
    let (shards, shards_up) = (several.then_some(shards.len()), several.then_some(up));
    reply.with(&Readiness { status, shards, shards_up })
}
