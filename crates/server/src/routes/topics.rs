//! Topics: messages to the current subscribers of this server. They are not stored.

use crate::app::App;
use crate::auth::Caller;
use crate::request::{DecodedBody, NoQuery, Query, TopicPath};
use crate::response::{ProblemResponse, Responder, sse};
use axum::extract::State;
use axum::response::Response;
use bytes::Bytes;
use futures::stream;
use serde::Serialize;
use std::pin::Pin;
use std::time::Duration;
use tokio::time::Sleep;
use towline_api::{Code, CutOff, Published, Span, TopicMessage};
use towline_broker::{Subscription, TopicEvent};

/// Publish a message to the current subscribers of this server. It is not stored.
#[utoipa::path(post, path = "/v1/topics/{topic}", operation_id = "publish", tag = "topics", security(("token" = ["topic:{topic}:publish"])), params(("topic" = String, Path)), request_body = TopicMessage, responses(
    (status = 200, description = "The number of subscribers that were sent the message.", body = Published),
))]
pub(super) async fn publish(
    State(app): State<App>,
    _: NoQuery,
    respond: Responder,
    TopicPath(topic): TopicPath,
    DecodedBody(body, ..): DecodedBody<TopicMessage>,
) -> Result<Response, ProblemResponse> {
    respond.with(&Published { subscribers: app.broker.publish(&topic, &body.message)? })
}

/// Subscribe to a topic.
///
/// The response is a stream of server-sent events with the name `message`. The subscription starts with the first line of the
/// response. If the client reads too slowly, a last event with the name `cut_off` says how many messages it missed.
#[utoipa::path(get, path = "/v1/topics/{topic}", operation_id = "subscribe", tag = "topics", security(("token" = ["topic:{topic}:subscribe"])),
    params(
        ("topic" = String, Path),
        ("for" = Option<Span>, Query, description = "End the stream after this time. Default: when the client disconnects"),
    ),
    responses(
        (status = 200, description = "The messages.", content((TopicMessage = "text/event-stream"))),
        (status = 503, description = "The server is stopping."),
        (status = 507, description = "The maximum number of subscribers is reached."),
    ))]
pub(super) async fn subscribe(
    State(app): State<App>,
    caller: Caller,
    TopicPath(topic): TopicPath,
    mut query: Query,
) -> Result<Response, ProblemResponse> {
    let span = query.span("for")?;
    query.end()?;
    if app.is_stopping() {
        return Err(ProblemResponse::new(Code::Stopping, "the server is stopping; subscribe again shortly"));
    }
    let subscription = app.broker.subscribe(&topic)?;
    let end = span.map(|span| Box::pin(tokio::time::sleep(Duration::from_millis(span.0))));
    let start = Some(SubscriberStream { subscription, end, started: false });
    let events = stream::unfold(start, |stream| async move { stream?.next().await });
    Ok(sse::response(events, async move { caller.ended().await }))
}

struct SubscriberStream {
    subscription: Subscription,
    end: Option<Pin<Box<Sleep>>>,
    started: bool,
}

impl SubscriberStream {
    /// The next bytes of the response, and the stream unless it ends.
    async fn next(mut self) -> Option<(Bytes, Option<SubscriberStream>)> {
        if !self.started {
            self.started = true;
            return Some((Bytes::from_static(b": listening\n\n"), Some(self)));
        }
        let time_up = async {
            match &mut self.end {
                Some(end) => end.as_mut().await,
                None => std::future::pending().await,
            }
        };
        let received = tokio::select! {
            received = self.subscription.next() => received?,
            () = tokio::time::sleep(sse::KEEP_ALIVE) => {
                return Some((Bytes::from_static(b": still here\n\n"), Some(self)));
            }
            () = time_up => return None,
        };
        Some(match received {
            TopicEvent::Message(message) => {
                (event("message", &TopicMessage { message: message.to_string() }), Some(self))
            }
            TopicEvent::Missed(missed) => (event("cut_off", &CutOff { missed }), None),
        })
    }
}

fn event(name: &str, data: &impl Serialize) -> Bytes {
    let mut out = Vec::new();
    sse::event(&mut out, None, name, data);
    out.into()
}
