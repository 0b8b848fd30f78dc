//! What happens, to whoever follows it: as server-sent events, over a WebSocket, or page by page.

mod socket;
mod wanted;

use crate::answer::Reply;
use crate::app::App;
use crate::auth::Caller;
use crate::query::{Query, invalid};
use crate::refuse::Refused;
use crate::sse;
use axum::extract::{Request, State};
use axum::response::Response;
use bytes::Bytes;
use futures::stream;
use http::HeaderMap;
use http::header::UPGRADE;
use std::pin::Pin;
use std::time::Duration;
use tokio::time::Sleep;
use towline_api::{Code, EventPage, EventShown, PAGE_DEFAULT, Problem};
use towline_broker::{Followed, Follower};
use towline_domain::{Millis, limits};
use towline_store::{EventCursor, Events, EventsFrom};
use wanted::Wanted;

/// The header with which a browser comes back.
const LAST_EVENT_ID: &str = "last-event-id";
/// Bytes of events sent as one, about.
const CHUNK_BYTES: usize = 64 << 10;

/// Follows what happens: server-sent events, or a WebSocket if the request asks to be upgraded. With `Accept:
/// application/json` one page of them. Events are hints; read what they name.
#[utoipa::path(get, path = "/v1/events", operation_id = "follow_events", tag = "events", security(("token" = ["queue:{queue of each item}:read"])),
    params(
        ("after" = Option<String>, Query, description = "The `id` of the last event that was seen; `oldest`: all that are kept; without it: what happens from now on. A `Last-Event-ID` in the headers comes first"),
        ("queue" = Option<Vec<String>>, Query, description = "Only of these queues, dead letters by where they failed, too. Repeatable"),
        ("kind" = Option<Vec<String>>, Query, description = "Only of these kinds, like `item.completed`, or `item.*` for all that begin so. Repeatable"),
        ("group" = Option<Vec<String>>, Query, description = "Only of members of these groups. Repeatable"),
        ("item" = Option<Vec<String>>, Query, description = "Only of these items. Repeatable"),
        ("limit" = Option<usize>, Query, description = "Of a page: look at so many events at most: 100, up to 1000", minimum = 1, maximum = 1000),
        ("for" = Option<String>, Query, description = "End after so long, like `30s`: when the follower goes away"),
    ),
    responses(
        (status = 200, description = "Events as they happen, or a page of them.", content((EventShown = "text/event-stream"), (EventPage = "application/json"))),
        (status = 101, description = "A WebSocket: each event as one text message."),
        (status = 400, description = "Refused.", body = Problem, content_type = "application/problem+json"),
        (status = 410, description = "What followed that event is not kept any more.", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "The server is stopping, or as many follow as may.", body = Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn follow(
    State(app): State<App>,
    caller: Caller,
    reply: Reply,
    mut query: Query,
    request: Request,
) -> Result<Response, Refused> {
    let from = from(&mut query, request.headers())?;
    let limit: Option<usize> = query.parse("limit")?;
    let span = query.span("for")?;
    let wanted = Wanted::of(&mut query, caller)?;
    query.end()?;
    if app.is_stopping() {
        return Err(Refused::new(Code::Stopping, "the server is stopping; follow again shortly"));
    }
    let upgrades = wants_socket(request.headers());
    if !upgrades && !sse::is_wanted(request.headers()) {
        return page(&app, reply, wanted, from, limit).await;
    }
    if limit.is_some() {
        return Err(invalid("limit", "it is for a page; ask for one with `Accept: application/json`"));
    }
    let Some(following) = app.broker.follow(from).await? else {
        let detail = format!("{} follow already, as many as may", limits::FOLLOWERS_MAX);
        return Err(Refused::new(Code::Busy, detail));
    };
    let follower = following.map_err(|ended| refused(&ended))?;
    let end = span.map(|Millis(span)| Box::pin(tokio::time::sleep(Duration::from_millis(span))));
    let reader = Reading { seen: follower.cursor().clone(), follower, wanted, quiet: quiet(), end };
    if upgrades {
        return socket::upgrade(app, reader, request).await;
    }
    let caller = reader.wanted.caller();
    let unwelcome = async move { caller.ended().await };
    Ok(sse::response(stream::unfold(Line::Begin(Box::new(reader)), Line::next), unwelcome))
}

/// Whatever else a client offers to speak (`h2c`), it is answered as if it had not.
fn wants_socket(headers: &HeaderMap) -> bool {
    let offered = headers.get_all(UPGRADE).iter().filter_map(|value| value.to_str().ok());
    offered.flat_map(|value| value.split(',')).any(|name| name.trim().eq_ignore_ascii_case("websocket"))
}

fn from(query: &mut Query, headers: &HeaderMap) -> Result<EventsFrom, Refused> {
    let given = query.one("after")?;
    let header = headers.get(LAST_EVENT_ID).map(|value| value.to_str().unwrap_or("?").to_owned());
    match header.filter(|header| !header.is_empty()).or(given).as_deref() {
        None | Some("now") => Ok(EventsFrom::Now),
        Some("oldest") => Ok(EventsFrom::Oldest),
        Some(text) => {
            let cursor = text.parse().map_err(|error| invalid("after", format!("{error}, or oldest")))?;
            Ok(EventsFrom::After(cursor))
        }
    }
}

/// Why nothing more comes.
fn refused(ended: &Followed) -> Refused {
    match ended {
        Followed::TooSlow => {
            let detail = "the reader was so far behind that events were not held for it any more; come back with the \
                          last id as `after`, and read faster";
            Refused::new(Code::TooSlow, detail)
        }
        Followed::Stopping => {
            Refused::new(Code::Stopping, "the server is stopping; come back with the last id as `after`")
        }
        Followed::Gone | Followed::Events(_) => {
            let detail = "what followed that event is not kept any more; list what matters anew, and follow from now on, \
                          or with after=oldest from the oldest that is kept";
            Refused::new(Code::EventsGone, detail)
        }
    }
}

async fn page(
    app: &App,
    reply: Reply,
    wanted: Wanted,
    from: EventsFrom,
    limit: Option<usize>,
) -> Result<Response, Refused> {
    let limit = limit.unwrap_or(PAGE_DEFAULT);
    if !(1..=limits::EVENTS_PAGE_MAX).contains(&limit) {
        return Err(invalid(
            "limit",
            format!("{limit} is out of range; use 1 to {}", limits::EVENTS_PAGE_MAX),
        ));
    }
    let mut seen = match &from {
        EventsFrom::After(cursor) => cursor.clone(),
        EventsFrom::Oldest | EventsFrom::Now => EventCursor::default(),
    };
    match app.broker.store().events(from, limit).await? {
        Events::Gone | Events::Elsewhere => Err(refused(&Followed::Gone)),
        Events::Page(page) => {
            let mut events = Vec::with_capacity(page.events.len());
            for event in &page.events {
                seen.pass(event.id);
                if wanted.wants(event) {
                    events.push(wanted::shown(event, &seen));
                }
            }
            reply.with(&EventPage { events, next: page.next.to_string(), more: page.more })
        }
    }
}

/// Somebody who follows, and what of it they are shown.
struct Reading {
    follower: Follower,
    wanted: Wanted,
    /// Behind everything that was shown or passed over.
    seen: EventCursor,
    /// Goes off when nothing was shown for a while, whatever was passed over.
    quiet: Pin<Box<Sleep>>,
    end: Option<Pin<Box<Sleep>>>,
}

fn quiet() -> Pin<Box<Sleep>> {
    Box::pin(tokio::time::sleep(sse::SIGN_OF_LIFE))
}

/// What comes next.
enum Next {
    Events(Vec<EventShown>),
    /// Nothing, for a while.
    Silence,
    Ended(Refused),
    /// It was asked for no longer.
    Over,
}

impl Reading {
    async fn next(&mut self) -> Next {
        let Reading { follower, quiet: silence, end, .. } = self;
        let over = async {
            match end {
                Some(end) => end.await,
                None => std::future::pending().await,
            }
        };
        let followed = tokio::select! {
            biased;
            () = over => return Next::Over,
            () = silence => {
                self.quiet = quiet();
                return Next::Silence;
            }
            followed = follower.next() => followed,
        };
        match followed {
            Ok(Followed::Events(events)) => {
                let mut shown = Vec::new();
                for event in events {
                    self.seen.pass(event.id);
                    if self.wanted.wants(&event) {
                        shown.push(wanted::shown(&event, &self.seen));
                    }
                }
                self.seen = self.follower.cursor().clone();
                if !shown.is_empty() {
                    self.quiet = quiet();
                }
                Next::Events(shown)
            }
            Ok(ended) => Next::Ended(refused(&ended)),
            Err(fault) => Next::Ended(fault.into()),
        }
    }

    /// Where to go on from; `None`: from the oldest.
    fn place(&self) -> Option<String> {
        Some(self.seen.to_string()).filter(|place| !place.is_empty())
    }
}

/// How far a stream of server-sent events has come.
enum Line {
    Begin(Box<Reading>),
    Next(Box<Reading>),
    /// Events that are not sent yet.
    Rest(Box<Reading>, std::vec::IntoIter<EventShown>),
    End,
}

impl Line {
    async fn next(self) -> Option<(Bytes, Line)> {
        let mut out = Vec::new();
        let mut reading = match self {
            Line::Begin(reading) => {
                // So that who is cut off before the first event comes back to where it began.
                sse::sign_of_life(&mut out, reading.place().as_deref());
                return Some((out.into(), Line::Next(reading)));
            }
            Line::Rest(reading, rest) => return Some(Line::some(reading, rest)),
            Line::Next(reading) => reading,
            Line::End => return None,
        };
        loop {
            match reading.next().await {
                Next::Events(events) if events.is_empty() => {}
                Next::Events(events) => return Some(Line::some(reading, events.into_iter())),
                Next::Silence => {
                    sse::sign_of_life(&mut out, reading.place().as_deref());
                    return Some((out.into(), Line::Next(reading)));
                }
                Next::Ended(refused) => {
                    sse::event(&mut out, None, "cut_off", &refused.problem());
                    return Some((out.into(), Line::End));
                }
                Next::Over => return None,
            }
        }
    }

    /// As many as are sent as one.
    fn some(reading: Box<Reading>, mut events: std::vec::IntoIter<EventShown>) -> (Bytes, Line) {
        let mut out = Vec::new();
        for event in events.by_ref() {
            sse::event(&mut out, Some(&event.id), &event.kind, &event);
            if out.len() >= CHUNK_BYTES {
                break;
            }
        }
        let next = if events.len() > 0 { Line::Rest(reading, events) } else { Line::Next(reading) };
        (out.into(), next)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use axum::extract::FromRequestParts;
    use std::sync::Arc;
    use towline_broker::{Broker, Sharing, SteadyClock};
    use towline_conformance::ReferenceStore;
    use towline_domain::{Policy, Schema};
    use towline_store::Operation;

    #[tokio::test(start_paused = true)]
    async fn what_a_filter_leaves_out_is_no_sign_of_life() {
        let clock = Arc::new(SteadyClock::new());
        let broker =
            Broker::start(Arc::new(ReferenceStore::new(clock.clone(), 1)), clock, None, Sharing::Alone);
        let follower = broker.follow(EventsFrom::Now).await.unwrap().unwrap().unwrap();
        let (mut asked, ()) = http::Request::get("/?queue=quiet").body(()).unwrap().into_parts();
        let mut query = Query::from_request_parts(&mut asked, &()).await.unwrap();
        let wanted = Wanted::of(&mut query, Caller::anybody()).unwrap();
        let begun = follower.cursor().clone();
        let mut reading = Reading { seen: begun.clone(), follower, wanted, quiet: quiet(), end: None };
        // Something happens far more often than a sign of life is due.
        let busy = tokio::spawn(async move {
            for number in 0..1000 {
                let queue = format!("busy-{number}").parse().unwrap();
                let (schema, policy) = (Box::new(Schema::default()), Box::new(Policy::default()));
                broker.update(vec![Operation::CreateQueue { queue, schema, policy }]).await.unwrap();
                tokio::time::sleep(sse::SIGN_OF_LIFE / 10).await;
            }
        });
        for _ in 0..3 {
            let mut passed = 0;
            loop {
                match reading.next().await {
                    Next::Events(events) => assert!(events.is_empty()),
                    Next::Silence => break,
                    Next::Ended(_) | Next::Over => panic!("it goes on"),
                }
                passed += 1;
                assert!(passed < 100, "no sign of life");
            }
            assert!(passed > 0);
        }
        assert_ne!(reading.place(), Some(begun.to_string()), "who comes back need not see it all again");
        busy.abort();
    }

    #[test]
    fn other_upgrades_are_not_heard() {
        let headers = |value: &'static str| HeaderMap::from_iter([(UPGRADE, value.parse().unwrap())]);
        assert!(!wants_socket(&HeaderMap::new()));
        assert!(!wants_socket(&headers("h2c")));
        assert!(wants_socket(&headers("websocket")) && wants_socket(&headers("h2c, WebSocket")));
    }
}
