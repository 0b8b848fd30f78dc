//! Submitting items.

use super::queues::find;
use super::{batch_results, unexpected};
use crate::app::App;
use crate::request::{DecodedBody, NoQuery, QueuePath, check_wait};
use crate::response::{ProblemResponse, Responder, run_blocking_if_large};
use crate::traces::{self, RequestSpan, SubmitSpan};
use axum::extract::State;
use axum::response::Response;
use http::HeaderMap;
use std::time::Duration;
use towline_api::{NewItem, SubmitAnswer, SubmitRequest, Submitted};
use towline_domain::change::Answer;
use towline_domain::{QueueName, Refusal, Submission, Trace, limits};
use towline_store::{Operation, OperationError, Reply, StoreError};

/// Submit items.
///
/// The response contains a result for each item, in the same order. A result with an `id` means that the item is durable. With
/// `wait`, items wait until a full queue has capacity for them.
#[utoipa::path(post, path = "/v1/queues/{queue}/items", operation_id = "submit_items", tag = "items", security(("token" = ["queue:{queue}:submit"])), params(("queue" = String, Path)), request_body = SubmitRequest,
    responses(
        (status = 200, description = "The result for each item.", body = SubmitAnswer),
        (status = 400, description = "The body is not valid."),
        (status = 413, description = "Too many items, or the body is too large."),
    ))]
pub(super) async fn submit(
    State(app): State<App>,
    _: NoQuery,
    respond: Responder,
    QueuePath(queue): QueuePath,
    headers: HeaderMap,
    request_span: RequestSpan,
    DecodedBody(body, memory): DecodedBody<SubmitRequest>,
) -> Result<Response, ProblemResponse> {
    let count = body.items.len();
    StoreError::check_size("items", count, limits::BATCH_MAX)?;
    let wait = body.wait.map_or(Ok(Duration::ZERO), |wait| check_wait("wait", wait.into_domain("wait")?))?;
    let span = app.traces.as_ref().and_then(|traces| traces.submit(&request_span, &queue, count));
    let trace = span.as_ref().map(SubmitSpan::trace).or_else(|| traces::of_headers(&headers));
    let (batch, invalid) =
        run_blocking_if_large(count * 64, || prepare(&queue, body.items, trace.map(Box::new)));
    let answers = if batch.is_empty() {
        find(&app, queue).await?;
        Vec::new()
    } else {
        app.broker.submit(&queue, batch, wait, || memory.wait()).await?
    };
    drop(span);
    // If the queue does not exist, every item is refused for this reason, so the whole request is.
    if let Some(Err(error @ OperationError::Refused(Refusal::QueueNotFound { .. }))) = answers.first() {
        return Err(error.clone().into());
    }
    let items = batch_results(invalid, answers, |_, answer| match answer {
        Ok(Reply::Answer(Answer::Submitted { id, created })) => Ok(Submitted::accepted(id, created)),
        Ok(Reply::Answer(Answer::Replaced { id })) => Ok(Submitted::replaced(id)),
        Ok(_) => Err(unexpected()),
        Err(error) => Ok(Submitted::refused(ProblemResponse::from(error).into_element_error())),
    })?;
    respond.with_many(&SubmitAnswer { items }, count)
}

/// The operations for the store, and for each item the refusal if it is not valid. `trace` applies to items without one.
fn prepare(
    queue: &QueueName,
    items: Vec<NewItem>,
    trace: Option<Box<Trace>>,
) -> (Vec<Operation>, Vec<Option<Submitted>>) {
    let mut batch = Vec::with_capacity(items.len());
    let invalid = items
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
    (batch, invalid)
}
