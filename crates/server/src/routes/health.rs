//! Whether the server can do its work.

use crate::answer::Reply;
use crate::app::App;
use crate::refuse::Refused;
use axum::extract::State;
use axum::response::Response;
use serde::Serialize;
use towline_api::{Code, Problem};
use utoipa::ToSchema;

#[derive(Serialize, ToSchema)]
struct Health {
    status: &'static str,
    version: &'static str,
}

/// Whether the server is up and its store can be used.
#[utoipa::path(get, path = "/healthz", operation_id = "show_health", tag = "server", responses(
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
