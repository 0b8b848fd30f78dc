//! Single items without a lease: show, wait, cancel, redrive, pause, resume, delete.

use super::list::describe_all;
use super::{unexpected, update};
use crate::app::App;
use crate::auth::{Caller, Right};
use crate::request::{DecodedBody, ItemPath, NoQuery, Query};
use crate::response::{ProblemResponse, Responder};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use std::time::Duration;
use towline_api::payload::Form;
use towline_api::{CancelRequest, ItemShown, PauseRequest, Settled, Span, VerbName, under_lease};
use towline_broker::Waited;
use towline_domain::change::Answer;
use towline_domain::{FieldSet, ItemId, Refusal};
use towline_store::{Operation, StoredItem};

async fn describe(app: &App, stored: StoredItem, form: Form) -> Result<ItemShown, ProblemResponse> {
    let mut items = describe_all(app, vec![stored], form).await?;
    items.pop().ok_or_else(unexpected)
}

fn not_found(id: ItemId) -> ProblemResponse {
    Refusal::ItemNotFound { id }.into()
}

/// Show an item with its result, its errors and its payload.
#[utoipa::path(get, path = "/v1/items/{id}", operation_id = "show_item", tag = "items", security(("token" = ["queue:{queue of the item}:read"])),
    params(
        ("id" = String, Path, format = Uuid),
        ("fields" = Option<String>, Query, description = "Payload fields to include, separated by commas. Default: all"),
        ("payload_as" = Option<Form>, Query, description = "The form of payload fields: `base64`, `text` (in `payload_text`) or `json` (in `payload_json`). A field that is not text or JSON comes as base64. Default: `base64`"),
        ("view" = Option<String>, Query, description = "`full`, or `summary` without inputs, parameters, outputs and payload. Default: `full`"),
    ),
    responses(
        (status = 200, description = "The item.", body = ItemShown),
    ))]
pub(super) async fn show(
    State(app): State<App>,
    respond: Responder,
    ItemPath(id): ItemPath,
    mut query: Query,
) -> Result<Response, ProblemResponse> {
    let (fields, summary, form) = (query.fields()?, query.summary()?, query.payload_as()?);
    query.end()?;
    let fields = fields.unwrap_or(if summary { FieldSet::NONE } else { FieldSet::ALL });
    let found = app.broker.store().get(vec![id], fields).await?.pop().flatten();
    let mut found = found.ok_or_else(|| not_found(id))?;
    app.broker.fetch(std::slice::from_mut(&mut found)).await?;
    let item = describe(&app, found, form).await?;
    if summary { respond.with(&item.summary()) } else { respond.with(&item) }
}

/// Delete an item.
#[utoipa::path(delete, path = "/v1/items/{id}", operation_id = "delete_item", tag = "items", security(("token" = ["queue:{queue of the item}:admin"])),
    params(("id" = String, Path, format = Uuid), ("force" = Option<bool>, Query, description = "Also delete the item if a worker holds a lease on it")),
    responses(
        (status = 204, description = "Deleted."),
        (status = 409, description = "A worker holds a lease on the item."),
    ))]
pub(super) async fn delete(
    State(app): State<App>,
    ItemPath(id): ItemPath,
    mut query: Query,
) -> Result<Response, ProblemResponse> {
    let force = query.flag("force")?;
    query.end()?;
    update(&app, Operation::Delete { id, force }).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Wait until an item is terminal, or until the timeout, and show it.
#[utoipa::path(get, path = "/v1/items/{id}/wait", operation_id = "wait_for_item", tag = "items", security(("token" = ["queue:{queue of the item}:read"])),
    params(
        ("id" = String, Path, format = Uuid),
        ("timeout" = Option<Span>, Query, description = "How long to wait, up to 5m. Default: 30s"),
    ),
    responses(
        (status = 200, description = "The item. Its `state` says whether it is terminal.", body = ItemShown),
    ))]
pub(super) async fn wait(
    State(app): State<App>,
    respond: Responder,
    caller: Caller,
    ItemPath(id): ItemPath,
    mut query: Query,
) -> Result<Response, ProblemResponse> {
    let timeout = query.wait("timeout", Duration::from_secs(30))?;
    query.end()?;
    match app.broker.wait(id, timeout).await? {
        // The item may have moved to a queue that the client may not read.
        Waited::Ended(stored) | Waited::Unfinished(stored) if caller.may(&stored.queue, Right::Read) => {
            respond.with(&describe(&app, *stored, Form::default()).await?)
        }
        _ => Err(not_found(id)),
    }
}

/// Carries out an operation that returns the state of the item.
async fn change(
    app: &App,
    respond: Responder,
    id: ItemId,
    operation: Operation,
) -> Result<Response, ProblemResponse> {
    match update(app, operation).await? {
        Answer::State(state) => respond.with(&Settled::state(id, state)),
        _ => Err(unexpected()),
    }
}

/// Cancel an unfinished item.
///
/// The item fails with the kind `cancelled`. A worker that holds a lease on it learns so at its next call. With a `lease`, the
/// call is refused unless this is the lease on the item. A worker without the admin scope cancels its item with
/// `POST /v1/settle`.
#[utoipa::path(post, path = "/v1/items/{id}/cancel", operation_id = "cancel_item", tag = "items", security(("token" = ["queue:{queue of the item}:admin"])), params(("id" = String, Path, format = Uuid)),
    request_body = CancelRequest,
    responses(
        (status = 200, description = "The new state of the item.", body = Settled),
        (status = 409, description = "The item is already terminal."),
    ))]
pub(super) async fn cancel(
    State(app): State<App>,
    _: NoQuery,
    respond: Responder,
    ItemPath(id): ItemPath,
    DecodedBody(body, ..): DecodedBody<CancelRequest>,
) -> Result<Response, ProblemResponse> {
    let operation = match under_lease(id, body.lease, VerbName::Cancel, body.reason.clone())? {
        Some(call) => Operation::Lease { id, call: Box::new(call) },
        None => Operation::Cancel { id, reason: body.reason.unwrap_or_default() },
    };
    change(&app, respond, id, operation).await
}

/// Redrive a failed item: it becomes pending again, and its attempts are reset.
#[utoipa::path(post, path = "/v1/items/{id}/redrive", operation_id = "redrive_item", tag = "items", security(("token" = ["queue:{queue of the item}:admin"])), params(("id" = String, Path, format = Uuid)), responses(
    (status = 200, description = "The new state of the item.", body = Settled),
    (status = 409, description = "The item has not failed, or its queue is completed."),
))]
pub(super) async fn redrive(
    State(app): State<App>,
    _: NoQuery,
    respond: Responder,
    caller: Caller,
    ItemPath(id): ItemPath,
) -> Result<Response, ProblemResponse> {
    let found = app.broker.store().get(vec![id], FieldSet::HEADS).await?.pop().flatten();
    caller.check_target(found.as_ref().and_then(|stored| stored.item.head.origin()))?;
    change(&app, respond, id, Operation::Redrive { id }).await
}

/// Pause a pending item, so that it is not delivered. With a `lease`, pause the item under that lease.
///
/// A worker without the admin scope pauses its item with `POST /v1/settle`.
#[utoipa::path(post, path = "/v1/items/{id}/pause", operation_id = "pause_item", tag = "items", security(("token" = ["queue:{queue of the item}:admin"])), params(("id" = String, Path, format = Uuid)), request_body = PauseRequest, responses(
    (status = 200, description = "The new state of the item.", body = Settled),
    (status = 409, description = "The item is not pending."),
))]
pub(super) async fn pause(
    State(app): State<App>,
    _: NoQuery,
    respond: Responder,
    ItemPath(id): ItemPath,
    DecodedBody(body, ..): DecodedBody<PauseRequest>,
) -> Result<Response, ProblemResponse> {
    let operation = match under_lease(id, body.lease, VerbName::Pause, None)? {
        Some(call) => Operation::Lease { id, call: Box::new(call) },
        None => Operation::Pause { id },
    };
    change(&app, respond, id, operation).await
}

/// Resume a paused item. It keeps its position in the queue.
#[utoipa::path(post, path = "/v1/items/{id}/resume", operation_id = "resume_item", tag = "items", security(("token" = ["queue:{queue of the item}:admin"])), params(("id" = String, Path, format = Uuid)), responses(
    (status = 200, description = "The new state of the item.", body = Settled),
    (status = 409, description = "The item is not paused."),
))]
pub(super) async fn resume(
    State(app): State<App>,
    _: NoQuery,
    respond: Responder,
    ItemPath(id): ItemPath,
) -> Result<Response, ProblemResponse> {
    change(&app, respond, id, Operation::Resume { id }).await
}
