//! Topics: what is published is told to everybody who listens at this server, at that moment.

use crate::answer::Reply;
use crate::app::App;
use crate::auth::Caller;
use crate::body::Wire;
use crate::path::TopicPath;
use crate::query::{NoQuery, Query};
use crate::refuse::Refused;
use crate::sse;
use axum::extract::State;
use axum::response::Response;
use bytes::Bytes;
use futures::stream;
use serde::Serialize;
use std::pin::Pin;
use std::time::Duration;
use tokio::time::Sleep;
use towline_api::{Code, CutOff, Problem, Published, Span, TopicMessage};
use towline_broker::{Subscription, Told};

/// Tells everybody who listens at this server now. Nothing is kept.
#[utoipa::path(post, path = "/v1/topics/{topic}", operation_id = "publish", tag = "topics", security(("token" = ["topic:publish"])), params(("topic" = String, Path)), request_body = TopicMessage, responses(
    (status = 200, description = "How many listened.", body = Published),
    (status = 400, description = "Refused.", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn publish(
    State(app): State<App>,
    _: NoQuery,
    reply: Reply,
    TopicPath(topic): TopicPath,
    Wire(body): Wire<TopicMessage>,
) -> Result<Response, Refused> {
    reply.with(&Published { listeners: app.broker.publish(&topic, &body.message)? })
}

/// Listens, from the first line of the answer on: server-sent events named `message`. Whoever reads too slowly is told with a
/// last one named `cut_off` how many went by.
#[utoipa::path(get, path = "/v1/topics/{topic}", operation_id = "subscribe", tag = "topics", security(("token" = ["topic:subscribe"])),
    params(
        ("topic" = String, Path),
        ("for" = Option<Span>, Query, description = "Ends after so long: when the listener goes away"),
    ),
    responses(
        (status = 200, description = "Events.", content((TopicMessage = "text/event-stream"))),
        (status = 400, description = "Refused.", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "The server is stopping.", body = Problem, content_type = "application/problem+json"),
        (status = 507, description = "As many listen as may.", body = Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn subscribe(
    State(app): State<App>,
    caller: Caller,
    TopicPath(topic): TopicPath,
    mut query: Query,
) -> Result<Response, Refused> {
    let span = query.span("for")?;
    query.end()?;
    if app.is_stopping() {
        return Err(Refused::new(Code::Stopping, "the server is stopping; listen again shortly"));
    }
    let subscription = app.broker.subscribe(&topic)?;
    let end = span.map(|span| Box::pin(tokio::time::sleep(Duration::from_millis(span.0))));
    let begin = Some(Ear { subscription, end, begun: false });
    let events = stream::unfold(begin, |ear| async move { ear?.hear().await });
    Ok(sse::response(events, async move { caller.ended().await }))
}

struct Ear {
    subscription: Subscription,
    end: Option<Pin<Box<Sleep>>>,
    begun: bool,
}

impl Ear {
    /// What to say next, and whether to go on.
    async fn hear(mut self) -> Option<(Bytes, Option<Ear>)> {
        if !self.begun {
            self.begun = true;
            return Some((Bytes::from_static(b": listening\n\n"), Some(self)));
        }
        let over = async {
            match &mut self.end {
                Some(end) => end.as_mut().await,
                None => std::future::pending().await,
            }
        };
        let told = tokio::select! {
            told = self.subscription.next() => told?,
            () = tokio::time::sleep(sse::SIGN_OF_LIFE) => {
                return Some((Bytes::from_static(b": still here\n\n"), Some(self)));
            }
            () = over => return None,
        };
        Some(match told {
            Told::Message(message) => {
                (event("message", &TopicMessage { message: message.to_string() }), Some(self))
            }
            Told::Missed(missed) => (event("cut_off", &CutOff { missed }), None),
        })
    }
}

/// As JSON, in which no line ends: what was published is what is heard.
fn event(name: &str, data: &impl Serialize) -> Bytes {
    // Our own words always have a JSON form.
    let data = serde_json::to_string(data).unwrap_or_default();
    format!("event: {name}\ndata: {data}\n\n").into()
}
