//! Nodes: list them, and what they call.

use crate::app::App;
use crate::request::{DecodedBody, InstancePath, NoQuery, NodePath, Query, check_wait};
use crate::response::{ProblemResponse, Responder};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use std::time::Duration;
use towline_api::compute::{NodeBeat, NodePage, StopRequests};

/// List the nodes that work now, in order of name.
#[utoipa::path(get, path = "/v1/nodes", operation_id = "list_nodes", tag = "compute", security(("token" = ["compute:read"])),
    params(
        ("cursor" = Option<String>, Query, description = "`next` of the previous page"),
        ("limit" = Option<usize>, Query, description = "Maximum number of entries, up to 1000. Default: 100", minimum = 1, maximum = 1000),
    ),
    responses(
        (status = 200, description = "A page.", body = NodePage),
    ))]
pub(super) async fn list(
    State(app): State<App>,
    respond: Responder,
    mut query: Query,
) -> Result<Response, ProblemResponse> {
    let (after, limit) = (query.one("cursor")?, query.limit()?);
    query.end()?;
    let (nodes, next) = app.compute.list_nodes(after.as_deref(), limit).await?;
    let count = nodes.len();
    respond.with_many(&NodePage { nodes, next }, count)
}

/// Say that a node works, and learn what it should stop. For nodes.
///
/// With `wait`, the response comes when there is something to stop, or at the latest after this time.
#[utoipa::path(post, path = "/v1/nodes/{node}/beat", operation_id = "beat_node", tag = "compute", security(("token" = ["compute:node"])),
    params(("node" = String, Path)), request_body = NodeBeat,
    responses(
        (status = 200, description = "What to stop.", body = StopRequests),
    ))]
pub(super) async fn beat(
    State(app): State<App>,
    _: NoQuery,
    respond: Responder,
    NodePath(name): NodePath,
    DecodedBody(body, ..): DecodedBody<NodeBeat>,
) -> Result<Response, ProblemResponse> {
    let wait = body.wait.clone();
    let wait = wait.map_or(Ok(Duration::ZERO), |wait| check_wait("wait", wait.into_domain("wait")?))?;
    // The pool exists from now on, so that the node can receive from it.
    app.compute.pool(&body.pool).await?;
    let stopped = app.stopped();
    tokio::select! {
        stops = app.compute.beat(&name, body, wait) => respond.with(&stops?),
        () = stopped => respond.with(&StopRequests::default()),
    }
}

/// Take a node that ends off the list. For nodes.
#[utoipa::path(delete, path = "/v1/nodes/{node}/{instance}", operation_id = "remove_node", tag = "compute", security(("token" = ["compute:node"])),
    params(("node" = String, Path), ("instance" = String, Path)),
    responses(
        (status = 204, description = "Removed."),
    ))]
pub(super) async fn remove(
    State(app): State<App>,
    _: NoQuery,
    NodePath(name): NodePath,
    InstancePath(instance): InstancePath,
) -> Result<Response, ProblemResponse> {
    app.compute.remove_node(&name, &instance).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
