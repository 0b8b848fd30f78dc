//! Submitting one item or thousands.

use super::queues::find;
use super::receive::check_wait;
use super::{merge, unexpected};
use crate::answer::{Reply, aside};
use crate::app::App;
use crate::body::Wire;
use crate::path::QueuePath;
use crate::query::NoQuery;
use crate::refuse::Refused;
use crate::traces::{self, Submitting, Within};
use axum::extract::State;
use axum::response::Response;
use http::HeaderMap;
use std::time::Duration;
use towline_api::{NewItem, Problem, SubmitAnswer, SubmitRequest, Submitted};
use towline_domain::change::Answer;
use towline_domain::{QueueName, Refusal, Submission, Trace, limits};
use towline_store::{Operation, Reply as Stored, StoreError};

/// Submits items; each is answered by itself, in order. An answer with an `id` means the item is durable. With `wait`, items for which
/// a full queue has no room wait for it.
#[utoipa::path(post, path = "/v1/queues/{queue}/items", operation_id = "submit_items", tag = "items", security(("token" = ["queue:{queue}:submit"])), params(("queue" = String, Path)), request_body = SubmitRequest,
    responses(
        (status = 200, description = "What became of each.", body = SubmitAnswer),
        (status = 400, description = "The body cannot be read.", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "There is no such queue.", body = Problem, content_type = "application/problem+json"),
        (status = 413, description = "Too many items, or too large.", body = Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn submit(
    State(app): State<App>,
    _: NoQuery,
    reply: Reply,
    QueuePath(queue): QueuePath,
    headers: HeaderMap,
    within: Within,
    Wire(body): Wire<SubmitRequest>,
) -> Result<Response, Refused> {
    let count = body.items.len();
    StoreError::check_size("items", count, limits::BATCH_MAX)?;
    let wait = body.wait.map_or(Ok(Duration::ZERO), |wait| check_wait("wait", wait.into_domain("wait")?))?;
    let submitting = app.traces.as_ref().and_then(|traces| traces.submit(&within, &queue, count));
    let trace = submitting.as_ref().map(Submitting::trace).or_else(|| traces::from_headers(&headers));
    let (batch, refused) = aside(count * 64, || prepare(&queue, body.items, trace.map(Box::new)));
    let answers = if batch.is_empty() {
        find(&app, queue).await?;
        Vec::new()
    } else {
        app.broker.submit(&queue, batch, wait).await?
    };
    drop(submitting);
    // A queue that is not there is not there for any of them.
    if let Some(Err(refusal @ Refusal::QueueNotFound { .. })) = answers.first() {
        return Err(refusal.clone().into());
    }
    let mut broken = false;
    let items = merge(refused, answers, |_, answer| match answer {
        Ok(Stored::Answer(Answer::Submitted { id, created })) => Submitted::accepted(id, created),
        Ok(Stored::Answer(Answer::Replaced { id })) => Submitted::replaced(id),
        Err(refusal) => Submitted::refused(&refusal),
        Ok(_) => {
            broken = true;
            Submitted::default()
        }
    });
    if broken || items.len() != count {
        return Err(unexpected());
    }
    reply.with_long(&SubmitAnswer { items }, count)
}

/// What goes to the store, and for each element, why it does not. `trace`: of those that name none.
fn prepare(
    queue: &QueueName,
    items: Vec<NewItem>,
    trace: Option<Box<Trace>>,
) -> (Vec<Operation>, Vec<Option<Submitted>>) {
    let mut batch = Vec::with_capacity(items.len());
    let refused = items
        .into_iter()
        .map(|item| match Submission::try_from(item) {
            Ok(mut submission) => {
                submission.body.trace = submission.body.trace.or_else(|| trace.clone());
                batch.push(Operation::Submit { queue: queue.clone(), submission: Box::new(submission) });
                None
            }
            Err(refusal) => Some(Submitted::refused(&refusal)),
        })
        .collect();
    (batch, refused)
}
