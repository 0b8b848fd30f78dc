//! An event stream of one client: the events that match its filter, keep-alives, and its end.

use super::filter::{EventFilter, describe};
use super::problem;
use crate::response::ProblemResponse;
use crate::response::sse::KEEP_ALIVE;
use std::pin::Pin;
use std::time::Duration;
use tokio::time::Sleep;
use towline_api::EventShown;
use towline_broker::Follower;
use towline_domain::Millis;
use towline_store::EventCursor;

/// The events that match the filter of one client.
pub(super) struct EventStream {
    follower: Follower,
    filter: EventFilter,
    /// The position after all events that were sent or filtered out.
    seen: EventCursor,
    /// Elapses when nothing was sent for a while, even if events were filtered out.
    idle: Pin<Box<Sleep>>,
    end: Option<Pin<Box<Sleep>>>,
}

fn idle_timer() -> Pin<Box<Sleep>> {
    Box::pin(tokio::time::sleep(KEEP_ALIVE))
}

pub(super) enum StreamStep {
    Events(Vec<EventShown>),
    /// Nothing was sent for a while.
    Idle,
    Ended(ProblemResponse),
    /// The time that the client asked for is over.
    TimeUp,
}

impl EventStream {
    pub(super) fn new(follower: Follower, filter: EventFilter, time: Option<Millis>) -> EventStream {
        let end = time.map(|Millis(ms)| Box::pin(tokio::time::sleep(Duration::from_millis(ms))));
        EventStream { seen: follower.cursor().clone(), follower, filter, idle: idle_timer(), end }
    }

    pub(super) fn filter(&self) -> &EventFilter {
        &self.filter
    }

    pub(super) async fn next(&mut self) -> StreamStep {
        let EventStream { follower, idle, end, .. } = self;
        let time_up = async {
            match end {
                Some(end) => end.await,
                None => std::future::pending().await,
            }
        };
        let followed = tokio::select! {
            biased;
            () = time_up => return StreamStep::TimeUp,
            () = idle => {
                self.idle = idle_timer();
                return StreamStep::Idle;
            }
            followed = follower.next() => followed,
        };
        match followed {
            Ok(events) => {
                let mut matching = Vec::new();
                for event in events {
                    self.seen.pass(event.id);
                    if self.filter.matches(&event) {
                        matching.push(describe(&event, &self.seen));
                    }
                }
                self.seen = self.follower.cursor().clone();
                if !matching.is_empty() {
                    self.idle = idle_timer();
                }
                StreamStep::Events(matching)
            }
            Err(ended) => StreamStep::Ended(problem(ended)),
        }
    }

    /// The cursor from which a client can resume. `None`: from the oldest event.
    pub(super) fn cursor(&self) -> Option<String> {
        Some(self.seen.to_string()).filter(|cursor| !cursor.is_empty())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::auth::Caller;
    use crate::request::Query;
    use axum::extract::FromRequestParts;
    use std::sync::Arc;
    use towline_broker::{Broker, Sharing, SteadyClock};
    use towline_conformance::ReferenceStore;
    use towline_domain::{Policy, Schema};
    use towline_store::{EventsFrom, Operation};

    #[tokio::test(start_paused = true)]
    async fn filtered_events_do_not_replace_keep_alives() {
        let clock = Arc::new(SteadyClock::new());
        let broker =
            Broker::start(Arc::new(ReferenceStore::new(clock.clone(), 1)), clock, None, Sharing::Alone);
        let follower = broker.follow(EventsFrom::Now).await.unwrap();
        let (mut parts, ()) = http::Request::get("/?queue=quiet").body(()).unwrap().into_parts();
        let mut query = Query::from_request_parts(&mut parts, &()).await.unwrap();
        let filter = EventFilter::parse(&mut query, Caller::without_token()).unwrap();
        let start = follower.cursor().to_string();
        let mut stream = EventStream::new(follower, filter, None);
        // Events happen far more often than a keep-alive is due.
        let busy = tokio::spawn(async move {
            for number in 0..1000 {
                let queue = format!("busy-{number}").parse().unwrap();
                let (schema, policy) = (Box::new(Schema::default()), Box::new(Policy::default()));
                broker.update(vec![Operation::CreateQueue { queue, schema, policy }]).await.unwrap();
                tokio::time::sleep(KEEP_ALIVE / 10).await;
            }
        });
        for _ in 0..3 {
            let mut passed = 0;
            loop {
                match stream.next().await {
                    StreamStep::Events(events) => assert!(events.is_empty()),
                    StreamStep::Idle => break,
                    StreamStep::Ended(_) | StreamStep::TimeUp => panic!("the stream continues"),
                }
                passed += 1;
                assert!(passed < 100, "no keep-alive");
            }
            assert!(passed > 0);
        }
        assert_ne!(stream.cursor(), Some(start), "a client that reconnects skips the filtered events");
        busy.abort();
    }
}
