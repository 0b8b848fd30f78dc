//! Submits that wait for room in a full queue.
#![allow(clippy::unwrap_used, reason = "tests")]

mod forgetful;

use forgetful::{Forgetful, forgetful};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use towline_broker::{Broker, ReceiveRequest, Sharing, SteadyClock};
use towline_conformance::{InterceptedStore, ReferenceStore};
use towline_domain::change::Answer;
use towline_domain::{FieldSet, ItemId, Policy, QueueName, Refusal, Schema, Submission};
use towline_store::{Answered, Filter, Operation, Reply, Store as _};

const SOON: Duration = Duration::from_secs(60);

fn queue() -> QueueName {
    "jobs".parse().unwrap()
}

fn submission() -> Operation {
    Operation::Submit { queue: queue(), submission: Box::new(Submission::default()) }
}

/// A queue with room for so many.
async fn full_at(depth: u64) -> Broker {
    on(depth).await.0
}

async fn on(depth: u64) -> (Broker, Arc<InterceptedStore<Forgetful>>) {
    let clock = Arc::new(SteadyClock::new());
    let store = Arc::new(forgetful(ReferenceStore::new(clock.clone(), 1)));
    let broker = Broker::start(store.clone(), clock, None, Sharing::Alone);
    let policy = Policy { depth_limit: Some(depth), ..Policy::default() };
    let create = Operation::CreateQueue {
        queue: queue(),
        schema: Box::new(Schema::default()),
        policy: Box::new(policy),
    };
    broker.update(vec![create]).await.unwrap().pop().unwrap().unwrap();
    (broker, store)
}

fn submit(broker: &Broker, count: usize, wait: Duration) -> JoinHandle<Vec<Answered>> {
    let broker = broker.clone();
    let batch = (0..count).map(|_| submission()).collect();
    tokio::spawn(async move { broker.submit(&queue(), batch, wait, || Some(())).await.unwrap() })
}

fn ids(answers: &[Answered]) -> Vec<ItemId> {
    let id = |answer: &Answered| match answer {
        Ok(Reply::Answer(Answer::Submitted { id, created: true })) => *id,
        other => panic!("{other:?}"),
    };
    answers.iter().map(id).collect()
}

async fn receive(broker: &Broker) -> Option<ItemId> {
    let request = ReceiveRequest {
        queue: queue(),
        max: 1,
        wait: SOON,
        visibility: None,
        fields: FieldSet::NONE,
        make_buffers: false,
    };
    broker.receive(request).await.unwrap().unwrap().items.first().map(|item| item.head.id)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receive_makes_room_for_one() {
    let broker = full_at(1).await;
    let first = ids(&submit(&broker, 1, Duration::ZERO).await.unwrap());
    let waiting = submit(&broker, 1, SOON);
    assert_eq!(receive(&broker).await, Some(first[0]));
    let second = ids(&waiting.await.unwrap());
    assert_eq!(receive(&broker).await, Some(second[0]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_batch_gets_in_piece_by_piece_and_in_order() {
    let broker = full_at(2).await;
    let waiting = submit(&broker, 7, SOON);
    let mut given = Vec::new();
    for _ in 0..7 {
        given.extend(receive(&broker).await);
    }
    assert_eq!(ids(&waiting.await.unwrap()), given);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_wait_and_all_of_them_get_in() {
    let broker = full_at(3).await;
    let waiting: Vec<_> = (0..60).map(|n| submit(&broker, 1 + n % 3, SOON)).collect();
    let mut given = Vec::new();
    for _ in 0..120 {
        given.extend(receive(&broker).await);
    }
    let mut submitted = Vec::new();
    for waiting in waiting {
        submitted.extend(ids(&waiting.await.unwrap()));
    }
    given.sort_unstable();
    submitted.sort_unstable();
    assert_eq!(given, submitted);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_the_wait_is_over_it_is_refused_as_it_would_be_at_once() {
    let broker = full_at(1).await;
    let answers = submit(&broker, 3, Duration::from_millis(30)).await.unwrap();
    ids(&answers[..1]);
    for answer in &answers[1..] {
        assert!(matches!(answer, Err(Refusal::QueueFull { depth: 1, limit: 1, .. })), "{answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelling_and_raising_the_limit_make_room_and_closing_is_told() {
    let broker = full_at(1).await;
    let first = ids(&submit(&broker, 1, Duration::ZERO).await.unwrap());
    let waiting = submit(&broker, 1, SOON);
    let cancel = Operation::Cancel { id: first[0], reason: String::new() };
    broker.update(vec![cancel]).await.unwrap().pop().unwrap().unwrap();
    ids(&waiting.await.unwrap());
    let waiting = submit(&broker, 1, SOON);
    let patch = towline_domain::PolicyPatch { depth_limit: Some(Some(2)), ..Default::default() };
    let change = Operation::ChangePolicy { queue: queue(), patch: Box::new(patch) };
    broker.update(vec![change]).await.unwrap().pop().unwrap().unwrap();
    ids(&waiting.await.unwrap());
    let waiting = submit(&broker, 1, SOON);
    broker.update(vec![Operation::CloseQueue { queue: queue() }]).await.unwrap().pop().unwrap().unwrap();
    let answers = waiting.await.unwrap();
    assert!(matches!(answers[..], [Err(Refusal::QueueClosed { .. })]), "{answers:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_stops_lets_them_go() {
    let broker = full_at(1).await;
    ids(&submit(&broker, 1, Duration::ZERO).await.unwrap());
    let waiting = submit(&broker, 1, SOON);
    broker.stop();
    let answers = waiting.await.unwrap();
    assert!(matches!(answers[..], [Err(Refusal::QueueFull { .. })]), "{answers:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_what_was_under_way_at_a_fault_nobody_says_that_it_was_refused() {
    let (broker, store) = on(1).await;
    let waiting = submit(&broker, 2, SOON);
    let listed = async || store.list(Filter::default(), None, 9, FieldSet::NONE).await.unwrap().items;
    while listed().await.is_empty() {
        tokio::task::yield_now().await;
    }
    store.guard.forget_every(1);
    // As another server would: the first in line looks by itself.
    let first = listed().await[0].item.head.id;
    let cancel = Operation::Cancel { id: first, reason: String::new() };
    store.store.update(vec![cancel]).await.unwrap().answers.pop().unwrap().unwrap();
    let answers = waiting.await.unwrap();
    assert_eq!(ids(&answers[..1]), [first]);
    assert!(matches!(answers[1..], [Err(Refusal::StoreUnavailable { .. })]), "{answers:?}");
    assert_eq!(listed().await.len(), 2, "it was made");
}
