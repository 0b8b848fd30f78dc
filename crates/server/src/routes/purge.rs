//! Deleting all items that match.

use super::list::{cursor, filter, next};
use crate::answer::Reply;
use crate::app::App;
use crate::path::QueuePath;
use crate::query::Query;
use crate::refuse::Refused;
use axum::extract::State;
use axum::response::Response;
use futures::FutureExt;
use std::pin::pin;
use std::time::Duration;
use towline_api::{Code, Problem, Purged, Time};
use towline_store::{Cursor, Filter, StoreError};

/// Items deleted at a time: little enough that nobody else waits long.
const PURGE_CHUNK: usize = 1000;
/// A purge that takes longer answers where to go on.
const PURGE_TIME: Duration = Duration::from_secs(5);

/// Deletes all items that match, a few seconds' worth; go on with `next` until it is `null`.
#[utoipa::path(delete, path = "/v1/queues/{queue}/items", operation_id = "purge_items", tag = "items", security(("token" = ["queue:{queue}:admin"])),
    params(
        ("queue" = String, Path),
        ("state" = String, Query, description = "As in a list; `all` for every state"),
        ("tag" = Option<Vec<String>>, Query, description = "key=value; may be given several times, and then all must match"),
        ("group" = Option<String>, Query),
        ("idempotency_key" = Option<String>, Query),
        ("created_from" = Option<Time>, Query),
        ("created_before" = Option<Time>, Query),
        ("cursor" = Option<String>, Query, description = "`next` of the answer before"),
        ("force" = Option<bool>, Query, description = "Also items somebody works on"),
    ),
    responses(
        (status = 200, description = "How many are gone.", body = Purged),
        (status = 400, description = "Refused.", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "There is no such queue.", body = Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn purge(
    State(app): State<App>,
    reply: Reply,
    QueuePath(queue): QueuePath,
    mut query: Query,
) -> Result<Response, Refused> {
    let mut after = cursor(&mut query)?;
    let force = query.flag("force")?;
    let everything = query.take_pair("state", "all");
    let filter = filter(&app, queue, &mut query).await?;
    query.end()?;
    let unclear = match (filter.state.is_some(), everything) {
        (false, false) => Some("state: missing; say which items to delete, or state=all for every one"),
        (true, true) => Some("state: both all and another; choose one"),
        _ => None,
    };
    if let Some(detail) = unclear {
        return Err(Refused::new(Code::Invalid, detail));
    }
    let (begun, mut removed) = (after, 0);
    let mut deadline = pin!(tokio::time::sleep(PURGE_TIME));
    loop {
        match chunk(&app, &filter, after, force).await {
            Ok((gone, next_chunk)) => {
                removed += gone;
                after = next_chunk;
            }
            // What is gone is gone: the caller goes on from here, and hears of a fault that lasts.
            Err(_) if after > begun => return reply.with(&Purged { removed, next: next(after) }),
            Err(fault) => return Err(fault.into()),
        }
        // Asked, not looked at: a timer that nobody has waited for never goes off.
        let late = deadline.as_mut().now_or_never().is_some();
        if after.is_none() || late {
            return reply.with(&Purged { removed, next: next(after) });
        }
    }
}

/// How many items of the next chunk were deleted, and where to go on.
async fn chunk(
    app: &App,
    filter: &Filter,
    after: Option<Cursor>,
    force: bool,
) -> Result<(u64, Option<Cursor>), StoreError> {
    let store = app.broker.store();
    let (batch, next) = towline_store::doomed(store, filter.clone(), after, PURGE_CHUNK, force).await?;
    // By way of the broker: somebody may wait for one of them, or for the queue to be completed.
    let answers = app.broker.update(batch).await?;
    Ok((answers.iter().filter(|answered| answered.is_ok()).count() as u64, next))
}
