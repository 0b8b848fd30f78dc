//! Subscribers receive what is published, and slow subscribers take a bounded amount of memory.
#![allow(clippy::unwrap_used, reason = "tests")]

use futures::FutureExt;
use std::sync::Arc;
use tokio::task::unconstrained;
use towline_broker::{Broker, Sharing, SteadyClock, Subscription, TopicEvent};
use towline_conformance::ReferenceStore;
use towline_domain::{QueueName, limits};

fn broker() -> Broker {
    let clock = Arc::new(SteadyClock::new());
    Broker::start(Arc::new(ReferenceStore::new(clock.clone(), 7)), clock, None, Sharing::Alone)
}

fn topic(number: usize) -> QueueName {
    format!("topic-{number}").parse().unwrap()
}

/// What a subscriber can receive without waiting: bytes, messages, and how many it missed.
fn drain(subscription: &mut Subscription) -> (usize, u64, u64) {
    let (mut bytes, mut messages, mut missed) = (0, 0, 0);
    while let Some(event) = unconstrained(subscription.next()).now_or_never() {
        match event.unwrap() {
            TopicEvent::Message(text) => (bytes, messages) = (bytes + text.len(), messages + 1),
            TopicEvent::Missed(count) => missed += count,
        }
    }
    (bytes, messages, missed)
}

#[tokio::test]
async fn messages_held_for_slow_subscribers_are_bounded() {
    const TOPICS: usize = 40;
    let (broker, each) = (broker(), limits::TOPIC_BEHIND_MAX);
    let mut slow: Vec<_> = (0..TOPICS).map(|number| broker.subscribe(&topic(number)).unwrap()).collect();
    let mut fast = broker.subscribe(&topic(TOPICS)).unwrap();
    let message = "x".repeat(limits::TOPIC_MESSAGE_BYTES_MAX);
    assert!(TOPICS * each * message.len() > 2 * limits::TOPICS_BYTES_MAX);
    for round in 0..each {
        for number in 0..TOPICS {
            assert_eq!(broker.publish(&topic(number), &message).unwrap(), 1);
        }
        // A fast subscriber misses nothing.
        let text = format!("{round}");
        broker.publish(&topic(TOPICS), &text).unwrap();
        assert_eq!(fast.next().await, Some(TopicEvent::Message(text.into())));
    }
    let mut held = 0;
    for subscription in &mut slow {
        let (bytes, messages, missed) = drain(subscription);
        assert_eq!(messages + missed, each as u64, "each is received or counted as missed");
        assert!(missed > 0);
        held += bytes;
    }
    assert!(held <= limits::TOPICS_BYTES_MAX, "{held} bytes were held");
    assert!(held > limits::TOPICS_BYTES_MAX / 2, "{held} bytes were held");
    // New messages are held again.
    broker.publish(&topic(0), "again").unwrap();
    assert_eq!(slow[0].next().await, Some(TopicEvent::Message("again".into())));
}

#[tokio::test]
async fn empty_messages_are_bounded_by_number() {
    let broker = broker();
    let mut slow = broker.subscribe(&topic(0)).unwrap();
    let mut fast = broker.subscribe(&topic(1)).unwrap();
    broker.publish(&topic(0), "early").unwrap();
    for _ in 0..1 << 16 {
        broker.publish(&topic(1), "").unwrap();
        assert_eq!(fast.next().await, Some(TopicEvent::Message("".into())));
    }
    assert_eq!(drain(&mut slow), (0, 0, 1));
}
