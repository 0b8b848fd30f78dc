//! What is published is heard by those who listen, and those who do not cost a bounded amount.
#![allow(clippy::unwrap_used, reason = "tests")]

use futures::FutureExt;
use std::sync::Arc;
use tokio::task::unconstrained;
use towline_broker::{Broker, Sharing, SteadyClock, Subscription, Told};
use towline_conformance::ReferenceStore;
use towline_domain::{QueueName, limits};

fn broker() -> Broker {
    let clock = Arc::new(SteadyClock::new());
    Broker::start(Arc::new(ReferenceStore::new(clock.clone(), 7)), clock, None, Sharing::Alone)
}

fn topic(number: usize) -> QueueName {
    format!("topic-{number}").parse().unwrap()
}

/// All that it can hear without waiting: bytes, messages, and how many it missed.
fn heard(subscription: &mut Subscription) -> (usize, u64, u64) {
    let (mut bytes, mut messages, mut missed) = (0, 0, 0);
    while let Some(told) = unconstrained(subscription.next()).now_or_never() {
        match told.unwrap() {
            Told::Message(text) => (bytes, messages) = (bytes + text.len(), messages + 1),
            Told::Missed(count) => missed += count,
        }
    }
    (bytes, messages, missed)
}

#[tokio::test]
async fn those_who_never_listen_are_held_a_bounded_amount_together() {
    const TOPICS: usize = 40;
    let (broker, each) = (broker(), limits::TOPIC_BEHIND_MAX);
    let mut deaf: Vec<_> = (0..TOPICS).map(|number| broker.subscribe(&topic(number)).unwrap()).collect();
    let mut keen = broker.subscribe(&topic(TOPICS)).unwrap();
    let message = "x".repeat(limits::TOPIC_MESSAGE_BYTES_MAX);
    assert!(TOPICS * each * message.len() > 2 * limits::TOPICS_BYTES_MAX);
    for round in 0..each {
        for number in 0..TOPICS {
            assert_eq!(broker.publish(&topic(number), &message).unwrap(), 1);
        }
        // Who listens hears everything.
        let said = format!("{round}");
        broker.publish(&topic(TOPICS), &said).unwrap();
        assert_eq!(keen.next().await, Some(Told::Message(said.into())));
    }
    let mut throttle = 0;
    for subscription in &mut deaf {
        let (bytes, messages, missed) = heard(subscription);
        assert_eq!(messages + missed, each as u64, "each is heard, or counted");
        assert!(missed > 0);
        throttle += bytes;
    }
    assert!(throttle <= limits::TOPICS_BYTES_MAX, "{throttle} bytes were throttle");
    assert!(throttle > limits::TOPICS_BYTES_MAX / 2, "{throttle} bytes were throttle");
    // There is room again.
    broker.publish(&topic(0), "again").unwrap();
    assert_eq!(deaf[0].next().await, Some(Told::Message("again".into())));
}

#[tokio::test]
async fn messages_without_a_byte_are_counted_too() {
    let broker = broker();
    let mut slow = broker.subscribe(&topic(0)).unwrap();
    let mut keen = broker.subscribe(&topic(1)).unwrap();
    broker.publish(&topic(0), "early").unwrap();
    for _ in 0..1 << 16 {
        broker.publish(&topic(1), "").unwrap();
        assert_eq!(keen.next().await, Some(Told::Message("".into())));
    }
    assert_eq!(heard(&mut slow), (0, 0, 1));
}
