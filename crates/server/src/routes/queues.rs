//! Queues: create, show, change, close, pause, resume, delete.

use super::{unexpected, update};
use crate::app::App;
use crate::auth::{Caller, Right};
use crate::request::{DecodedBody, NoQuery, Query, QueuePath};
use crate::response::{ProblemResponse, Responder};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use towline_api::{
    Code, CountsShown, PatchQueue, PutQueue, QueueApplied, QueuePage, QueueShown, SettingChange,
};
use towline_domain::change::Answer;
use towline_domain::command::NewQueue;
use towline_domain::{
    Command, Context, FieldSet, Policy, PolicyPatch, Queue, QueueId, QueueName, Refusal, decide,
};
use towline_store::{Operation, OperationError, QueueView};

/// Leases that are looked up at once, and how often for one request.
const LEASES_READ: usize = 1000;
const LEASE_READS_MAX: usize = 10;

pub(super) async fn find(app: &App, queue: QueueName) -> Result<QueueView, ProblemResponse> {
    let found = app.broker.store().queue(queue.clone()).await?;
    found.ok_or_else(|| Refusal::QueueNotFound { name: queue.to_string() }.into())
}

/// Whether the server creates queues, and this one for this client.
pub(super) fn creates_queue(app: &App, caller: &Caller, queue: &QueueName) -> bool {
    app.auto_create_queues && caller.may(queue, Right::Admin)
}

/// Creates a queue with the default policy if it does not exist, the server creates queues, and the client may create this one.
pub(super) async fn create_if_absent(
    app: &App,
    caller: &Caller,
    queue: &QueueName,
) -> Result<(), ProblemResponse> {
    if !creates_queue(app, caller, queue) || app.broker.store().queue(queue.clone()).await?.is_some() {
        return Ok(());
    }
    let create = Operation::CreateQueue {
        queue: queue.clone(),
        schema: Box::default(),
        policy: Box::new(Policy::default()),
    };
    match app.broker.update(vec![create]).await?.pop() {
        // Another client created it meanwhile.
        None | Some(Ok(_) | Err(OperationError::Refused(Refusal::QueueExists { .. }))) => Ok(()),
        Some(Err(error)) => Err(error.into()),
    }
}

fn describe(view: &QueueView) -> QueueShown {
    QueueShown::new(&view.queue, &view.counts, view.oldest_ready)
}

/// Carries out an operation that returns the queue, and responds with it.
async fn change_and_show(
    app: &App,
    respond: Responder,
    operation: Operation,
) -> Result<Response, ProblemResponse> {
    let Answer::Queue(queue) = update(app, operation).await? else { return Err(unexpected()) };
    // A queue that was deleted meanwhile has no counts.
    let view = app.broker.store().queue(queue.name.clone()).await?;
    let (counts, oldest_ready) = view.map_or_else(Default::default, |view| (view.counts, view.oldest_ready));
    respond.with(&QueueShown::new(&queue, &counts, oldest_ready))
}

/// List queues in order of name. The list contains the queues that the token may read.
#[utoipa::path(get, path = "/v1/queues", operation_id = "list_queues", tag = "queues", security(("token" = ["any"])),
    params(
        ("cursor" = Option<String>, Query, description = "`next` of the previous page"),
        ("limit" = Option<usize>, Query, description = "Maximum number of entries, up to 1000. Default: 100", minimum = 1, maximum = 1000),
    ),
    responses(
        (status = 200, description = "A page.", body = QueuePage),
    ))]
pub(super) async fn list(
    State(app): State<App>,
    respond: Responder,
    caller: Caller,
    mut query: Query,
) -> Result<Response, ProblemResponse> {
    let after: Option<QueueName> = query.parse("cursor")?;
    let limit = query.limit()?;
    query.end()?;
    let views = app.broker.store().queues(after, limit).await?;
    let next = (views.len() == limit).then(|| views.last().map(|view| view.queue.name.to_string())).flatten();
    let queues: Vec<QueueShown> =
        views.iter().filter(|view| caller.may(&view.queue.name, Right::Read)).map(describe).collect();
    let count = queues.len();
    respond.with_many(&QueuePage { queues, next }, count)
}

/// Create a queue.
///
/// Repeating the same call changes nothing. If the queue exists with another schema or policy, the error says what differs: apply
/// it to change the policy.
#[utoipa::path(put, path = "/v1/queues/{queue}", operation_id = "put_queue", tag = "queues", security(("token" = ["queue:{queue}:admin"])), params(("queue" = String, Path)), request_body = PutQueue,
    responses(
        (status = 200, description = "The queue.", body = QueueShown),
        (status = 409, description = "The queue exists with another schema or policy."),
    ))]
pub(super) async fn put(
    State(app): State<App>,
    _: NoQuery,
    respond: Responder,
    QueuePath(queue): QueuePath,
    caller: Caller,
    DecodedBody(body, ..): DecodedBody<PutQueue>,
) -> Result<Response, ProblemResponse> {
    let (schema, policy) = body.into_domain()?;
    caller.check_target(policy.dead_letter_queue.as_ref())?;
    let create = Operation::CreateQueue { queue, schema: Box::new(schema), policy: Box::new(policy) };
    change_and_show(&app, respond, create).await
}

/// Create a queue, or change its policy. Fields that are not given stay as they are, or get their defaults in a new queue.
///
/// The response lists what changed. The schema and the order of a queue that exists cannot be changed.
#[utoipa::path(post, path = "/v1/queues/{queue}/apply", operation_id = "apply_queue", tag = "queues", security(("token" = ["queue:{queue}:admin"])),
    params(("queue" = String, Path), ("dry_run" = Option<bool>, Query, description = "Change nothing: show what would change")),
    request_body = PutQueue,
    responses(
        (status = 200, description = "The queue and what changed.", body = QueueApplied),
        (status = 409, description = "The queue exists with another schema or order."),
    ))]
pub(super) async fn apply(
    State(app): State<App>,
    respond: Responder,
    QueuePath(queue): QueuePath,
    caller: Caller,
    mut query: Query,
    DecodedBody(body, ..): DecodedBody<PutQueue>,
) -> Result<Response, ProblemResponse> {
    let dry_run = query.flag("dry_run")?;
    query.end()?;
    let found = app.broker.store().queue(queue.clone()).await?;
    let before = found.as_ref().map(|view| &view.queue);
    let (operation, command) = match before {
        None => {
            let (schema, policy) = body.into_domain()?;
            let (schema, policy) = (Box::new(schema), Box::new(policy));
            let new = NewQueue {
                id: QueueId(0),
                name: queue.clone(),
                schema: (*schema).clone(),
                policy: (*policy).clone(),
            };
            let create = Operation::CreateQueue { queue: queue.clone(), schema, policy };
            (create, Command::CreateQueue(Box::new(new)))
        }
        Some(existing) => {
            let fixed = body.fixed_differences(existing)?;
            if !fixed.is_empty() {
                return Err(cannot_change(&queue, &fixed));
            }
            let patch = Box::new(body.into_patch()?);
            (
                Operation::ChangePolicy { queue: queue.clone(), patch: patch.clone() },
                Command::ChangePolicy(patch),
            )
        }
    };
    let planned = plan(&app, before, command).await?;
    check_dead_letters(&caller, before, planned.policy.dead_letter_queue.as_ref())?;
    let changed = before
        .map_or_else(Vec::new, |before| SettingChange::between_policies(&before.policy, &planned.policy));
    let created = before.is_none();
    let shown = if dry_run {
        let (counts, oldest) = found.map_or_else(Default::default, |view| (view.counts, view.oldest_ready));
        QueueShown::new(&planned, &counts, oldest)
    } else {
        if created || !changed.is_empty() {
            update(&app, operation).await?;
        }
        describe(&find(&app, queue).await?)
    };
    respond.with(&QueueApplied { created, changed, queue: shown })
}

/// To name another dead-letter queue takes the right to submit to it. To keep it does not.
fn check_dead_letters(
    caller: &Caller,
    before: Option<&Queue>,
    named: Option<&QueueName>,
) -> Result<(), ProblemResponse> {
    let kept = before.and_then(|queue| queue.policy.dead_letter_queue.as_ref());
    caller.check_target(named.filter(|named| kept != Some(*named)))
}

/// The queue as a command would leave it. Refuses what the store would refuse.
async fn plan(app: &App, before: Option<&Queue>, command: Command) -> Result<Queue, ProblemResponse> {
    let named = match &command {
        Command::CreateQueue(new) => new.policy.dead_letter_queue.clone(),
        Command::ChangePolicy(patch) => patch.dead_letter_queue.clone().flatten(),
        _ => None,
    };
    let dead_letters = match named {
        Some(name) => app.broker.store().queue(name).await?,
        None => None,
    };
    let dead_letters = dead_letters.as_ref().map(|view| &view.queue);
    let context = Context { queue: before, dead_letters, ..Context::default() };
    match decide(&context, command, app.now())?.answer() {
        Answer::Queue(queue) => Ok((**queue).clone()),
        _ => Err(unexpected()),
    }
}

fn cannot_change(queue: &QueueName, fixed: &[SettingChange]) -> ProblemResponse {
    let changes: Vec<String> = fixed.iter().map(ToString::to_string).collect();
    let detail = format!(
        "queue {:?} exists with another schema or order, which cannot be changed ({}); use another name, or delete the queue first",
        queue.as_str(),
        changes.join(", ")
    );
    ProblemResponse::new(Code::QueueExists, detail)
}

/// Change the policy of a queue. Fields that are not given stay as they are.
#[utoipa::path(patch, path = "/v1/queues/{queue}", operation_id = "change_queue", tag = "queues", security(("token" = ["queue:{queue}:admin"])), params(("queue" = String, Path)), request_body = PatchQueue,
    responses(
        (status = 200, description = "The changed queue.", body = QueueShown),
    ))]
pub(super) async fn change(
    State(app): State<App>,
    _: NoQuery,
    respond: Responder,
    QueuePath(queue): QueuePath,
    caller: Caller,
    DecodedBody(body, ..): DecodedBody<PatchQueue>,
) -> Result<Response, ProblemResponse> {
    let patch = Box::new(PolicyPatch::try_from(body.policy)?);
    if let Some(Some(named)) = &patch.dead_letter_queue {
        let before = app.broker.store().queue(queue.clone()).await?.map(|view| view.queue);
        check_dead_letters(&caller, before.as_ref(), Some(named))?;
    }
    change_and_show(&app, respond, Operation::ChangePolicy { queue, patch }).await
}

/// Show a queue with its schema, policy, counts and consumers.
#[utoipa::path(get, path = "/v1/queues/{queue}", operation_id = "show_queue", tag = "queues", security(("token" = ["queue:{queue}:read"])), params(("queue" = String, Path)), responses(
    (status = 200, description = "The queue.", body = QueueShown),
))]
pub(super) async fn show(
    State(app): State<App>,
    _: NoQuery,
    respond: Responder,
    caller: Caller,
    QueuePath(queue): QueuePath,
) -> Result<Response, ProblemResponse> {
    forget_ended_leases(&app, &queue).await?;
    let mut consumers = app.consumers.of(&queue, app.now());
    if !caller.may(&queue, Right::Admin) {
        consumers.iter_mut().for_each(|consumer| consumer.token = None);
    }
    let view = find(&app, queue).await?;
    respond.with(&QueueShown { consumers, ..describe(&view) })
}

/// Forgets leases that ended without a call of their holder: another client cancelled, paused, moved or deleted the item.
async fn forget_ended_leases(app: &App, queue: &QueueName) -> Result<(), ProblemResponse> {
    let leases = app.consumers.leases(queue, app.now());
    for some in leases.chunks(LEASES_READ).take(LEASE_READS_MAX) {
        let ids = some.iter().map(|(id, _)| *id).collect();
        let found = app.broker.store().get(ids, FieldSet::HEADS).await?;
        for ((id, token), found) in some.iter().zip(found) {
            let holds = found.is_some_and(|stored| {
                stored.queue == *queue && stored.item.head.lease().is_some_and(|lease| lease.token == *token)
            });
            if !holds {
                app.consumers.settled(*id, *token, None);
            }
        }
    }
    Ok(())
}

/// Delete a queue and its items. With unfinished items, `force` is required.
#[utoipa::path(delete, path = "/v1/queues/{queue}", operation_id = "delete_queue", tag = "queues", security(("token" = ["queue:{queue}:admin"])),
    params(("queue" = String, Path), ("force" = Option<bool>, Query, description = "Also delete unfinished items")),
    responses(
        (status = 204, description = "Deleted."),
        (status = 409, description = "The queue has unfinished items."),
    ))]
pub(super) async fn delete(
    State(app): State<App>,
    QueuePath(queue): QueuePath,
    mut query: Query,
) -> Result<Response, ProblemResponse> {
    let force = query.flag("force")?;
    query.end()?;
    let name = queue.to_string();
    let deleted = update(&app, Operation::DeleteQueue { queue, force }).await;
    deleted.map_err(|problem| match problem.code() {
        // Nothing has to be created for a delete.
        Code::QueueNotFound => {
            ProblemResponse::new(Code::QueueNotFound, format!("no queue named {name:?}; nothing was deleted"))
        }
        _ => problem,
    })?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Count the items of a queue by state.
#[utoipa::path(get, path = "/v1/queues/{queue}/counts", operation_id = "count_items", tag = "queues", security(("token" = ["queue:{queue}:read"])), params(("queue" = String, Path)), responses(
    (status = 200, description = "The counts.", body = CountsShown),
))]
pub(super) async fn counts(
    State(app): State<App>,
    _: NoQuery,
    respond: Responder,
    QueuePath(queue): QueuePath,
) -> Result<Response, ProblemResponse> {
    respond.with(&CountsShown::from(&find(&app, queue).await?.counts))
}

/// Close a queue, so that it accepts no more items.
///
/// The queue is completed when all its items are terminal. A closed queue cannot be opened again.
#[utoipa::path(post, path = "/v1/queues/{queue}/close", operation_id = "close_queue", tag = "queues", security(("token" = ["queue:{queue}:admin"])), params(("queue" = String, Path)), responses(
    (status = 200, description = "The changed queue.", body = QueueShown),
))]
pub(super) async fn close(
    State(app): State<App>,
    _: NoQuery,
    respond: Responder,
    QueuePath(queue): QueuePath,
) -> Result<Response, ProblemResponse> {
    change_and_show(&app, respond, Operation::CloseQueue { queue }).await
}

/// Pause a queue, so that its items are not delivered.
#[utoipa::path(post, path = "/v1/queues/{queue}/pause", operation_id = "pause_queue", tag = "queues", security(("token" = ["queue:{queue}:admin"])), params(("queue" = String, Path)), responses(
    (status = 200, description = "The changed queue.", body = QueueShown),
))]
pub(super) async fn pause(
    State(app): State<App>,
    _: NoQuery,
    respond: Responder,
    QueuePath(queue): QueuePath,
) -> Result<Response, ProblemResponse> {
    change_and_show(&app, respond, Operation::PauseQueue { queue }).await
}

/// Resume a paused queue.
#[utoipa::path(post, path = "/v1/queues/{queue}/resume", operation_id = "resume_queue", tag = "queues", security(("token" = ["queue:{queue}:admin"])), params(("queue" = String, Path)), responses(
    (status = 200, description = "The changed queue.", body = QueueShown),
))]
pub(super) async fn resume(
    State(app): State<App>,
    _: NoQuery,
    respond: Responder,
    QueuePath(queue): QueuePath,
) -> Result<Response, ProblemResponse> {
    change_and_show(&app, respond, Operation::ResumeQueue { queue }).await
}
