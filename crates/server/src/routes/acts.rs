//! Acts on all items that match, and how many match.

use super::filter::{cursor, filter, next};
use crate::answer::Reply;
use crate::app::App;
use crate::auth::Caller;
use crate::path::{ActPath, QueuePath};
use crate::query::{Query, invalid};
use crate::refuse::Refused;
use axum::extract::State;
use axum::response::Response;
use futures::FutureExt;
use std::pin::{Pin, pin};
use std::time::Duration;
use towline_api::{BulkResult, CountShown, ItemFilter, Problem, PurgeResult};
use towline_domain::{QueueName, QueueState, Refusal, StateName};
use towline_store::{BulkAction, Cursor, Filter, Operation, StoreError};

/// Items changed at a time: little enough that nobody else waits long.
const CHUNK: usize = 500;
/// What takes longer answers where to go on.
const TIME_MAX: Duration = Duration::from_secs(5);

/// Deletes all items that match, a few seconds' worth; go on with `next` until it is `null`.
#[utoipa::path(delete, path = "/v1/queues/{queue}/items", operation_id = "purge_items", tag = "items", security(("token" = ["queue:{queue}:admin"])),
    params(
        ("queue" = String, Path),
        ItemFilter,
        ("cursor" = Option<String>, Query, description = "`next` of the answer before"),
        ("force" = Option<bool>, Query, description = "Also items somebody works on"),
        ("dry_run" = Option<bool>, Query, description = "Say how many, and delete none"),
    ),
    responses(
        (status = 200, description = "How many are gone. A `state` must be given; `all` is for every state.", body = PurgeResult),
        (status = 400, description = "Refused.", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "There is no such queue.", body = Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn purge(
    State(app): State<App>,
    reply: Reply,
    QueuePath(queue): QueuePath,
    mut query: Query,
) -> Result<Response, Refused> {
    let after = cursor(&mut query)?;
    let (force, dry_run) = (query.flag("force")?, query.flag("dry_run")?);
    let everything = takes_all(&mut query);
    let filter = filter(&app, Some(queue), &mut query).await?;
    query.end()?;
    check_clear(filter.head.state.is_some(), filter.head.state, everything)?;
    if dry_run {
        let CountShown { count, next } = count_all(&app, &filter, after).await?;
        return reply.with(&PurgeResult { removed: 0, matched: Some(count), next });
    }
    let BulkResult { done, next, .. } =
        carry_out(&app, &BulkAction::Delete { force }, &filter, after).await?;
    reply.with(&PurgeResult { removed: done, matched: None, next })
}

/// Does something to all items that match, a few seconds' worth; go on with `next` until it is `null`. What has changed by
/// the time its turn comes, so that it no longer matches, is left alone.
#[utoipa::path(post, path = "/v1/queues/{queue}/items/{act}", operation_id = "act_on_items", tag = "items", security(("token" = ["queue:{queue}:admin"])),
    params(
        ("queue" = String, Path),
        ("act" = String, Path, description = "cancel, redrive, pause, resume, set-priority or move. Without a `state`, items are meant that it can be done to; something must be said, and `state=all` is every one of these"),
        ItemFilter,
        ("to" = Option<String>, Query, description = "The queue of a move, the number of a set-priority"),
        ("reason" = Option<String>, Query, description = "Of a cancel"),
        ("cursor" = Option<String>, Query, description = "`next` of the answer before"),
        ("dry_run" = Option<bool>, Query, description = "Say how many match, and change none"),
    ),
    responses(
        (status = 200, description = "How many it was done to.", body = BulkResult),
        (status = 400, description = "Refused.", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "There is no such queue, or no such act.", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "The queue to move to is closed.", body = Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn act(
    State(app): State<App>,
    reply: Reply,
    QueuePath(queue): QueuePath,
    ActPath(name): ActPath,
    caller: Caller,
    mut query: Query,
) -> Result<Response, Refused> {
    let act = match name {
        "cancel" => BulkAction::Cancel { reason: query.one("reason")?.unwrap_or_default() },
        "redrive" => BulkAction::Redrive,
        "pause" => BulkAction::Pause,
        "resume" => BulkAction::Resume,
        "set-priority" => match query.parse("to")? {
            Some(priority) => BulkAction::SetPriority { priority },
            None => return Err(invalid("to", "missing; say which priority they are to have, like to=-5")),
        },
        _ => match query.parse::<QueueName>("to")? {
            Some(to) => BulkAction::Move { to },
            None => return Err(invalid("to", "missing; say which queue they are to go to")),
        },
    };
    let after = cursor(&mut query)?;
    let dry_run = query.flag("dry_run")?;
    let everything = takes_all(&mut query);
    let mut filter = filter(&app, Some(queue), &mut query).await?;
    query.end()?;
    check_clear(filter.asks(), filter.head.state, everything)?;
    if let BulkAction::Move { to } = &act {
        caller.check_target(Some(to))?;
        check_open(&app, to).await?;
    }
    filter.head.state = filter.head.state.or(act.state());
    if dry_run {
        let CountShown { count: matched, next } = count_all(&app, &filter, after).await?;
        return reply.with(&BulkResult { matched, next, ..BulkResult::default() });
    }
    reply.with(&carry_out(&app, &act, &filter, after).await?)
}

/// `state=all`, which no filter of a list knows: every item, said in so many words.
fn takes_all(query: &mut Query) -> bool {
    let named = ["state", "status"].map(|name| query.take_pair(name, "all"));
    named.contains(&true)
}

/// Refuses an act that nobody has said the items of: what was left out by mistake is not everything.
fn check_clear(said: bool, state: Option<StateName>, everything: bool) -> Result<(), Refused> {
    match (said, everything) {
        (_, true) if state.is_some() => Err(invalid("state", "both all and another; choose one")),
        (false, false) => {
            Err(invalid("state", "missing; say which items are meant, or state=all for every one"))
        }
        _ => Ok(()),
    }
}

/// Refused once, not a million times.
async fn check_open(app: &App, queue: &QueueName) -> Result<(), Refused> {
    let name = queue.to_string();
    match app.broker.store().queue(queue.clone()).await?.map(|view| view.queue.state) {
        Some(QueueState::Open) => Ok(()),
        Some(state @ (QueueState::Closed { since } | QueueState::Completed { since })) => {
            Err(Refusal::QueueClosed { name, state: state.name(), since }.into())
        }
        None => Err(Refusal::QueueNotFound { name }.into()),
    }
}

/// How many items match.
#[utoipa::path(get, path = "/v1/queues/{queue}/items/count", operation_id = "count_matching_items", tag = "items", security(("token" = ["queue:{queue}:read"])),
    params(
        ("queue" = String, Path),
        ItemFilter,
        ("cursor" = Option<String>, Query, description = "`next` of the answer before"),
    ),
    responses(
        (status = 200, description = "How many.", body = CountShown),
        (status = 400, description = "Refused.", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "There is no such queue.", body = Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn count(
    State(app): State<App>,
    reply: Reply,
    QueuePath(queue): QueuePath,
    query: Query,
) -> Result<Response, Refused> {
    reply.with(&counted(&app, Some(queue), query).await?)
}

/// How many items of all queues match.
#[utoipa::path(get, path = "/v1/items/count", operation_id = "count_matching_items_of_all", tag = "items", security(("token" = ["queue:*:read"])),
    params(ItemFilter, ("cursor" = Option<String>, Query, description = "`next` of the answer before")),
    responses(
        (status = 200, description = "How many.", body = CountShown),
        (status = 400, description = "Refused.", body = Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn count_everywhere(
    State(app): State<App>,
    reply: Reply,
    query: Query,
) -> Result<Response, Refused> {
    reply.with(&counted(&app, None, query).await?)
}

async fn counted(app: &App, queue: Option<QueueName>, mut query: Query) -> Result<CountShown, Refused> {
    let after = cursor(&mut query)?;
    let filter = filter(app, queue, &mut query).await?;
    query.end()?;
    Ok(count_all(app, &filter, after).await?)
}

pub(super) async fn count_all(
    app: &App,
    filter: &Filter,
    begun: Option<Cursor>,
) -> Result<CountShown, StoreError> {
    let (mut count, mut after) = (0, begun);
    let mut time = pin!(tokio::time::sleep(TIME_MAX));
    loop {
        match app.broker.store().count(filter.clone(), after).await {
            Ok(counted) => (count, after) = (count + counted.count, counted.next),
            Err(fault) => return Err(fault),
        }
        if after.is_none() || is_over(time.as_mut()) {
            return Ok(CountShown { count, next: next(after) });
        }
    }
}

pub(super) async fn carry_out(
    app: &App,
    act: &BulkAction,
    filter: &Filter,
    begun: Option<Cursor>,
) -> Result<BulkResult, StoreError> {
    let (mut sum, mut after) = (BulkResult::default(), begun);
    let mut time = pin!(tokio::time::sleep(TIME_MAX));
    let (broker, mut pace) = (&app.broker, app.broker.pace());
    loop {
        let chosen = towline_store::bulk_batch(broker.store(), act, filter.clone(), after, CHUNK);
        let acted = match broker.part(&mut pace, 0, chosen).await {
            Ok((batch, None)) if batch.is_empty() => Ok((0, towline_store::BulkResult::default())),
            Ok((batch, next)) => {
                tokio::select! {
                    // Before the first chunk there is nothing to rest for: however long it took to choose, that one is carried out.
                    biased;
                    () = broker.rest(&mut pace) => {}
                    // It is chosen again by whoever goes on from here.
                    () = &mut time => return Ok(BulkResult { next: self::next(after), ..sum }),
                }
                broker.part(&mut pace, CHUNK, carry_out_chunk(app, batch, next)).await
            }
            Err(fault) => Err(fault),
        };
        match acted {
            Ok((matched, acted)) => {
                sum.matched += matched;
                sum.done += acted.done;
                for (code, count) in acted.left {
                    *sum.left.entry(code.to_owned()).or_default() += count;
                }
                after = acted.next;
            }
            // What is done is done: the caller goes on from here, and hears of a fault that lasts.
            Err(_) if after > begun => return Ok(BulkResult { next: next(after), ..sum }),
            Err(fault) => return Err(fault),
        }
        if after.is_none() || is_over(time.as_mut()) {
            return Ok(BulkResult { next: next(after), ..sum });
        }
    }
}

/// How many items were chosen, and how it went.
async fn carry_out_chunk(
    app: &App,
    batch: Vec<Operation>,
    next: Option<Cursor>,
) -> Result<(u64, towline_store::BulkResult), StoreError> {
    if batch.is_empty() {
        return Ok((0, towline_store::BulkResult { next, ..towline_store::BulkResult::default() }));
    }
    let matched = batch.len() as u64;
    // By way of the broker: somebody may wait for one of them, or for the queue to be completed.
    let answers = app.broker.update(batch).await?;
    Ok((matched, towline_store::BulkResult::of(&answers, next)))
}

/// Asked, not looked at: a timer that nobody has waited for never goes off.
fn is_over(time: Pin<&mut tokio::time::Sleep>) -> bool {
    time.now_or_never().is_some()
}
