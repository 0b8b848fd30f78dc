//! Submitting items.

use super::queues::{create_if_absent, creates_queue, find};
use super::{batch_results, notes, unexpected};
use crate::app::App;
use crate::auth::Caller;
use crate::request::{DecodedBody, NoQuery, QueuePath, check_wait};
use crate::response::{ProblemResponse, Responder, run_blocking_if_large};
use crate::traces::{self, RequestSpan, SubmitSpan};
use axum::extract::State;
use axum::response::Response;
use http::header::LOCATION;
use http::{HeaderMap, HeaderValue, StatusCode};
use std::collections::BTreeMap;
use std::time::Duration;
use towline_api::{Element, NewItem, OneOrMany, SubmitAnswer, SubmitBody, SubmitRequest, Submitted};
use towline_domain::change::Answer;
use towline_domain::{DependsOn, QueueName, Refusal, Submission, Trace, limits};
use towline_store::{Operation, OperationError, Reply, StoreError};

/// Submit items.
///
/// The response contains a result for each item, in the same order. A result with an `id` means that the item is durable. With
/// `wait`, items wait until a full queue has capacity for them. An item without a list around it has the status of its own
/// result.
#[utoipa::path(post, path = "/v1/queues/{queue}/items", operation_id = "submit_items", tag = "items", security(("token" = ["queue:{queue}:submit"])), params(("queue" = String, Path)), request_body = SubmitRequest,
    responses(
        (status = 200, description = "The result for each item of a list. Or a single item existed already: it has the same idempotency key, or it was replaced.", body = SubmitAnswer),
        (status = 201, description = "The single item was created.", body = Submitted, headers(("location" = String, description = "The path of the item"))),
        (status = 400, description = "The body is not valid."),
        (status = 409, description = "The single item conflicts with another one, or the queue is closed."),
        (status = 413, description = "Too many items, or the body is too large."),
        (status = 422, description = "The single item does not match the schema of the queue."),
    ))]
pub(super) async fn submit(
    State(app): State<App>,
    (NoQuery, caller): (NoQuery, Caller),
    respond: Responder,
    QueuePath(queue): QueuePath,
    headers: HeaderMap,
    request_span: RequestSpan,
    DecodedBody(body, memory): DecodedBody<SubmitBody>,
) -> Result<Response, ProblemResponse> {
    let (items, single) = match body.items {
        OneOrMany::One(item) => (vec![Element(Ok(*item))], true),
        OneOrMany::Many(items) => (items, false),
    };
    let count = items.len();
    StoreError::check_size("items", count, limits::BATCH_MAX)?;
    let notes: Vec<String> = body.wait.iter().filter_map(|wait| wait.note("wait")).collect();
    let wait = body.wait.map_or(Ok(Duration::ZERO), |wait| check_wait("wait", wait.into_domain("wait")?))?;
    let span = app.traces.as_ref().and_then(|traces| traces.submit(&request_span, &queue, count));
    let trace = span.as_ref().map(SubmitSpan::trace).or_else(|| traces::of_headers(&headers));
    let (batch, invalid) =
        run_blocking_if_large(count * 64, || prepare(&queue, items, trace.map(Box::new), &caller));
    let awaited = awaited_groups(&batch);
    let answers = if batch.is_empty() {
        // Nothing is submitted, so no queue is created either.
        if !creates_queue(&app, &caller, &queue) {
            find(&app, queue).await?;
        }
        Vec::new()
    } else {
        create_if_absent(&app, &caller, &queue).await?;
        app.broker.submit(&queue, batch, wait, || memory.wait()).await?
    };
    drop(span);
    // If the queue does not exist, every item is refused for this reason, so the whole request is.
    if let Some(Err(error @ OperationError::Refused(Refusal::QueueNotFound { .. }))) = answers.first() {
        return Err(error.clone().into());
    }
    // After the submit: a group may be in the same batch. The items are durable, so notes that cannot be made are left out.
    let empty = notes::empty_groups(&app, awaited.values().map(String::as_str)).await;
    let empty = empty.unwrap_or_default();
    let noted = |index: usize, submitted: Submitted| {
        let note = awaited.get(&index).and_then(|group| empty.get(group)).cloned();
        Submitted { notes: note.into_iter().collect(), ..submitted }
    };
    let mut results = batch_results(invalid, answers, |index, answer| match answer {
        Ok(Reply::Answer(Answer::Submitted { id, created })) => {
            Ok(Ok(noted(index, Submitted::accepted(id, created))))
        }
        Ok(Reply::Answer(Answer::Replaced { id })) => Ok(Ok(noted(index, Submitted::replaced(id)))),
        Ok(_) => Err(unexpected()),
        Err(error) => Ok(Err(error.into())),
    })?;
    if single {
        let mut submitted = results.pop().ok_or_else(unexpected)??;
        submitted.notes.extend(notes);
        return respond_to_one(respond, submitted);
    }
    let refused = |problem: ProblemResponse| Submitted::refused(problem.into_element_error());
    let items = results.into_iter().map(|result| result.unwrap_or_else(refused)).collect();
    respond.with_many(&SubmitAnswer { items, notes }, count)
}

/// The groups that operations of a batch wait for without saying how many members these will have.
fn awaited_groups(batch: &[Operation]) -> BTreeMap<usize, String> {
    let awaited = |operation: &Operation| match operation {
        Operation::Submit { submission, .. } => match &submission.after.as_deref()?.on {
            DependsOn::Group { name, expect: 0 } => Some(name.clone()),
            _ => None,
        },
        _ => None,
    };
    let named = |(index, operation)| Some((index, awaited(operation)?));
    batch.iter().enumerate().filter_map(named).collect()
}

fn respond_to_one(respond: Responder, submitted: Submitted) -> Result<Response, ProblemResponse> {
    let location = submitted.id.as_ref().map(|id| format!("/v1/items/{id}"));
    let mut response = respond.with(&submitted)?;
    if submitted.created == Some(true) {
        *response.status_mut() = StatusCode::CREATED;
    }
    if let Some(location) = location.and_then(|path| HeaderValue::try_from(path).ok()) {
        response.headers_mut().insert(LOCATION, location);
    }
    Ok(response)
}

/// The operations for the store, and for each item the refusal if it is not valid. `trace` applies to items without one.
fn prepare(
    queue: &QueueName,
    items: Vec<Element<NewItem>>,
    trace: Option<Box<Trace>>,
    caller: &Caller,
) -> (Vec<Operation>, Vec<Option<Result<Submitted, ProblemResponse>>>) {
    let mut batch = Vec::with_capacity(items.len());
    let invalid = items
        .into_iter()
        .map(|Element(item)| {
            let checked = item.map_err(ProblemResponse::from).and_then(|item| {
                let submission = Submission::try_from(item)?;
                caller.check_group(submission.body.group.as_deref())?;
                Ok(submission)
            });
            match checked {
                Ok(mut submission) => {
                    submission.body.trace = submission.body.trace.or_else(|| trace.clone());
                    batch.push(Operation::Submit { queue: queue.clone(), submission: Box::new(submission) });
                    None
                }
                Err(problem) => Some(Err(problem)),
            }
        })
        .collect();
    (batch, invalid)
}
