//! Receiving items.

use crate::app::App;
use crate::auth::Caller;
use crate::consumers::ClientName;
use crate::request::{DecodedBody, NoQuery, QueuePath, check_wait};
use crate::response::{ProblemResponse, Responder};
use crate::traces::RequestSpan;
use axum::extract::State;
use axum::response::Response;
use std::time::Duration;
use towline_api::payload::Form;
use towline_api::{Code, ReceiveAnswer, ReceiveRequest, ReceivedItem, field_set};
use towline_domain::{FieldSet, QueueName, Refusal};

/// Receive items, each with a lease. With `wait`, wait for the first item.
#[utoipa::path(post, path = "/v1/queues/{queue}/receive", operation_id = "receive_items", tag = "items", security(("token" = ["queue:{queue}:receive"])), params(("queue" = String, Path)), request_body = ReceiveRequest,
    responses(
        (status = 200, description = "The state of the queue, and the items.", body = ReceiveAnswer),
        (status = 503, description = "The server is stopping or busy; try again."),
    ))]
pub(super) async fn receive(
    State(app): State<App>,
    _: NoQuery,
    respond: Responder,
    QueuePath(queue): QueuePath,
    (caller, client, request_span): (Caller, ClientName, RequestSpan),
    DecodedBody(body, memory): DecodedBody<ReceiveRequest>,
) -> Result<Response, ProblemResponse> {
    if app.is_stopping() {
        return Err(ProblemResponse::new(
            Code::Stopping,
            "the server is stopping and delivers no more items",
        ));
    }
    let Parsed { request, form, notes } = parse(queue.clone(), body)?;
    // A receive may wait for minutes. What it was decoded from must not take memory meanwhile.
    drop(memory);
    let since = app.traces.as_ref().map(|_| app.now());
    let receiving = app.consumers.begin(&queue, &caller, client, app.now());
    let received = app.broker.receive(request).await.inspect_err(|_| receiving.refused())?;
    let leases = received.items.iter().filter_map(|item| Some((item.head.id, item.head.lease()?)));
    receiving.received(leases, app.now());
    drop(receiving);
    if let (Some(traces), Some(since)) = (&app.traces, since) {
        traces.received(&request_span, &queue, &received.items, since);
    }
    let count = received.items.len();
    let items = received.items.into_iter().filter_map(|item| ReceivedItem::new(&queue, item));
    let items = items.map(|item| item.payload_as(form)).collect();
    let (status, throttle) = (received.queue.name(), received.throttle.as_ref());
    respond.with_many(&ReceiveAnswer::new(status, items, received.paused, throttle, app.now(), notes), count)
}

/// A request for items, parsed.
struct Parsed {
    request: towline_broker::ReceiveRequest,
    form: Form,
    notes: Vec<String>,
}

fn parse(queue: QueueName, body: ReceiveRequest) -> Result<Parsed, ProblemResponse> {
    let notes = body.wait.iter().filter_map(|wait| wait.note("wait")).collect();
    let max = body.max.unwrap_or(1);
    // The store checks numbers that fit.
    let max = u32::try_from(max).map_err(|_| Refusal::Invalid {
        what: "max",
        message: format!("{max} is out of range; use 1 to {}", towline_domain::limits::RECEIVE_MAX),
    })?;
    let form = body.payload_as.as_deref().map_or(Ok(Form::default()), Form::parse)?;
    let request = towline_broker::ReceiveRequest {
        queue,
        max,
        wait: body.wait.map_or(Ok(Duration::ZERO), |wait| check_wait("wait", wait.into_domain("wait")?))?,
        visibility: body.visibility_timeout.map(|span| span.into_domain("visibility_timeout")).transpose()?,
        fields: match &body.fields {
            None => FieldSet::ALL,
            Some(names) => field_set(names.iter().map(String::as_str))?,
        },
        make_buffers: body.create_output_buffers.unwrap_or(false),
    };
    Ok(Parsed { request, form, notes })
}
