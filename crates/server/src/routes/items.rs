//! Items as anybody may act on them: shown, waited for, cancelled, redriven, paused, deleted.

use super::list::shown_all;
use super::receive::check_wait;
use super::{unexpected, update};
use crate::answer::Reply;
use crate::app::App;
use crate::body::Wire;
use crate::path::ItemPath;
use crate::query::{NoQuery, Query};
use crate::refuse::Refused;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use std::time::Duration;
use towline_api::{CancelRequest, ItemShown, Problem, Settled, Span};
use towline_broker::Waited;
use towline_domain::change::Answer;
use towline_domain::{FieldSet, ItemId, Refusal};
use towline_store::{Operation, StoredItem};

async fn shown(app: &App, stored: StoredItem) -> Result<ItemShown, Refused> {
    let mut shown = shown_all(app, vec![stored]).await?;
    shown.pop().ok_or_else(unexpected)
}

fn not_found(id: ItemId) -> Refused {
    Refusal::ItemNotFound { id }.into()
}

/// An item, with its result, its errors and its payload.
#[utoipa::path(get, path = "/v1/items/{id}", operation_id = "show_item", tag = "items", security(("token" = ["queue:{queue of the item}:read"])),
    params(
        ("id" = String, Path, format = Uuid),
        ("fields" = Option<String>, Query, description = "Payload fields to bring along, with commas between: all"),
        ("view" = Option<String>, Query, description = "`summary` leaves out inputs, parameters, outputs and payload: `full`"),
    ),
    responses(
        (status = 200, description = "The item.", body = ItemShown),
        (status = 404, description = "There is no such item.", body = Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn show(
    State(app): State<App>,
    reply: Reply,
    ItemPath(id): ItemPath,
    mut query: Query,
) -> Result<Response, Refused> {
    let (fields, summary) = (query.fields()?, query.summary()?);
    query.end()?;
    let fields = fields.unwrap_or(if summary { FieldSet::NONE } else { FieldSet::ALL });
    let found = app.broker.store().get(vec![id], fields).await?.pop().flatten();
    let mut found = found.ok_or_else(|| not_found(id))?;
    app.broker.fetch(std::slice::from_mut(&mut found)).await?;
    let item = shown(&app, found).await?;
    if summary { reply.with(&item.summary()) } else { reply.with(&item) }
}

/// Deletes an item; with `force`, also under its holder.
#[utoipa::path(delete, path = "/v1/items/{id}", operation_id = "delete_item", tag = "items", security(("token" = ["queue:{queue of the item}:admin"])),
    params(("id" = String, Path, format = Uuid), ("force" = Option<bool>, Query, description = "Also if somebody works on it")),
    responses(
        (status = 204, description = "It is gone."),
        (status = 404, description = "There is no such item.", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "Somebody works on it.", body = Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn delete(
    State(app): State<App>,
    ItemPath(id): ItemPath,
    mut query: Query,
) -> Result<Response, Refused> {
    let force = query.flag("force")?;
    query.end()?;
    update(&app, Operation::Delete { id, force }).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Waits until the item is completed or failed, or until the time is over, and shows it as it then is.
#[utoipa::path(get, path = "/v1/items/{id}/wait", operation_id = "wait_for_item", tag = "items", security(("token" = ["queue:{queue of the item}:read"])),
    params(
        ("id" = String, Path, format = Uuid),
        ("timeout" = Option<Span>, Query, description = "How long, up to 5m: 30s"),
    ),
    responses(
        (status = 200, description = "The item; its `state` tells whether it has ended.", body = ItemShown),
        (status = 404, description = "There is no such item.", body = Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn wait(
    State(app): State<App>,
    reply: Reply,
    ItemPath(id): ItemPath,
    mut query: Query,
) -> Result<Response, Refused> {
    let timeout = query.span("timeout")?;
    query.end()?;
    let timeout = timeout.map_or(Ok(Duration::from_secs(30)), |span| check_wait("timeout", span))?;
    match app.broker.wait(id, timeout).await? {
        Waited::Ended(stored) | Waited::Unfinished(stored) => reply.with(&shown(&app, *stored).await?),
        Waited::NotFound => Err(not_found(id)),
    }
}

/// Carries out an operation that answers with the item's state.
async fn change(app: &App, reply: Reply, id: ItemId, operation: Operation) -> Result<Response, Refused> {
    match update(app, operation).await? {
        Answer::State(state) => reply.with(&Settled::state(id, state)),
        _ => Err(unexpected()),
    }
}

/// Ends an unfinished item as `cancelled`; whoever works on it is told at their next call.
#[utoipa::path(post, path = "/v1/items/{id}/cancel", operation_id = "cancel_item", tag = "items", security(("token" = ["queue:{queue of the item}:admin"])), params(("id" = String, Path, format = Uuid)),
    request_body = CancelRequest,
    responses(
        (status = 200, description = "The item's state now.", body = Settled),
        (status = 404, description = "There is no such item.", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "It is finished.", body = Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn cancel(
    State(app): State<App>,
    _: NoQuery,
    reply: Reply,
    ItemPath(id): ItemPath,
    Wire(body): Wire<CancelRequest>,
) -> Result<Response, Refused> {
    let reason = body.reason.unwrap_or_default();
    change(&app, reply, id, Operation::Cancel { id, reason }).await
}

/// Makes a failed item pending again, with its attempts reset.
#[utoipa::path(post, path = "/v1/items/{id}/redrive", operation_id = "redrive_item", tag = "items", security(("token" = ["queue:{queue of the item}:admin"])), params(("id" = String, Path, format = Uuid)), responses(
    (status = 200, description = "The item's state now.", body = Settled),
    (status = 404, description = "There is no such item.", body = Problem, content_type = "application/problem+json"),
    (status = 409, description = "It has not failed, or its queue is completed.", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn redrive(
    State(app): State<App>,
    _: NoQuery,
    reply: Reply,
    ItemPath(id): ItemPath,
) -> Result<Response, Refused> {
    change(&app, reply, id, Operation::Redrive { id }).await
}

/// Keeps a pending item back.
#[utoipa::path(post, path = "/v1/items/{id}/pause", operation_id = "pause_item", tag = "items", security(("token" = ["queue:{queue of the item}:admin"])), params(("id" = String, Path, format = Uuid)), responses(
    (status = 200, description = "The item's state now.", body = Settled),
    (status = 404, description = "There is no such item.", body = Problem, content_type = "application/problem+json"),
    (status = 409, description = "It is not pending.", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn pause(
    State(app): State<App>,
    _: NoQuery,
    reply: Reply,
    ItemPath(id): ItemPath,
) -> Result<Response, Refused> {
    change(&app, reply, id, Operation::Pause { id }).await
}

/// Lets a paused item go on, with its place in the queue.
#[utoipa::path(post, path = "/v1/items/{id}/resume", operation_id = "resume_item", tag = "items", security(("token" = ["queue:{queue of the item}:admin"])), params(("id" = String, Path, format = Uuid)), responses(
    (status = 200, description = "The item's state now.", body = Settled),
    (status = 404, description = "There is no such item.", body = Problem, content_type = "application/problem+json"),
    (status = 409, description = "It is not paused.", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn resume(
    State(app): State<App>,
    _: NoQuery,
    reply: Reply,
    ItemPath(id): ItemPath,
) -> Result<Response, Refused> {
    change(&app, reply, id, Operation::Resume { id }).await
}
