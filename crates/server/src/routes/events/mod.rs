//! Events: as server-sent events, over a WebSocket, or page by page.

mod filter;
mod server_sent;
mod socket;
mod stream;

use crate::app::App;
use crate::auth::Caller;
use crate::request::{Query, invalid};
use crate::response::{ProblemResponse, Responder, sse};
use axum::extract::{Request, State};
use axum::response::Response;
use filter::EventFilter;
use futures::stream::unfold;
use http::HeaderMap;
use http::header::UPGRADE;
use server_sent::SseState;
use stream::EventStream;
use towline_api::{Code, EventPage, EventShown, PAGE_DEFAULT, PAGE_MAX};
use towline_broker::FollowError;
use towline_store::{EventCursor, Events, EventsFrom};

/// Browsers send it when they reconnect.
const LAST_EVENT_ID: &str = "last-event-id";

/// Follow events.
///
/// The response is a stream of server-sent events, or a WebSocket if the request asks for an upgrade, or one page with
/// `Accept: application/json`. Events are hints: read the current state of what they name.
#[utoipa::path(get, path = "/v1/events", operation_id = "follow_events", tag = "events", security(("token" = ["queue:{queue of each item}:read"])),
    params(
        ("cursor" = Option<String>, Query, description = "The `id` of the last event that the client has seen, `next` of the previous page, or `oldest`. Default: only new events. A `Last-Event-ID` header overrides it"),
        ("after" = Option<String>, Query, description = "Another name of `cursor`"),
        ("queue" = Option<Vec<String>>, Query, description = "Only events of these queues. Dead letters also match the queue in which they failed. Repeatable"),
        ("kind" = Option<Vec<String>>, Query, description = "Only events of these kinds, like `item.completed`, or `item.*` for a whole family. Repeatable"),
        ("group" = Option<Vec<String>>, Query, description = "Only events of items in these groups. Repeatable"),
        ("item" = Option<Vec<String>>, Query, description = "Only events of these items. Repeatable"),
        ("limit" = Option<usize>, Query, description = "Only for a page: maximum number of events to look at, up to 1000. Default: 100", minimum = 1, maximum = 1000),
        ("for" = Option<String>, Query, description = "End the stream after this time, like `30s`. Default: when the client disconnects"),
    ),
    responses(
        (status = 200, description = "A stream, or a page.", content((EventShown = "text/event-stream"), (EventPage = "application/json"))),
        (status = 101, description = "A WebSocket. Each event is one text message."),
        (status = 410, description = "The events after this one are no longer available."),
        (status = 503, description = "The server is stopping, or the maximum number of followers is reached."),
    ))]
pub(super) async fn follow(
    State(app): State<App>,
    caller: Caller,
    respond: Responder,
    mut query: Query,
    request: Request,
) -> Result<Response, ProblemResponse> {
    let from = from(&mut query, request.headers())?;
    let limit: Option<usize> = query.parse("limit")?;
    let span = query.span("for")?;
    let filter = EventFilter::parse(&mut query, caller)?;
    query.end()?;
    if app.is_stopping() {
        return Err(ProblemResponse::new(Code::Stopping, "the server is stopping; try again shortly"));
    }
    let is_socket = wants_socket(request.headers());
    if !is_socket && !sse::is_accepted(request.headers()) {
        return page(&app, respond, filter, from, limit).await;
    }
    if limit.is_some() {
        return Err(invalid(
            "limit",
            "only pages have a limit; request a page with `Accept: application/json`",
        ));
    }
    let follower = app.broker.follow(from).await.map_err(problem)?;
    let stream = EventStream::new(follower, filter, span);
    if is_socket {
        return socket::upgrade(app, stream, request).await;
    }
    let caller = stream.filter().caller();
    let revoked = async move { caller.ended().await };
    Ok(sse::response(unfold(SseState::Start(Box::new(stream)), SseState::next), revoked))
}

/// Whether the client asks for a WebSocket. Other upgrades, like `h2c`, are ignored.
fn wants_socket(headers: &HeaderMap) -> bool {
    let offered = headers.get_all(UPGRADE).iter().filter_map(|value| value.to_str().ok());
    offered.flat_map(|value| value.split(',')).any(|name| name.trim().eq_ignore_ascii_case("websocket"))
}

fn from(query: &mut Query, headers: &HeaderMap) -> Result<EventsFrom, ProblemResponse> {
    let given = match (query.one("cursor")?, query.one("after")?) {
        (Some(_), Some(_)) => {
            return Err(invalid("cursor", "`after` is also given, which means the same; choose one"));
        }
        (cursor, after) => cursor.or(after),
    };
    let header = headers.get(LAST_EVENT_ID).map(|value| value.to_str().unwrap_or("?").to_owned());
    match header.filter(|header| !header.is_empty()).or(given).as_deref() {
        None | Some("now") => Ok(EventsFrom::Now),
        Some("oldest") => Ok(EventsFrom::Oldest),
        Some(text) => {
            let cursor = text.parse().map_err(|error| invalid("cursor", format!("{error}, or oldest")))?;
            Ok(EventsFrom::After(cursor))
        }
    }
}

/// Why a stream ends.
fn problem(ended: FollowError) -> ProblemResponse {
    let code = match ended {
        FollowError::TooSlow => Code::TooSlow,
        FollowError::Stopping => Code::Stopping,
        FollowError::Gone => Code::EventsGone,
        FollowError::TooMany(_) => Code::Busy,
        FollowError::Store(fault) => return fault.into(),
    };
    ProblemResponse::new(code, ended.to_string())
}

async fn page(
    app: &App,
    respond: Responder,
    filter: EventFilter,
    from: EventsFrom,
    limit: Option<usize>,
) -> Result<Response, ProblemResponse> {
    let limit = limit.unwrap_or(PAGE_DEFAULT);
    if !(1..=PAGE_MAX).contains(&limit) {
        return Err(invalid("limit", format!("{limit} is out of range; use 1 to {PAGE_MAX}")));
    }
    let mut seen = match &from {
        EventsFrom::After(cursor) => cursor.clone(),
        EventsFrom::Oldest | EventsFrom::Now => EventCursor::default(),
    };
    match app.broker.store().events(from, limit).await? {
        Events::Gone | Events::Elsewhere => Err(problem(FollowError::Gone)),
        Events::Page(page) => {
            let mut events = Vec::with_capacity(page.events.len());
            for event in &page.events {
                seen.pass(event.id);
                if filter.matches(event) {
                    events.push(filter::describe(event, &seen));
                }
            }
            respond.with(&EventPage { events, next: page.next.to_string(), more: page.more })
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn only_a_websocket_upgrade_is_recognized() {
        let headers = |value: &'static str| HeaderMap::from_iter([(UPGRADE, value.parse().unwrap())]);
        assert!(!wants_socket(&HeaderMap::new()));
        assert!(!wants_socket(&headers("h2c")));
        assert!(wants_socket(&headers("websocket")) && wants_socket(&headers("h2c, WebSocket")));
    }
}
