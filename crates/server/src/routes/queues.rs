//! Queues: made, shown, changed, closed, paused, deleted.

use super::{unexpected, update};
use crate::answer::Reply;
use crate::app::App;
use crate::auth::{Caller, Right};
use crate::body::Wire;
use crate::path::QueuePath;
use crate::query::{NoQuery, Query};
use crate::refuse::Refused;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use towline_api::{Code, CountsShown, PatchQueue, Problem, PutQueue, QueuePage, QueueShown};
use towline_domain::change::Answer;
use towline_domain::{PolicyPatch, QueueName, Refusal, limits};
use towline_store::{Operation, QueueView};

pub(super) async fn find(app: &App, queue: QueueName) -> Result<QueueView, Refused> {
    let found = app.broker.store().queue(queue.clone()).await?;
    found.ok_or_else(|| Refusal::QueueNotFound { name: queue.to_string() }.into())
}

fn shown(view: &QueueView) -> QueueShown {
    QueueShown::new(&view.queue, &view.counts, view.oldest_ready)
}

/// Carries out an operation that answers with the queue, and shows it.
async fn change_and_show(app: &App, reply: Reply, operation: Operation) -> Result<Response, Refused> {
    let Answer::Queue(queue) = update(app, operation).await? else { return Err(unexpected()) };
    // Its counts; a queue deleted meanwhile has none.
    let view = app.broker.store().queue(queue.name.clone()).await?;
    let (counts, oldest_ready) = view.map_or_else(Default::default, |view| (view.counts, view.oldest_ready));
    reply.with(&QueueShown::new(&queue, &counts, oldest_ready))
}

/// Queues in order of name: those whose items the caller may read.
#[utoipa::path(get, path = "/v1/queues", operation_id = "list_queues", tag = "queues", security(("token" = ["any"])),
    params(
        ("cursor" = Option<String>, Query, description = "`next` of the page before"),
        ("limit" = Option<usize>, Query, description = "At most so many: 1000, up to 10000", minimum = 1, maximum = 10000),
    ),
    responses(
        (status = 200, description = "A page of them.", body = QueuePage),
        (status = 400, description = "Refused.", body = Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn list(
    State(app): State<App>,
    reply: Reply,
    caller: Caller,
    mut query: Query,
) -> Result<Response, Refused> {
    let after: Option<QueueName> = query.parse("cursor")?;
    let limit = query.parse("limit")?.unwrap_or(1000);
    query.end()?;
    check_limit(limit)?;
    let views = app.broker.store().queues(after, limit).await?;
    let next = (views.len() == limit).then(|| views.last().map(|view| view.queue.name.to_string())).flatten();
    let queues: Vec<QueueShown> =
        views.iter().filter(|view| caller.may(&view.queue.name, Right::Read)).map(shown).collect();
    let count = queues.len();
    reply.with_long(&QueuePage { queues, next }, count)
}

pub(super) fn check_limit(limit: usize) -> Result<(), Refused> {
    if !(1..=limits::PAGE_MAX).contains(&limit) {
        let detail = format!("limit: {limit} is out of range; use 1 to {}", limits::PAGE_MAX);
        return Err(Refused::new(Code::Invalid, detail));
    }
    Ok(())
}

/// Makes a queue. The same again is fine; another schema or policy is a conflict that says what differs.
#[utoipa::path(put, path = "/v1/queues/{queue}", operation_id = "put_queue", tag = "queues", security(("token" = ["queue:{queue}:admin"])), params(("queue" = String, Path)), request_body = PutQueue,
    responses(
        (status = 200, description = "The queue.", body = QueueShown),
        (status = 400, description = "Refused.", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "It exists and is different.", body = Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn put(
    State(app): State<App>,
    _: NoQuery,
    reply: Reply,
    QueuePath(queue): QueuePath,
    caller: Caller,
    Wire(body): Wire<PutQueue>,
) -> Result<Response, Refused> {
    let (schema, policy) = body.into_domain()?;
    caller.check_target(policy.dead_letter_queue.as_ref())?;
    let create = Operation::CreateQueue { queue, schema: Box::new(schema), policy: Box::new(policy) };
    change_and_show(&app, reply, create).await
}

/// Changes a queue's policy: what is named, and nothing else.
#[utoipa::path(patch, path = "/v1/queues/{queue}", operation_id = "change_queue", tag = "queues", security(("token" = ["queue:{queue}:admin"])), params(("queue" = String, Path)), request_body = PatchQueue,
    responses(
        (status = 200, description = "The queue after.", body = QueueShown),
        (status = 400, description = "Refused.", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "There is no such queue.", body = Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn change(
    State(app): State<App>,
    _: NoQuery,
    reply: Reply,
    QueuePath(queue): QueuePath,
    caller: Caller,
    Wire(body): Wire<PatchQueue>,
) -> Result<Response, Refused> {
    let patch = Box::new(PolicyPatch::try_from(body.policy)?);
    caller.check_target(patch.dead_letter_queue.as_ref().and_then(Option::as_ref))?;
    change_and_show(&app, reply, Operation::ChangePolicy { queue, patch }).await
}

/// A queue, its schema, policy and counts.
#[utoipa::path(get, path = "/v1/queues/{queue}", operation_id = "show_queue", tag = "queues", security(("token" = ["queue:{queue}:read"])), params(("queue" = String, Path)), responses(
    (status = 200, description = "The queue.", body = QueueShown),
    (status = 404, description = "There is no such queue.", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn show(
    State(app): State<App>,
    _: NoQuery,
    reply: Reply,
    QueuePath(queue): QueuePath,
) -> Result<Response, Refused> {
    let view = find(&app, queue).await?;
    reply.with(&shown(&view))
}

/// Deletes a queue and its finished items; with `force`, unfinished ones too.
#[utoipa::path(delete, path = "/v1/queues/{queue}", operation_id = "delete_queue", tag = "queues", security(("token" = ["queue:{queue}:admin"])),
    params(("queue" = String, Path), ("force" = Option<bool>, Query, description = "Lose unfinished items")),
    responses(
        (status = 204, description = "It is gone."),
        (status = 404, description = "There is no such queue.", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "It has unfinished items.", body = Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn delete(
    State(app): State<App>,
    QueuePath(queue): QueuePath,
    mut query: Query,
) -> Result<Response, Refused> {
    let force = query.flag("force")?;
    query.end()?;
    update(&app, Operation::DeleteQueue { queue, force }).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// How many items stand where.
#[utoipa::path(get, path = "/v1/queues/{queue}/counts", operation_id = "count_items", tag = "queues", security(("token" = ["queue:{queue}:read"])), params(("queue" = String, Path)), responses(
    (status = 200, description = "The counts.", body = CountsShown),
    (status = 404, description = "There is no such queue.", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn counts(
    State(app): State<App>,
    _: NoQuery,
    reply: Reply,
    QueuePath(queue): QueuePath,
) -> Result<Response, Refused> {
    reply.with(&CountsShown::from(&find(&app, queue).await?.counts))
}

/// Takes no new items from now on; completed when nothing in it is unfinished. There is no way back.
#[utoipa::path(post, path = "/v1/queues/{queue}/close", operation_id = "close_queue", tag = "queues", security(("token" = ["queue:{queue}:admin"])), params(("queue" = String, Path)), responses(
    (status = 200, description = "The queue after.", body = QueueShown),
    (status = 404, description = "There is no such queue.", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn close(
    State(app): State<App>,
    _: NoQuery,
    reply: Reply,
    QueuePath(queue): QueuePath,
) -> Result<Response, Refused> {
    change_and_show(&app, reply, Operation::CloseQueue { queue }).await
}

/// Gives no items out from now on.
#[utoipa::path(post, path = "/v1/queues/{queue}/pause", operation_id = "pause_queue", tag = "queues", security(("token" = ["queue:{queue}:admin"])), params(("queue" = String, Path)), responses(
    (status = 200, description = "The queue after.", body = QueueShown),
    (status = 404, description = "There is no such queue.", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn pause(
    State(app): State<App>,
    _: NoQuery,
    reply: Reply,
    QueuePath(queue): QueuePath,
) -> Result<Response, Refused> {
    change_and_show(&app, reply, Operation::PauseQueue { queue }).await
}

/// Gives items out again.
#[utoipa::path(post, path = "/v1/queues/{queue}/resume", operation_id = "resume_queue", tag = "queues", security(("token" = ["queue:{queue}:admin"])), params(("queue" = String, Path)), responses(
    (status = 200, description = "The queue after.", body = QueueShown),
    (status = 404, description = "There is no such queue.", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn resume(
    State(app): State<App>,
    _: NoQuery,
    reply: Reply,
    QueuePath(queue): QueuePath,
) -> Result<Response, Refused> {
    change_and_show(&app, reply, Operation::ResumeQueue { queue }).await
}
