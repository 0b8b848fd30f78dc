//! Receiving.

use crate::answer::Reply;
use crate::app::App;
use crate::body::Wire;
use crate::path::QueuePath;
use crate::query::NoQuery;
use crate::refuse::Refused;
use crate::traces::Within;
use axum::extract::State;
use axum::response::Response;
use std::time::Duration;
use towline_api::{Code, Problem, ReceiveAnswer, ReceiveRequest, ReceivedItem, WAIT_MAX, field_set};
use towline_domain::{FieldSet, Millis, Refusal};

/// A span that a caller may wait.
pub(super) fn check_wait(what: &'static str, wait: Millis) -> Result<Duration, Refused> {
    if wait > WAIT_MAX {
        let message = format!("{wait} is longer than {WAIT_MAX}; call again to wait longer");
        return Err(Refusal::Invalid { what, message }.into());
    }
    Ok(Duration::from_millis(wait.0))
}

/// Receives items, each with a lease; with `wait`, waits for a first one.
#[utoipa::path(post, path = "/v1/queues/{queue}/receive", operation_id = "receive_items", tag = "items", security(("token" = ["queue:{queue}:receive"])), params(("queue" = String, Path)), request_body = ReceiveRequest,
    responses(
        (status = 200, description = "The queue's state, and items if there are any.", body = ReceiveAnswer),
        (status = 400, description = "Refused.", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "There is no such queue.", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "The server is stopping or busy; try again.", body = Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn receive(
    State(app): State<App>,
    _: NoQuery,
    reply: Reply,
    QueuePath(queue): QueuePath,
    within: Within,
    Wire(body): Wire<ReceiveRequest>,
) -> Result<Response, Refused> {
    if app.is_stopping() {
        return Err(Refused::new(Code::Stopping, "the server is stopping and gives nothing out any more"));
    }
    let max = body.max.unwrap_or(1);
    // Out of any range is out of the store's too.
    let max = u32::try_from(max).map_err(|_| Refusal::Invalid {
        what: "max",
        message: format!("{max} is out of range; use 1 to {}", towline_domain::limits::RECEIVE_MAX),
    })?;
    let request = towline_broker::ReceiveRequest {
        queue: queue.clone(),
        max,
        wait: body.wait.map_or(Ok(Duration::ZERO), |wait| check_wait("wait", wait.into_domain("wait")?))?,
        visibility: body.visibility_timeout.map(|span| span.into_domain("visibility_timeout")).transpose()?,
        fields: match &body.fields {
            None => FieldSet::ALL,
            Some(names) => field_set(names.iter().map(String::as_str))?,
        },
        make_buffers: body.create_output_buffers.unwrap_or(false),
    };
    let since = app.traces.as_ref().map(|_| app.now());
    let received = app.broker.receive(request).await??;
    if let (Some(traces), Some(since)) = (&app.traces, since) {
        traces.received(&within, &queue, &received.items, since);
    }
    let count = received.items.len();
    let items = received.items.into_iter().filter_map(|item| ReceivedItem::new(&queue, item)).collect();
    reply.with_long(&ReceiveAnswer { status: received.queue.name().to_owned(), items }, count)
}
