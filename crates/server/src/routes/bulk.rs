//! Bulk actions: counting, changing and deleting all items that match a filter.

use super::filter::{cursor, filter, next};
use crate::app::App;
use crate::auth::{Caller, Right};
use crate::request::{BulkActionPath, DecodedBody, Query, QueuePath, invalid};
use crate::response::{ProblemResponse, Responder};
use axum::extract::State;
use axum::response::Response;
use futures::FutureExt;
use std::collections::HashSet;
use std::pin::{Pin, pin};
use std::time::Duration;
use towline_api::{BulkResult, CancelRequest, Code, CountShown, ItemFilter};
use towline_domain::{FieldSet, ItemId, QueueName, Refusal, StateName};
use towline_store::{BulkAction, Cursor, Filter, Operation, StoreError};

/// Items per update: few enough that other requests do not wait long.
const BATCH: usize = 500;
/// An action that takes longer responds with a cursor.
const TIME_MAX: Duration = Duration::from_secs(5);

/// Delete all items that match the filter.
///
/// A call runs for a few seconds at most. Repeat it with `next` as the cursor until `next` is `null`.
#[utoipa::path(delete, path = "/v1/queues/{queue}/items", operation_id = "purge_items", tag = "items", security(("token" = ["queue:{queue}:admin"])),
    params(
        ("queue" = String, Path),
        ItemFilter,
        ("cursor" = Option<String>, Query, description = "`next` of the previous response"),
        ("force" = Option<bool>, Query, description = "Also delete items that a worker holds a lease on"),
        ("dry_run" = Option<bool>, Query, description = "Count the items without deleting them"),
    ),
    responses(
        (status = 200, description = "How many items were deleted. A `state` is required; `all` selects every state.", body = BulkResult),
    ))]
pub(super) async fn purge(
    State(app): State<App>,
    respond: Responder,
    QueuePath(queue): QueuePath,
    caller: Caller,
    mut query: Query,
) -> Result<Response, ProblemResponse> {
    let after = cursor(&mut query)?;
    let (force, dry_run) = (query.flag("force")?, query.flag("dry_run")?);
    let all = selects_all(&mut query);
    let filter = filter(&app, Some(queue), &mut query).await?;
    query.end()?;
    check_selection(filter.head.state.is_some(), filter.head.state, all)?;
    if dry_run {
        let CountShown { count: matched, next } = count_matching(&app, &filter, after).await?;
        return respond.with(&BulkResult { matched, next, ..BulkResult::default() });
    }
    respond.with(&run_action(&app, &caller, &BulkAction::Delete { force }, &filter, after).await?)
}

/// Run a bulk action on all items that match the filter.
///
/// A call runs for a few seconds at most. Repeat it with `next` as the cursor until `next` is `null`. An item that has changed
/// meanwhile and no longer matches stays as it is.
#[utoipa::path(post, path = "/v1/queues/{queue}/items/{action}", operation_id = "run_bulk_action", tag = "items", security(("token" = ["queue:{queue}:admin"])),
    params(
        ("queue" = String, Path),
        ("action" = String, Path, description = "cancel, redrive, pause, resume, set-priority or move. Without `state`, the action selects the items it applies to. At least one filter is required; `state=all` selects all of these items"),
        ItemFilter,
        ("to" = Option<String>, Query, description = "The target queue of a move, or the number of a set-priority"),
        ("cursor" = Option<String>, Query, description = "`next` of the previous response"),
        ("dry_run" = Option<bool>, Query, description = "Count the items without changing them"),
    ),
    request_body(content = CancelRequest, description = "The reason of a cancel. Other actions have an empty body"),
    responses(
        (status = 200, description = "How many items were changed.", body = BulkResult),
        (status = 404, description = "The queue or the bulk action does not exist."),
        (status = 409, description = "The target queue is closed."),
    ))]
pub(super) async fn run(
    State(app): State<App>,
    respond: Responder,
    QueuePath(queue): QueuePath,
    BulkActionPath(name): BulkActionPath,
    caller: Caller,
    mut query: Query,
    DecodedBody(body, ..): DecodedBody<CancelRequest>,
) -> Result<Response, ProblemResponse> {
    check_no_lease(&body)?;
    if body.reason.is_some() && name != "cancel" {
        return Err(invalid("reason", format!("not for {name}; it goes with cancel")));
    }
    let action = match name {
        "cancel" => BulkAction::Cancel { reason: body.reason.unwrap_or_default() },
        "redrive" => BulkAction::Redrive,
        "pause" => BulkAction::Pause,
        "resume" => BulkAction::Resume,
        "set-priority" => match query.parse("to")? {
            Some(priority) => BulkAction::SetPriority { priority },
            None => return Err(invalid("to", "missing; give the new priority, like to=-5")),
        },
        _ => match query.parse::<QueueName>("to")? {
            Some(to) => BulkAction::Move { to },
            None => return Err(invalid("to", "missing; give the target queue")),
        },
    };
    let after = cursor(&mut query)?;
    let dry_run = query.flag("dry_run")?;
    let all = selects_all(&mut query);
    let mut filter = filter(&app, Some(queue), &mut query).await?;
    query.end()?;
    check_selection(filter.asks(), filter.head.state, all)?;
    if let BulkAction::Move { to } = &action {
        caller.check_target(Some(to))?;
        check_open(&app, to).await?;
    }
    filter.head.state = filter.head.state.or(action.state());
    if dry_run {
        let CountShown { count: matched, next } = count_matching(&app, &filter, after).await?;
        return respond.with(&BulkResult { matched, next, ..BulkResult::default() });
    }
    respond.with(&run_action(&app, &caller, &action, &filter, after).await?)
}

/// A lease is of one item.
pub(super) fn check_no_lease(body: &CancelRequest) -> Result<(), ProblemResponse> {
    match body.lease {
        Some(_) => Err(invalid("lease", "not for many items; it goes with the cancel of one item")),
        None => Ok(()),
    }
}

/// Whether the request says `state=all`. Lists do not know this value.
fn selects_all(query: &mut Query) -> bool {
    let named = ["state", "status"].map(|name| query.take_pair(name, "all"));
    named.contains(&true)
}

/// Rejects a bulk action without a filter: a filter forgotten by mistake must not select every item.
fn check_selection(filtered: bool, state: Option<StateName>, all: bool) -> Result<(), ProblemResponse> {
    match (filtered, all) {
        (_, true) if state.is_some() => {
            Err(invalid("state", "given both as all and as another state; choose one"))
        }
        (false, false) => Err(invalid("state", "missing; give a filter, or state=all for every item")),
        _ => Ok(()),
    }
}

/// Rejects a closed target queue once, instead of refusing each item.
async fn check_open(app: &App, queue: &QueueName) -> Result<(), ProblemResponse> {
    match app.broker.store().queue(queue.clone()).await? {
        Some(view) => Ok(view.queue.check_open()?),
        None => Err(Refusal::QueueNotFound { name: queue.to_string() }.into()),
    }
}

/// Count the items that match the filter.
#[utoipa::path(get, path = "/v1/queues/{queue}/items/count", operation_id = "count_matching_items", tag = "items", security(("token" = ["queue:{queue}:read"])),
    params(
        ("queue" = String, Path),
        ItemFilter,
        ("cursor" = Option<String>, Query, description = "`next` of the previous response"),
    ),
    responses(
        (status = 200, description = "The number of items.", body = CountShown),
    ))]
pub(super) async fn count(
    State(app): State<App>,
    respond: Responder,
    QueuePath(queue): QueuePath,
    query: Query,
) -> Result<Response, ProblemResponse> {
    respond.with(&count_filtered(&app, Some(queue), query).await?)
}

/// Count the items of all queues that match the filter.
#[utoipa::path(get, path = "/v1/items/count", operation_id = "count_matching_items_of_all", tag = "items", security(("token" = ["queue:*:read"])),
    params(ItemFilter, ("cursor" = Option<String>, Query, description = "`next` of the previous response")),
    responses(
        (status = 200, description = "The number of items.", body = CountShown),
    ))]
pub(super) async fn count_all_queues(
    State(app): State<App>,
    respond: Responder,
    query: Query,
) -> Result<Response, ProblemResponse> {
    respond.with(&count_filtered(&app, None, query).await?)
}

async fn count_filtered(
    app: &App,
    queue: Option<QueueName>,
    mut query: Query,
) -> Result<CountShown, ProblemResponse> {
    let after = cursor(&mut query)?;
    let filter = filter(app, queue, &mut query).await?;
    query.end()?;
    Ok(count_matching(app, &filter, after).await?)
}

pub(super) async fn count_matching(
    app: &App,
    filter: &Filter,
    start: Option<Cursor>,
) -> Result<CountShown, StoreError> {
    let (mut count, mut after) = (0, start);
    let mut time = pin!(tokio::time::sleep(TIME_MAX));
    loop {
        let counted = app.broker.store().count(filter.clone(), after).await?;
        (count, after) = (count + counted.count, counted.next);
        if after.is_none() || has_elapsed(time.as_mut()) {
            return Ok(CountShown { count, next: next(after) });
        }
    }
}

pub(super) async fn run_action(
    app: &App,
    caller: &Caller,
    action: &BulkAction,
    filter: &Filter,
    start: Option<Cursor>,
) -> Result<BulkResult, StoreError> {
    let (mut sum, mut after) = (BulkResult::default(), start);
    let mut time = pin!(tokio::time::sleep(TIME_MAX));
    let (broker, mut pace) = (&app.broker, app.broker.pace());
    loop {
        let chosen = towline_store::bulk_batch(broker.store(), action, filter.clone(), after, BATCH);
        let result = match broker.part(&mut pace, 0, chosen).await {
            Ok((batch, None)) if batch.is_empty() => Ok((0, towline_store::BulkResult::default())),
            Ok((batch, next)) => {
                tokio::select! {
                    // The first batch needs no rest, so each call makes progress even if selecting its items took long.
                    biased;
                    () = broker.rest(&mut pace) => {}
                    // The next call selects the same items again.
                    () = &mut time => return Ok(BulkResult { next: self::next(after), ..sum }),
                }
                broker.part(&mut pace, BATCH, run_batch(app, caller, batch, next)).await
            }
            Err(fault) => Err(fault),
        };
        match result {
            Ok((matched, batch)) => {
                sum.matched += matched;
                sum.done += batch.done;
                for (code, count) in batch.left {
                    *sum.left.entry(code.to_owned()).or_default() += count;
                }
                after = batch.next;
            }
            // Report the progress so far. If the fault lasts, the next call reports it.
            Err(_) if after > start => return Ok(BulkResult { next: next(after), ..sum }),
            Err(fault) => return Err(fault),
        }
        if after.is_none() || has_elapsed(time.as_mut()) {
            return Ok(BulkResult { next: next(after), ..sum });
        }
    }
}

/// The number of selected items, and the result.
async fn run_batch(
    app: &App,
    caller: &Caller,
    mut batch: Vec<Operation>,
    next: Option<Cursor>,
) -> Result<(u64, towline_store::BulkResult), StoreError> {
    if batch.is_empty() {
        return Ok((0, towline_store::BulkResult { next, ..towline_store::BulkResult::default() }));
    }
    let matched = batch.len() as u64;
    let forbidden = remove_forbidden_redrives(app, caller, &mut batch).await?;
    // Through the broker, which wakes waiters.
    let answers = app.broker.update(batch).await?;
    let mut result = towline_store::BulkResult::of(&answers, next);
    if forbidden > 0 {
        result.left.insert(Code::Forbidden.name(), forbidden);
    }
    Ok((matched, result))
}

/// Removes redrives of items to queues to which the client may not submit. Returns how many.
async fn remove_forbidden_redrives(
    app: &App,
    caller: &Caller,
    batch: &mut Vec<Operation>,
) -> Result<u64, StoreError> {
    let redriven = |operation: &Operation| match operation {
        Operation::Guarded { then, .. } => match **then {
            Operation::Redrive { id } => Some(id),
            _ => None,
        },
        _ => None,
    };
    let ids: Vec<ItemId> = batch.iter().filter_map(redriven).collect();
    if ids.is_empty() || caller.may_all(Right::Submit) {
        return Ok(0);
    }
    let found = app.broker.store().get(ids, FieldSet::HEADS).await?;
    let forbidden: HashSet<ItemId> = found
        .into_iter()
        .flatten()
        .filter(|stored| stored.item.head.origin().is_some_and(|queue| !caller.may(queue, Right::Submit)))
        .map(|stored| stored.item.head.id)
        .collect();
    let before = batch.len();
    batch.retain(|operation| redriven(operation).is_none_or(|id| !forbidden.contains(&id)));
    Ok((before - batch.len()) as u64)
}

/// Polls the timer: it only elapses if it is polled.
fn has_elapsed(time: Pin<&mut tokio::time::Sleep>) -> bool {
    time.now_or_never().is_some()
}
